"""`podslice defrag --apply` and `--undo`: plans that the agent on this machine carries out."""

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
    converted,
    move_text,
    read_result,
    undoing,
)
from podslice.cli.output import emit
from podslice.cli.progress import progress
from podslice.node.node import Node
from podslice.render.ansi import echo, style
from podslice.status.agent_socket import LONGEST_MOVE, ask
from podslice.values.document import without_header
from podslice.values.errors import InputError

LAST = "-"
"""What `--undo` without a file means: the agent knows its last plan."""
_COLOURS = {"done": "green", "failed": "red", "notBegun": "yellow"}
_WORDS = {"notBegun": "not begun"}


def live_node(socket: str) -> Node:
    """The node as the agent on this machine has it. Raises `InputError`."""
    from podslice.kubectl.live import remote_node

    *_, last = ask(socket, {"request": "node"})
    found = remote_node(last["answer"], socket)
    if found.node is None:
        raise InputError(found.problem, source=socket)
    return found.node


def apply_plan(path: str, socket: str, output: str) -> None:
    """Have the plan in a file carried out, show how far it is, and end with what became of it."""
    request = _planned(path)
    if not request.moves:
        _show(DefragmentationResult((), request.state, request.state), output)
        return
    asked = {"request": "moves", "moves": msgspec.to_builtins(request, enc_hook=str)}
    _carry_out(asked, len(request.moves), socket, output)


def undo_plan(path: str, socket: str, output: str) -> None:
    """Have the moves of a result taken back, or those of the agent's last plan."""
    if path == LAST:
        _carry_out({"request": "undo"}, 0, socket, output)
        return
    data = _document(path)
    request = undoing(_of("DefragmentationResult", data, path, read_result))
    if not request.moves:
        raise InputError("has no move that was done", source=path)
    asked = {"request": "moves", "moves": msgspec.to_builtins(request, enc_hook=str)}
    _carry_out(asked, len(request.moves), socket, output)


def _planned(path: str) -> MoveRequest:
    """The moves of the one plan in a file. Raises `InputError`."""
    from podslice.advise.defrag.plan import Plan

    plans = _of("DefragmentationPlanList", _document(path), path, lambda data: converted(data, DefragmentationPlanList))
    if len(plans.items) != 1:
        raise InputError(
            f"holds {len(plans.items)} plans", source=path, path="items", remedy="plan for one pod, carry it out, go on"
        )
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


def _document(path: str) -> Mapping[Any, Any]:
    """The one document in a file, JSON or YAML. Raises `InputError`."""
    from podslice.reading.files import read_text
    from podslice.reading.yaml import load_documents

    documents = load_documents(read_text(path), path)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError("is not one document", source=path, remedy="give what `podslice defrag -o json` printed")
    return documents[0]


def _of(kind: str, data: Mapping[Any, Any], path: str, read: Any) -> Any:
    """Raises `InputError` with the file."""
    try:
        return read(without_header(kind, data))
    except InputError as error:
        raise error.at(source=path) from None


def _carry_out(request: Mapping[str, Any], total: int, socket: str, output: str) -> None:
    answers: list[Mapping[str, Any]] = []
    for line in progress(_lines(request, socket, answers), total=total, what="moves made"):
        if output in ("table", "wide"):
            echo(_ended(line.step, line.of, line.result, line.text, line.problem))
            sys.stdout.flush()
    _show(read_result(without_header("DefragmentationResult", answers[0])), output)


def _lines(request: Mapping[str, Any], socket: str, answers: list[Mapping[str, Any]]) -> Iterator[MoveProgress]:
    """What is said of the moves; the answer goes to `answers`."""
    for data in ask(socket, request, patience=LONGEST_MOVE):
        if "progress" in data:
            yield converted(data["progress"], MoveProgress)
        else:
            answers.append(data["answer"])


def _show(result: DefragmentationResult, output: str) -> None:
    """Ends the command: 1 where not all is done."""
    done = sum(outcome.result == "done" for outcome in result.moves)
    good = done == len(result.moves)
    if output not in ("table", "wide"):
        emit(result, output)
    elif good:
        echo(_all_done(result))
    else:
        for number, outcome in enumerate(result.moves, 1):
            if outcome.result == "notBegun" and not outcome.problem:
                echo(_not_begun(number, len(result.moves), outcome))
        echo(style(f"{done} of {len(result.moves)} moves done: ", fg="red", bold=True) + result.problem)
    sys.exit(0 if good else 1)


def _all_done(result: DefragmentationResult) -> str:
    count = len(result.moves)
    if not count:
        return "Nothing needs to move."
    text = f"{count} move{'s' if count != 1 else ''} {'undone' if result.undo else 'done'}."
    remark = next((outcome.problem for outcome in result.moves if outcome.problem), "")
    more = f" {remark}" if remark else "" if result.undo else " podslice defrag --undo takes them back."
    return style(text, fg="green", bold=True) + more


def _not_begun(number: int, count: int, outcome: MoveOutcome) -> str:
    return _ended(number, count, outcome.result, move_text(outcome.move), "")


def _ended(number: int, count: int, result: str, text: str, problem: str) -> str:
    word = style(_WORDS.get(result, result), fg=_COLOURS[result])
    return f"{number} of {count}: {word}: {text}" + (f": {problem}" if problem else "")
