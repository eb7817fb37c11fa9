"""`podslice defrag --apply` and `--undo`: have the agent on this machine carry out a plan, or reverse one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podslice.advise.defrag.documents import DefragmentationPlanList
from podslice.advise.defrag.moves import (
    DefragmentationResult,
    MoveOutcome,
    MoveProgress,
    MoveRequest,
    decode,
    move_text,
    read_result,
    undo_request,
)
from podslice.cli.output import emit
from podslice.cli.progress import progress
from podslice.node.node import Node
from podslice.render.ansi import echo, style
from podslice.status.agent_socket import LONGEST_MOVE, ask
from podslice.values.document import without_header
from podslice.values.errors import InputError

LAST = "-"
"""The value of `--undo` without a file: the agent's own last plan."""
_COLOURS = {"done": "green", "failed": "red", "notBegun": "yellow"}
_WORDS = {"notBegun": "not begun"}


def live_node(socket: str) -> Node:
    """Return the node as the agent on this machine has it. Raises `InputError`."""
    from podslice.kubectl.live import remote_node

    *_, last = ask(socket, {"request": "node"})
    found = remote_node(last["answer"], socket)
    if found.node is None:
        raise InputError(found.problem, source=socket)
    return found.node


def apply_plan(path: str, socket: str, output: str) -> None:
    """Have the agent carry out the plan in a file, show its progress, and exit with its result."""
    request = _read_plan(path)
    if not request.moves:
        _show(DefragmentationResult((), request.state, request.state), output)
        return
    message = {"request": "moves", "moves": msgspec.to_builtins(request, enc_hook=str)}
    _carry_out(message, len(request.moves), socket, output)


def undo_plan(path: str, socket: str, output: str) -> None:
    """Have the agent reverse the moves of a result file, or those of its last plan."""
    if path == LAST:
        _carry_out({"request": "undo"}, 0, socket, output)
        return
    data = _read_document(path)
    request = undo_request(_decode_kind("DefragmentationResult", data, path, read_result))
    if not request.moves:
        raise InputError("has no move that was done", source=path)
    message = {"request": "moves", "moves": msgspec.to_builtins(request, enc_hook=str)}
    _carry_out(message, len(request.moves), socket, output)


def _read_plan(path: str) -> MoveRequest:
    """Read the moves of the one plan in a file. Raises `InputError`."""
    from podslice.advise.defrag.plan import Plan

    plans = _decode_kind(
        "DefragmentationPlanList", _read_document(path), path, lambda data: decode(data, DefragmentationPlanList)
    )
    if len(plans.items) != 1:
        raise InputError(
            f"holds {len(plans.items)} plans", source=path, path="items", remedy="plan for one pod, carry it out, go on"
        )
    # Each plan begins on the state that the one before it and its pod leave behind; the pods are not there yet.
    (one,) = plans.items
    if not isinstance(one.plan, Plan):
        raise InputError(
            "restarts pods, which an agent does not do",
            source=path,
            path="items[0].plan",
            remedy="plan without --restarts",
        )
    if not one.plan.fits:
        raise InputError(f"makes no room for {one.pod}", source=path, path="items[0].plan")
    return MoveRequest(one.state, one.plan.moves)


def _read_document(path: str) -> Mapping[Any, Any]:
    """Read the one document in a file, JSON or YAML. Raises `InputError`."""
    from podslice.reading.files import read_text
    from podslice.reading.yaml import load_documents

    documents = load_documents(read_text(path), path)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError("is not one document", source=path, remedy="give what `podslice defrag -o json` printed")
    return documents[0]


def _decode_kind(kind: str, data: Mapping[Any, Any], path: str, read: Any) -> Any:
    """Decode a document of this kind with `read`. Raises `InputError` that names the file."""
    try:
        return read(without_header(kind, data))
    except InputError as error:
        raise error.at(source=path) from None


def _carry_out(request: Mapping[str, Any], total: int, socket: str, output: str) -> None:
    answers: list[Mapping[str, Any]] = []
    for line in progress(_read_progress(request, socket, answers), total=total, what="moves made"):
        if output in ("table", "wide"):
            echo(_move_line(line.step, line.of, line.result, line.text, line.problem))
            sys.stdout.flush()
    _show(read_result(without_header("DefragmentationResult", answers[0])), output)


def _read_progress(request: Mapping[str, Any], socket: str, answers: list[Mapping[str, Any]]) -> Iterator[MoveProgress]:
    """Yield the agent's progress lines; append its final answer to `answers`."""
    for data in ask(socket, request, patience=LONGEST_MOVE):
        if "progress" in data:
            yield decode(data["progress"], MoveProgress)
        else:
            answers.append(data["answer"])


def _show(result: DefragmentationResult, output: str) -> None:
    """Print a result and exit: with 1 where a move is not done."""
    done = sum(outcome.result == "done" for outcome in result.moves)
    good = done == len(result.moves)
    if output not in ("table", "wide"):
        emit(result, output)
    elif good:
        echo(_summary(result))
    else:
        for number, outcome in enumerate(result.moves, 1):
            # Moves that were begun, or refused for a reason, have a line already: the agent reported their progress.
            if outcome.result == "notBegun" and not outcome.problem:
                echo(_not_begun_line(number, len(result.moves), outcome))
        echo(style(f"{done} of {len(result.moves)} moves done: ", fg="red", bold=True) + result.problem)
    sys.exit(0 if good else 1)


def _summary(result: DefragmentationResult) -> str:
    count = len(result.moves)
    if not count:
        return "Nothing needs to move."
    text = f"{count} move{'s' if count != 1 else ''} {'undone' if result.undo else 'done'}."
    remark = next((outcome.problem for outcome in result.moves if outcome.problem), "")
    more = f" {remark}" if remark else "" if result.undo else " podslice defrag --undo takes them back."
    return style(text, fg="green", bold=True) + more


def _not_begun_line(number: int, count: int, outcome: MoveOutcome) -> str:
    return _move_line(number, count, outcome.result, move_text(outcome.move), "")


def _move_line(number: int, count: int, result: str, text: str, problem: str) -> str:
    word = style(_WORDS.get(result, result), fg=_COLOURS[result])
    return f"{number} of {count}: {word}: {text}" + (f": {problem}" if problem else "")
