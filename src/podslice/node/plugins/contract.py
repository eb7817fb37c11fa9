"""The contract of plugins: allowed answers, the call itself, and the consequences of a breach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from podslice.config.policy import OnError, PluginEntry
from podslice.machine.model import whole_objects
from podslice.node.plugins.api import (
    CPUAsk,
    CPUEffects,
    CPUMachine,
    CPUMove,
    CPUNode,
    CPUPlugin,
    Layer,
    Moves,
    Relax,
    Remedy,
    Wait,
)
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, PodsliceError, RefusalKind

POINTS = ("Sort", "Filter", "PostFilter", "PreScore", "Select", "Score", "Allocate", "Deallocate")
LARGEST_POINTS, LARGEST_SCORE, LARGEST_MEMO, MOST_MOVES = 10**6, 100, 4096, 16
BROKEN = RefusalKind("plugin-broken", 'plugin "{plugin}" {point}: {problem}')
T = TypeVar("T")
OnBroken = Callable[[str, str, str], None]
"""Called with the plugin, the point and the problem."""
OnRemedy = Callable[[str, Remedy], None]
"""Called with the plugin and its remedy."""


class SkippedError(PodsliceError):
    """Raised when a plugin is left out of a pick."""


class FallBackError(PodsliceError):
    """Raised when a pick is made without plugins."""


class Stopwatch:
    """Turns off plugins that take too long, five calls in a row, until the next start. Only an agent has one: decisions
    that others compare may not depend on a clock."""

    limit = 0.01
    calls = 5

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._slow: dict[str, int] = {}

    def record_call(self, plugin: str, seconds: float) -> None:
        """Record how many seconds a call of the plugin took."""
        if not self.is_off(plugin):
            self._slow[plugin] = self._slow.get(plugin, 0) + 1 if seconds > self.limit else 0

    def is_off(self, plugin: str) -> bool:
        """Whether a plugin was too slow too often."""
        return self._slow.get(plugin, 0) >= self.calls


class PluginStep(NamedTuple):
    """One method of one plugin."""

    entry: PluginEntry
    plugin: CPUPlugin
    call: Callable[..., Any]


def _call_timed(step: PluginStep, watch: Stopwatch, check: Callable[..., T], *arguments: Any) -> T:
    """Call the plugin and time it. The check is timed too, because a generator computes its answer only there."""
    name = step.entry.name
    if watch.is_off(name):
        raise ContractError(f"took more than {1000 * watch.limit:.0f} ms {watch.calls} times in a row")
    began = watch.clock()
    try:
        return check(step.call(*arguments), *arguments)
    finally:
        watch.record_call(name, watch.clock() - began)


def call_plugin(
    step: PluginStep, point: str, on_broken: OnBroken, check: Callable[..., T], *arguments: Any, watch: Stopwatch | None
) -> T:
    """Return a plugin's answer, if it is within its contract. Raises the error that `onError` demands."""
    try:
        return (
            check(step.call(*arguments), *arguments) if watch is None else _call_timed(step, watch, check, *arguments)
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may not end the process either, by SystemExit
        name, problem = step.entry.name, _describe_error(error)
        on_broken(name, point, problem)
        on_error: OnError = step.entry.on_error
        if on_error == "refuse":
            raise AdmissionError(BROKEN, plugin=name, point=point, problem=problem) from None
        raise (SkippedError if on_error == "skip" else FallBackError) from None


class ContractError(PodsliceError):
    """Raised for an answer that a plugin may not give."""


def _describe_error(error: BaseException) -> str:
    """Return the error in one line, whatever its own text is like."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an error of a plugin may have no text either
        text = ""
    said = text if isinstance(error, ContractError) else f"{type(error).__name__}: {text}".removesuffix(": ")
    return said if len(said) <= 200 else f"{said[:200]}…"


# Only plain values are accepted: an instance of the plugin's own class could give another answer at each access.


def check_integers(answer: object, *_: object) -> tuple[int, ...]:
    """Return Sort's answer, a tuple of integers. Raises `ContractError`."""
    if type(answer) is not tuple or not all(type(one) is int for one in answer):
        raise ContractError("the key is not a tuple of integers")
    return answer


def check_subset(answer: object, _: CPUAsk, cpus: Bits, *__: object) -> Bits:
    """Return Filter's answer, a subset of the given CPUs. Raises `ContractError`."""
    if type(answer) is not int or answer < 0 or answer & ~cpus:
        raise ContractError("the CPUs are not a subset of those that it was given")
    return answer


def check_remedy(answer: object, _: CPUAsk, node: CPUNode, *__: object) -> Remedy | None:
    """Return PostFilter's answer, a remedy that can be carried out, or None. Raises `ContractError`."""
    if answer is not None and type(answer) not in (Relax, Wait, Moves):
        raise ContractError("the answer is neither Relax nor Wait nor Moves")
    if isinstance(answer, Moves):
        _check_moves(answer, node)
    elif isinstance(answer, Relax | Wait) and type(answer[0]) is not str:
        raise ContractError("the answer has no text")
    return cast("Remedy | None", answer)


def _check_moves(answer: Moves, node: CPUNode) -> None:
    """Check that moves are well-formed and possible on this node. Raises `ContractError`."""
    if type(answer.moves) is not tuple or not answer.moves or len(answer.moves) > MOST_MOVES:
        raise ContractError(f"the moves are not a tuple of 1 to {MOST_MOVES}")
    for move in answer.moves:
        if type(move) is not CPUMove or [*map(type, move)] != [str, str, int] or move.cpus < 0:
            raise ContractError("a move is not a CPUMove")
    try:
        node.after(answer.moves)
    except ValueError as error:
        raise ContractError(str(error)) from None


def check_layers(answer: Any, *_: object) -> tuple[Layer, ...]:
    """Return PreScore's answer, layers of points within bounds. Raises `ContractError`."""
    layers: tuple[Layer, ...] = tuple([(there, points) for there, points in answer])
    for there, points in layers:
        if type(there) is not int or there < 0:
            raise ContractError("a layer has no set of CPUs")
        if type(points) is not int or not -LARGEST_POINTS <= points <= LARGEST_POINTS:
            raise ContractError(f"{points!r} points are not from -{LARGEST_POINTS} to {LARGEST_POINTS}")
    return layers


def set_checker(ask: CPUAsk, machine: CPUMachine, most: int) -> Callable[..., tuple[Bits, ...]]:
    """Return the check of Select's answer: at most `most` sets that fit the request."""

    def check(answer: Any, _: CPUAsk, cpus: Bits, *__: object) -> tuple[Bits, ...]:
        found: list[Bits] = []
        for candidate in answer or ():
            if len(found) == most:
                break
            _check_set(candidate, ask, cpus, machine)
            found.append(candidate)
        return tuple(found)

    return check


def _check_set(candidate: object, ask: CPUAsk, cpus: Bits, machine: CPUMachine) -> None:
    """Check that a set is a possible answer: CPUs it was given, as many as asked for. Raises `ContractError`."""
    if type(candidate) is not int or candidate < 0 or candidate & ~(cpus | ask.anchor):
        raise ContractError("a set has CPUs that it was not given")
    if candidate.bit_count() != ask.count or ask.anchor & ~candidate:
        raise ContractError(f"a set has {candidate.bit_count()} CPUs, not the {ask.count} that are asked for")
    if ask.whole_cores and whole_objects(machine.cores, candidate & ~ask.anchor) & ~(candidate | ask.anchor):
        raise ContractError("a set has part of a core")


def check_score(answer: object, *_: object) -> int:
    """Return Score's answer, 0 to 100. Raises `ContractError`."""
    if type(answer) is not int or not 0 <= answer <= LARGEST_SCORE:
        raise ContractError(f"{answer!r} is not a score from 0 to {LARGEST_SCORE}")
    return answer


def check_effects(answer: object, *_: object) -> CPUEffects | None:
    """Return Allocate's or Deallocate's answer as our own copy. Raises `ContractError`."""
    if answer is None:
        return None
    if type(answer) is not CPUEffects:
        raise ContractError("the answer is not CPUEffects")
    mine: CPUEffects = msgspec.convert(msgspec.to_builtins(answer), CPUEffects)  # the plugin may keep its own
    if len(mine.memo.encode()) > LARGEST_MEMO:
        raise ContractError(f"the memo has more than {LARGEST_MEMO} bytes")
    return mine
