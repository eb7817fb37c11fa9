"""The NodeState object: when it is written, what is in it, and that who reads it goes on as the node."""

from __future__ import annotations

import asyncio
import base64
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from podslice.agent.api_server.checkpoint import Checkpoint, Due
from podslice.agent.settings import settings_from_dict
from podslice.node.holding import digest
from podslice.replica.nodestate import LARGEST, NodeStateStatus, build_status, new_node_state, read_node_state
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.values.errors import InputError
from tests import clock
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_journal import Followed
from tests.conftest import make_pod


def test_a_quiet_node_is_written_after_five_seconds() -> None:
    """One write, five seconds after the latest change, and none without a change."""
    due = Due()
    assert not due.look((1, 0), 0.0)
    assert not due.look((1, 1), 4.0)
    assert not due.look((1, 1), 8.9)
    assert due.look((1, 1), 9.0)
    due.begin_write()
    assert not due.look((1, 1), 1000.0)


def test_a_busy_node_is_written_every_thirty_seconds() -> None:
    """A node that changes every second is written thirty seconds after its first change that is not written."""
    due, writes = Due(), []
    for second in range(100):
        if due.look((1, second), float(second)):
            due.begin_write()
            writes.append(second)
    assert writes == [30, 61, 92]


@pytest.fixture(autouse=True)
def in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The virtual clock waits for nobody else's."""

    async def at_once(work: Any, *arguments: Any) -> Any:
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)


def written(node: Followed, api: FakeApiServer, seconds: float, troubles: list[str]) -> None:
    async def main() -> None:
        assert node.owner.node is not None
        checkpoint = Checkpoint(api, "n1", node.journal, trouble=lambda what, why: troubles.append(why))
        task = asyncio.ensure_future(checkpoint.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main())


def as_object(status: NodeStateStatus) -> bytes:
    return msgspec.json.encode({**new_node_state("n1"), "status": status})


def test_who_reads_the_object_is_the_node(tmp_path: Path) -> None:
    """A replica that begins with the object has the node's digests and follows the events after it."""
    node, api, troubles = Followed(tmp_path), FakeApiServer(), []
    node.run(make_pod("a", ("c", "4")))
    written(node, api, 8.0, troubles)
    ((name, status),) = api.node_states
    assert (name, troubles) == ("n1", [])
    read = read_node_state(as_object(status))
    assert read.node == "n1"
    assert read.state is not None
    node.replica = Replica(Rulebook(), {"test"})
    assert node.replica.apply(read.state).outcome == "adopted"
    assert node.owner.node is not None
    assert node.replica.digest == digest(node.owner.node.state)
    node.run(make_pod("b", ("c", "2")))
    assert len(node.news()) == 1


def test_an_object_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    """While the API server is away people hear why, and afterwards the object is there."""
    node, api, troubles = Followed(tmp_path), FakeApiServer(), []
    api.down = True
    written(node, api, 60.0, troubles)
    assert api.node_states == []
    assert 2 <= len(troubles) <= 6
    api.down = False
    written(node, api, 8.0, troubles)
    assert len(api.node_states) == 1


def test_a_state_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    """An object never holds more than it should; why there is no state is in it."""
    node = Followed(tmp_path)
    assert node.journal.journal is not None
    told = node.journal.journal.whole_state()
    names = {f"p{i}": {f"c{i * 7919}": i} for i in range(20000)}
    huge = replace(told, event=replace(told.event, state=replace(told.event.state, records={}, reusable=names)))
    status = build_status(huge)
    assert status.state == ""
    assert f"more than {LARGEST}" in status.problem
    assert read_node_state(as_object(status)).problem == status.problem


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"state": "!"}, id="no base64"),
        pytest.param({"state": base64.b64encode(b"x").decode()}, id="not compressed"),
        pytest.param({"state": base64.b64encode(zlib.compress(b"{}")).decode()}, id="no event"),
        pytest.param({"state": base64.b64encode(zlib.compress(bytes(64 << 20))).decode()}, id="a bomb"),
        pytest.param({"encoding": "zstd"}, id="another encoding"),
    ],
)
def test_a_state_that_cannot_be_read_is_a_problem_of_its_node(tmp_path: Path, change: dict[str, str]) -> None:
    """Whatever somebody writes into an object, reading it says why there is no state."""
    node = Followed(tmp_path)
    assert node.journal.journal is not None
    read = read_node_state(as_object(replace(build_status(node.journal.journal.whole_state()), **change)))
    assert read.state is None
    assert read.problem
    with pytest.raises(InputError):
        read_node_state(b"[]")


def settings(**cluster: Any) -> dict[str, Any]:
    sources = {"apiServer": cluster.pop("apiServer", True)}
    header = {"apiVersion": "podslice.io/v1alpha1", "kind": "AgentConfiguration"}
    return {**header, "sources": sources, "cluster": cluster}


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"plan": "obey"}, "cluster.plan: 'obey' is unknown (compare or honour)"),
        ({"services": ["here"]}, "cluster.services[0]: 'here' is not HOST:PORT"),
        ({"apiServer": False}, "cluster: reports to nothing"),
        ({"servces": []}, "servces"),
    ],
)
def test_settings_are_checked(cluster: dict[str, Any], said: str) -> None:
    """A setting that cannot be meant is refused with its place."""
    with pytest.raises(InputError) as error:
        settings_from_dict(settings(**cluster))
    assert said in str(error.value)


def test_settings_are_read() -> None:
    """The services and the policy for plans."""
    read = settings_from_dict(settings(services=["a.b:9097", "[::1]:1"], plan="honour")).agent.cluster
    assert read is not None
    assert (read.services, read.plan, read.checkpoint) == (("a.b:9097", "[::1]:1"), "honour", True)
