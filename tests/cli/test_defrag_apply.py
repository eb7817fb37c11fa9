"""`podslice defrag --apply` and `--undo`: the files that are understood, and the output."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

import pytest
from click.testing import CliRunner, Result

from podslice.cli.main import cli
from podslice.values.errors import InputError
from tests.read_documents import read_document

HEADER = {"apiVersion": "podslice.io/v1alpha1", "kind": "DefragmentationPlanList"}
SETS = {"cpusBefore": "2-5", "cpusAfter": "20-23", "memoryNodesBefore": "", "memoryNodesAfter": ""}
MOVE = {"uid": "u", "namespace": "default", "name": "a", "containers": [{"name": "app", **SETS}]}
PLAN = {"type": "moves", "fits": True, "moves": [MOVE], "containerMoves": 1, "atLeast": 1, "proven": True, "placed": ""}
ITEM = {"pod": "default/big", "plan": PLAN, "state": "aa"}
DONE = {"move": MOVE, "result": "done", "lent": {"app": [5]}}
FAILED = {"move": MOVE, "result": "failed", "problem": "busy"}
NOT_BEGUN = {"move": MOVE, "result": "notBegun"}


def result_of(*moves: dict[str, Any], problem: str = "", undo: bool = False) -> dict[str, Any]:
    kind = {"apiVersion": HEADER["apiVersion"], "kind": "DefragmentationResult"}
    return {**kind, "moves": list(moves), "stateBefore": "aa", "stateAfter": "bb", "problem": problem, "undo": undo}


@contextmanager
def agent(folder: Path, *lines: dict[str, Any]) -> Iterator[list[Any]]:
    """Run an agent that answers one request with these lines; yield the requests that it got."""
    asked: list[Any] = []
    with socket(AF_UNIX, SOCK_STREAM) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                with peer.makefile("r") as file:
                    asked.append(json.loads(file.readline()))
                for line in lines:
                    peer.sendall(json.dumps(line).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(10)


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["defrag", "--socket", str(folder / "s"), *arguments])


def written(folder: Path, data: Any) -> str:
    (folder / "in.json").write_text(json.dumps(data))
    return str(folder / "in.json")


def test_a_plan_is_sent_with_its_digest(tmp_path: Path) -> None:
    """The request has the moves and the state they were planned on; each progress line is shown as it comes."""
    progress = {"step": 1, "of": 1, "text": "default/a app: 2-5 -> 20-23", "result": "done", "problem": ""}
    with agent(tmp_path, {"progress": progress}, {"answer": result_of(DONE)}) as asked:
        result = run(tmp_path, "--apply", written(tmp_path, {**HEADER, "items": [ITEM]}))
    assert result.output.splitlines() == [
        "1 of 1: done: default/a app: 2-5 -> 20-23",
        "1 move done. podslice defrag --undo takes them back.",
    ]
    (request,) = asked
    assert (request["request"], request["moves"]["state"], request["moves"]["undo"]) == ("moves", "aa", False)
    assert [move["containers"][0]["cpusAfter"] for move in request["moves"]["moves"]] == ["20-23"]


def test_what_stopped_it_is_said(tmp_path: Path) -> None:
    """Exit code 1, the number of moves done, those not begun, and the reason; as a document the agent's own."""
    answer = {"answer": result_of(DONE, FAILED, NOT_BEGUN, problem="busy")}
    plan = written(tmp_path, {**HEADER, "items": [ITEM]})
    with agent(tmp_path, answer):
        result = run(tmp_path, "--apply", plan)
    assert (result.exit_code, result.output.splitlines()) == (
        1,
        ["3 of 3: not begun: default/a app: 2-5 -> 20-23", "1 of 3 moves done: busy"],
    )
    (tmp_path / "s").unlink()
    with agent(tmp_path, answer):
        result = run(tmp_path, "--apply", plan, "-o", "json")
    assert result.exit_code == 1
    assert [one["result"] for one in read_document(result.output, "DefragmentationResult")["moves"]] == [
        "done", "failed", "notBegun",
    ]  # fmt: skip


def test_the_way_back_is_the_plan_backwards(tmp_path: Path) -> None:
    """The request has the moves that were done, from the last to the first and from their ends to their origins, on the
    state that they led to, with the CPUs that had come by resizes."""
    with agent(tmp_path, {"answer": result_of(DONE, undo=True)}) as asked:
        result = run(tmp_path, "--undo", written(tmp_path, result_of(DONE, FAILED, NOT_BEGUN, problem="busy")))
    assert (result.exit_code, result.output) == (0, "1 move undone.\n")
    (request,) = asked
    moves = request["moves"]
    assert (moves["state"], moves["undo"], moves["lent"]) == ("bb", True, [{"app": [5]}])
    assert [(one["cpusBefore"], one["cpusAfter"]) for one in moves["moves"][0]["containers"]] == [("20-23", "2-5")]


def test_without_a_file_the_agent_knows_the_last_plan(tmp_path: Path) -> None:
    """`--undo` alone asks for just that."""
    with agent(tmp_path, {"answer": result_of(DONE, undo=True)}) as asked:
        assert run(tmp_path, "--undo").exit_code == 0
    assert asked == [{"request": "undo"}]


def test_a_plan_without_moves_needs_no_agent(tmp_path: Path) -> None:
    """Nothing needs to move, and no agent is asked."""
    item = {**ITEM, "plan": {**PLAN, "moves": []}}
    result = run(tmp_path, "--apply", written(tmp_path, {**HEADER, "items": [item]}))
    assert (result.exit_code, result.output) == (0, "Nothing needs to move.\n")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**HEADER, "items": []}, "items: holds 0 plans"),
        ({**HEADER, "items": [ITEM, ITEM]}, "items: holds 2 plans"),
        ({**HEADER, "items": [{**ITEM, "plan": {**PLAN, "fits": False}}]}, "makes no room for default/big"),
        ({"kind": "AgentStatus"}, "kind: 'AgentStatus' is not DefragmentationPlanList"),
        ({**HEADER, "items": [{**ITEM, "state": 3}]}, r"items\[0\].state: expected text, got a whole number"),
        ([], "is not one document"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, data: Any, message: str) -> None:
    """One line with file, field and remedy, and no agent is asked."""
    result = run(tmp_path, "--apply", written(tmp_path, data))
    assert isinstance(result.exception, InputError)
    with pytest.raises(InputError, match=message):
        raise result.exception


@pytest.mark.parametrize(
    "arguments", [("--apply", "x", "--undo"), ("--apply", "x", "y.yaml"), ("--apply", "x", "--agent")]
)
def test_one_thing_at_a_time(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Planning and carrying out are two commands."""
    result = run(tmp_path, *arguments)
    with pytest.raises(InputError, match="--apply: goes with -o and --socket only"):
        raise result.exception or AssertionError


def test_the_agent_knows_its_node(tmp_path: Path) -> None:
    """Options that describe another node are refused with --agent."""
    (tmp_path / "p.yaml").write_text("")
    result = run(tmp_path, "--agent", "--set", "cpuManagerPolicy=static")
    with pytest.raises(InputError, match="--set: does not go with --agent"):
        raise result.exception or AssertionError


def test_no_agent(tmp_path: Path) -> None:
    """Exit code 2 and how to start one."""
    result = run(tmp_path, "--apply", written(tmp_path, {**HEADER, "items": [ITEM]}))
    with pytest.raises(InputError, match="no agent answers: No such file or directory"):
        raise result.exception or AssertionError
