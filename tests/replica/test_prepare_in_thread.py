"""Whole states are worked out beside the service's event loop, in order, and nothing else waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import grpc
import msgspec
import pytest

from podslice import Node
from podslice.cluster.journal import journals as module
from podslice.cluster.journal.journals import Journals, NodeStream
from podslice.cluster.journal.node_states import node_states
from podslice.node.holding import digest
from podslice.replica.events import Stamped, WholeState
from podslice.replica.journal import Journal
from podslice.replica.nodestate import build_status, new_node_state
from podslice.replica.rulebook import PreparedState, Rulebook
from podslice.replica.stream_messages import encode_message
from tests.cluster.fake_api import FakeClusterApi
from tests.conftest import make_node, make_pod

VERSION = "test"


async def nobody(token: str) -> str:
    raise AssertionError("nobody calls here")


class Line:
    """The messages of an agent on its stream, as the service reads them."""

    def __init__(self, *said: bytes) -> None:
        self._said = [*said, grpc.aio.EOF]

    async def read(self) -> object:
        return self._said.pop(0)


class Scene:
    """Journals whose thread works only when it is let, and what was applied, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_REST", 0.0)
        self.troubles: list[str] = []
        self.journals = Journals(
            Rulebook(), {VERSION}, caller=nobody, trouble=lambda what, why: self.troubles.append(why)
        )
        self.applied: list[tuple[str, int, str]] = []
        self.journals.events.applied.add(
            lambda node, stamped, applied: self.applied.append((node, stamped.sequence, applied.outcome))
        )
        self.may, self.works = threading.Event(), threading.Event()
        work = self.journals._decode_and_prepare

        def waiting(data: bytes) -> module.ReadMessage:
            self.works.set()
            assert self.may.wait(60)
            return work(data)

        monkeypatch.setattr(self.journals, "_decode_and_prepare", waiting)

    def reading(self, name: str, *said: Stamped) -> asyncio.Task[None]:
        entry = self.journals._entry(name)
        entry.stream = NodeStream()
        line = Line(*(encode_message(one) for one in said))
        return asyncio.ensure_future(self.journals._read(name, entry, entry.stream, line))


def life(epoch: int, pods: int) -> tuple[Node, list[Stamped]]:
    """A node's whole state, large enough for the thread, and events after it."""
    node = make_node("pack:2 numa:2(memory=64GB) core:8 pu:2")
    for number in range(12):
        assert node.admit(make_pod(f"there-{number}", ("c", "1"))).admitted
    journal = Journal(node.rules, node.state, epoch=epoch, version=VERSION)
    said = [journal.whole_state()]
    assert len(encode_message(said[0])) > module.LARGE_MESSAGE
    for number in range(pods):
        before, pod = node.state, make_pod(f"new-{number}", ("c", "2"))
        assert node.admit(pod).admitted
        said.append(journal.record_admission(node.rules, before, node.state, pod))
    return node, said


def test_the_loop_goes_on_while_a_state_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other nodes' events are taken in meanwhile; the node's own later ones wait for its state, and it is proven after
    each."""
    scene = Scene(monkeypatch)
    node, said = life(1, 3)
    other, news = life(2, 2)

    async def main() -> None:
        scene.journals.seed("quick", news[0])
        slow = scene.reading("slow", *said)
        assert await asyncio.to_thread(scene.works.wait, 60)
        await scene.reading("quick", *news[1:])
        assert scene.applied == [("quick", 0, "adopted"), ("quick", 1, "equal"), ("quick", 2, "equal")]
        assert scene.journals.nodes["slow"].replica.state is None
        scene.may.set()
        await slow
        assert scene.applied[3:] == [("slow", 0, "adopted"), *(("slow", number, "equal") for number in (1, 2, 3))]

    asyncio.run(main())
    for name, one in (("slow", node), ("quick", other)):
        assert scene.journals.nodes[name].replica.digest == digest(one.state)
    assert scene.journals.nodes["slow"].replica.rules is scene.journals.nodes["quick"].replica.rules
    assert scene.troubles == []


@pytest.mark.parametrize("gone", [True, False])
def test_what_comes_too_late_counts_for_nothing(monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """While a state is worked out its node leaves the cluster, or its agent calls again."""
    scene = Scene(monkeypatch)
    _, said = life(1, 1)

    async def main() -> None:
        late = scene.reading("n1", *said)
        assert await asyncio.to_thread(scene.works.wait, 60)
        if gone:
            scene.journals.forget("n1")
        else:
            scene.journals.nodes["n1"].stream = NodeStream()
        scene.may.set()
        await late

    asyncio.run(main())
    assert scene.applied == []


def test_an_impossible_state_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad state is found in the thread too, and its own node's replica is no longer trusted."""
    scene = Scene(monkeypatch)
    scene.may.set()
    _, said = life(1, 0)
    assert isinstance(said[0].event, WholeState)
    bad = msgspec.structs.replace(said[0].event.state, used={"vendor.example/none": 3})
    lie = msgspec.structs.replace(said[0], event=msgspec.structs.replace(said[0].event, state=bad))

    async def main() -> None:
        await scene.reading("n1", lie)

    asyncio.run(main())
    assert scene.applied == [("n1", 0, "mismatch")]
    assert "has devices that its pool has not" in scene.troubles[0]


def test_objects_are_worked_out_beside_the_loop() -> None:
    """A NodeState is read by the thread, and not at all while the node's own stream is there."""
    journal = Journal(make_node().rules, make_node().state, epoch=3, version=VERSION)
    data = msgspec.json.encode(new_node_state("a") | {"status": build_status(journal.whole_state())})

    async def main() -> None:
        api, troubles = FakeClusterApi(), list[str]()
        journals = Journals(Rulebook(), {VERSION}, caller=nobody, trouble=lambda what, why: troubles.append(why))
        workers: list[str] = []
        work = journals.run_in_thread

        async def beside(job: Callable[[Rulebook], object]) -> object:
            def told(rulebook: Rulebook) -> object:
                workers.append(threading.current_thread().name)
                return job(rulebook)

            return await work(told)

        journals.run_in_thread = beside  # type: ignore[method-assign, assignment]
        table = node_states(api, journals, trouble=lambda what, why: troubles.append(why))
        seen = await table._read(data)
        assert isinstance(seen.ready, PreparedState)
        table.put(seen)
        assert journals.nodes["a"].replica.proven
        assert [seen.state, seen.ready] == [None, None]
        assert [name.startswith("journals") for name in workers] == [True]
        journals.nodes["a"].stream = NodeStream()
        assert (await table._read(data)).state is None
        assert (len(workers), troubles) == (1, [])
        await journals.close()

    asyncio.run(main())
