"""Requests to the agent for moves of running containers, and their results: values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from podslice.advise.defrag.plan import WHOLE_POD, ContainerMove, Lent, Move
from podslice.node.cpu.state import PodCPUs
from podslice.values.cpuset import CPUSet, CPUSetError, bits_of, format_bits, iter_bits
from podslice.values.decoding import decoding_problem
from podslice.values.errors import InputError

T = TypeVar("T")
# Bounds of one request, so that a caller of the agent's socket cannot make it hold any amount of memory.
LARGEST_REQUEST = 1 << 20
MOST_MOVES = 256
LentCPUs = dict[str, tuple[int, ...]]
"""As `advise.defrag.plan.Lent`."""


Result = Literal["done", "failed", "notBegun"]


class MoveRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Moves in order, on the node whose state has this digest. `undo`: they reverse moves that were done. `lent` then
    holds, move by move, the CPUs that containers get again beyond those they were promised."""

    state: str
    moves: tuple[Move, ...]
    lent: tuple[LentCPUs, ...] = ()
    undo: bool = False


class MoveProgress(msgspec.Struct, frozen=True, rename="camel"):
    """Move `step` of `of` has ended; `text` names the containers and their new places."""

    step: int
    of: int
    text: str
    result: str
    problem: str = ""


class MoveOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The result of one move: `done`, `failed` (begun, and undone unless `problem` says otherwise), `notBegun`. `lent`:
    CPUs that its containers had before beyond the promised ones, and under the empty name those of the pod as a
    whole."""

    move: Move
    result: Result
    problem: str = ""
    milliseconds: int = 0
    lent: LentCPUs = {}


class DefragmentationResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a plan. `problem` names what stopped it, and is empty where all moves are done; `state_before` and
    `state_after` are digests of the assignments. `undo`: the moves reversed others."""

    moves: tuple[MoveOutcome, ...]
    state_before: str
    state_after: str
    problem: str = ""
    undo: bool = False


def read_request(data: Mapping[str, Any]) -> MoveRequest:
    """Decode a request. Raises `InputError`."""
    request = decode(data, MoveRequest)
    if len(request.moves) > MOST_MOVES:
        raise InputError(f"has {len(request.moves)} moves, at most {MOST_MOVES} are carried out", path="moves")
    if request.lent and len(request.lent) != len(request.moves):
        raise InputError("has another number of entries than moves", path="lent")
    return request


def read_result(data: Mapping[str, Any]) -> DefragmentationResult:
    """Decode a result. Raises `InputError`."""
    return decode(data, DefragmentationResult)


def decode(data: Mapping[str, Any], kind: type[T]) -> T:
    """Decode plain data that holds CPU sets as text. Raises `InputError` with the field."""
    try:
        return msgspec.convert(data, kind, strict=True, dec_hook=_cpu_set)
    except (msgspec.ValidationError, RecursionError) as error:
        path, problem, remedy, *_ = decoding_problem(str(error))
        # The problem may quote the input, which has no bound of its own.
        raise InputError(problem[:200], path=path, remedy=remedy) from None


def _cpu_set(kind: type[Any], value: Any) -> Any:
    if kind is not CPUSet or not isinstance(value, str) or len(value) > 1 << 16:
        raise ValueError("is not a CPU list")
    try:
        return CPUSet.parse(value)
    except CPUSetError as error:
        raise ValueError(error.problem) from None


def undo_request(result: DefragmentationResult) -> MoveRequest:
    """Return the request that reverses a result: the moves that were done, from the last to the first."""
    # The last move goes back first: it may lie on CPUs that an earlier one came from.
    done = [outcome for outcome in reversed(result.moves) if outcome.result == "done"]
    moves = tuple(inverse(outcome.move) for outcome in done)
    return MoveRequest(result.state_after, moves, tuple(outcome.lent for outcome in done), undo=True)


def inverse(move: Move) -> Move:
    """Return the move from where a move went to where it came from."""
    back = tuple(
        ContainerMove(one.name, one.cpus_after, one.cpus_before, one.memory_nodes_after, one.memory_nodes_before)
        for one in move.containers
    )
    return msgspec.structs.replace(
        move, containers=back, pod_cpus_before=move.pod_cpus_after, pod_cpus_after=move.pod_cpus_before
    )


def lent_cpus(had: PodCPUs) -> LentCPUs:
    """Return the CPUs that a pod has beyond those it was promised."""
    whole = {WHOLE_POD: tuple(iter_bits(had.pod_loans))} if had.pod_loans else {}
    return {**had.loans, **whole}


def problem_with_lent(had: PodCPUs, gets: PodCPUs, lent: Lent) -> str:
    """Return why a pod that moves from CPUs `had` to `gets` cannot have `lent` as its CPUs beyond the promised ones;
    empty if it can."""
    now = lent_cpus(had)
    for name in {*now, *lent}:
        cpus, own = lent.get(name, ()), gets.pod_cpus if name == WHOLE_POD else gets.assignments.get(name, 0)
        known = all(0 <= cpu < own.bit_length() for cpu in cpus) and len(set(cpus)) == len(cpus)
        if not known or bits_of(cpus) & ~own or len(cpus) != len(now.get(name, ())):
            return f"{name or 'the pod'} was promised another number of CPUs than the request has"
    return ""


def move_text(move: Move) -> str:
    """Describe a move for people: containers and their places before and after."""
    parts = []
    for one in move.containers:
        if one.cpus_before != one.cpus_after:
            parts.append(f"{one.name}: {_set(one.cpus_before)} -> {_set(one.cpus_after)}")
        elif one.memory_nodes_before != one.memory_nodes_after:
            parts.append(f"{one.name}: NUMA {_set(one.memory_nodes_before)} -> {_set(one.memory_nodes_after)}")
    return f"{move.namespace}/{move.name} {'; '.join(parts)}"


def _set(cpus: CPUSet) -> str:
    return format_bits(cpus.bits) or "-"
