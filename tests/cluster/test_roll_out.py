"""Agents and services of neighbouring versions, as they meet while both are rolled out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from e2e.certificates import OPENSSL, Certificates, make
from e2e.hollow_nodes import HollowNode
from msgspec.structs import replace

from podslice.agent.journal import NodeJournal
from podslice.agent.reporter import JournalStream
from podslice.cluster.journal import admission
from podslice.cluster.journal.journals import Journals
from podslice.node.node import Node
from podslice.replica.compatibility import DECISIONS, PROTOCOL
from podslice.replica.events import Stamped, WholeState, encode
from podslice.replica.rulebook import Rulebook
from podslice.replica.stream_messages import FOLLOW, METHOD, SERVICE
from podslice.service.clusterobjects import read_node
from podslice.service.pacing import BackOff
from podslice.service.trust import AuthorityFile
from tests.clock import until
from tests.cluster.bench import LIKE, filter_request, ignore, node_object, pod_object, scheduled_pod, wire_service
from tests.cluster.fake_api import FakeClusterApi
from tests.cluster.recorded_log import RecordedLog
from tests.cluster.test_confirming import metric
from tests.cluster.test_lying_agent import BAD, GOOD, LyingScene

OLD, NEW = "0.0.9", "0.1.0"
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)")


def meet(scene: LyingScene, name: str, *, version: str, decisions: int) -> None:
    """A node's agent has started as another version, and says its state."""
    node = scene.nodes[name]
    stamped = node.journal.whole_state()
    assert isinstance(stamped.event, WholeState)
    event = replace(stamped.event, version=version, decisions=decisions)
    scene.say(name, encode(replace(stamped, epoch=stamped.epoch + 1000, event=event)))
    node.journal.epoch = stamped.epoch + 1000
    asyncio.run(scene.service.upkeep.confirm_all())


def place(scene: LyingScene, name: str) -> str:
    """Have a pod with exclusive CPUs filtered and bound; return its node, empty where none takes it."""
    pod = scheduled_pod(pod_object(name, "2"))
    scene.service.pods.on_change(None, pod)
    found = scene.service.placing.filter(filter_request(pod_object(name, "2"), [GOOD, BAD])).nodes
    if not found:
        return ""
    assert not scene.service.placing.model.bind(pod.uid, found[0], scene.now, pod.pod).error
    return str(found[0])


def start(scene: LyingScene, node: str, name: str) -> None:
    """The node starts a pod and reports it."""
    why, stamped = scene.nodes[node].admit(scheduled_pod(pod_object(name, "2")).pod)
    assert not why
    scene.say(node, encode(stamped))


def test_exclusive_pods_are_placed_all_the_while() -> None:
    """Two nodes are updated one after the other to a version whose decisions have the next number: at each step pods
    with exclusive CPUs are placed on both, and all agree; on a node of the other number one is on its way at a time."""
    scene = LyingScene()
    count = 0

    def fill() -> set[str]:
        nonlocal count
        nodes = set()
        for _ in range(4):
            count += 1
            where = place(scene, f"p{count}")
            assert where
            start(scene, where, f"p{count}")
            nodes.add(where)
            if len(nodes) < 2:
                # The other node is next: this one is full for now.
                scene.service.placing.model.confirm_node(where, confirmed=False)
        for name in (GOOD, BAD):
            scene.service.placing.model.confirm_node(name, confirmed=True)
        return nodes

    for updated in ((), (GOOD,), (GOOD, BAD)):
        for name in updated:
            meet(scene, name, version="0.2.0", decisions=DECISIONS + 1)
        assert metric(scene, "nodes_proven") == 2
        policies = [scene.service.placing.model.node(name).policy for name in (GOOD, BAD)]
        assert policies == ["observe" if name in updated else "compare" for name in (GOOD, BAD)]
        assert fill() == {GOOD, BAD}
        for node in scene.nodes.values():
            node.journal.settle(node.node.rules, node.node.state)
    assert metric(scene, 'placements_total{fate="agreed"}') == 12
    assert metric(scene, 'placements_total{fate="disputed"}') == 0


def test_one_pod_at_a_time_on_a_neighbour() -> None:
    """While one pod is on its way to a node of the next number, the next one waits for its report."""
    scene = LyingScene()
    for name in (GOOD, BAD):
        meet(scene, name, version="0.2.0", decisions=DECISIONS + 1)
    first, second = place(scene, "a"), place(scene, "b")
    assert {first, second} == {GOOD, BAD}
    assert place(scene, "c") == ""
    start(scene, first, "a")
    assert place(scene, "d") == first


def test_a_neighbour_that_decides_otherwise_is_followed() -> None:
    """Its answer is no mismatch to be reported, but another decision: its state is taken over, and it is proven."""
    scene = LyingScene()
    meet(scene, BAD, version="0.2.0", decisions=DECISIONS + 1)
    node = scene.nodes[BAD]
    stamped = other_decision(node)
    scene.say(BAD, encode(stamped))
    assert metric(scene, 'journal_events_total{outcome="otherDecision"}') == 1
    assert metric(scene, 'journal_events_total{outcome="mismatch"}') == 0
    asyncio.run(scene.service.upkeep.confirm_all())
    assert metric(scene, "nodes_proven") == 1
    whole = node.journal.whole_state()
    assert isinstance(whole.event, WholeState)
    event = replace(whole.event, version="0.2.0", decisions=DECISIONS + 1)
    scene.say(BAD, encode(replace(whole, event=event)))
    asyncio.run(scene.service.upkeep.confirm_all())
    assert metric(scene, "nodes_proven") == 2
    assert metric(scene, 'nodes_unproven{cause="outOfStep"}') == 0


def other_decision(node: HollowNode) -> Stamped:
    """The node starts a pod, and gives it what this program would give another one."""
    taken = scheduled_pod(pod_object("taken", "4")).pod
    before = node.node.state
    node.node.admit(taken)
    node.node.admit(scheduled_pod(pod_object("p", "4")).pod)
    node.node.remove("uid-taken")
    pod = scheduled_pod(pod_object("p", "4")).pod
    return node.journal.record_admission(node.node.rules, before, node.node.state, pod)


def test_a_stranger_among_versions_is_not_predicted() -> None:
    """Decisions two numbers away, or of no number from an unknown version, leave the node unproven."""
    scene = LyingScene()
    meet(scene, BAD, version="0.3.0", decisions=DECISIONS + 2)
    assert metric(scene, 'nodes_unproven{cause="otherVersion"}') == 1
    meet(scene, GOOD, version="other", decisions=0)
    assert metric(scene, 'nodes_unproven{cause="otherVersion"}') == 2
    assert place(scene, "p") == ""


# Over the wire


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("tls"), name="DNS:localhost,IP:127.0.0.1")


async def caller(token: str) -> str:
    return token


class OldAgent:
    """An agent that speaks the first protocol: its first message has no number, and it hangs up on a kind of message
    that it does not know. It states no number of its decisions."""

    def __init__(self, made: Certificates, port: int, node: str, version: str) -> None:
        self.kinds: list[str] = []
        self.plans: list[str] = []
        self._node, self._version, self._made, self._port = node, version, made, port
        self.hollow = HollowNode(node, LIKE, 5)
        self.hollow.journal.version = version

    async def run(self) -> None:
        credentials = grpc.ssl_channel_credentials(self._made.authority.read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{self._port}", credentials) as channel:
            call = channel.stream_stream(METHOD)(metadata=(("authorization", f"Bearer {self._node}"),))
            hello = {"kind": "Hello", "node": self._node, "version": self._version}
            await call.write(json.dumps(hello).encode())
            async for data in call:
                message = json.loads(data)
                self.kinds.append(message["kind"])
                if message["kind"] not in ("Ask", "Pace", "Plan", "Withdrawn"):
                    return
                if message["kind"] == "Ask":
                    whole = json.loads(encode(self.hollow.journal.whole_state()))
                    assert "decisions" not in whole["event"]
                    await call.write(json.dumps(whole).encode())


@needs_openssl
@pytest.mark.process
def test_an_older_agent(made: Certificates) -> None:
    """An agent of the protocol before is proven where its version is listed, hears no message that it does not know,
    and takes exclusive pods; one that is not listed is not predicted, and keeps its stream."""

    async def main() -> None:
        log = RecordedLog()
        journals = Journals(Rulebook(), {NEW, OLD}, caller=caller, trouble=ignore, log=log, version=NEW)
        service = wire_service(FakeClusterApi(), journals)
        port = await journals.start("127.0.0.1", 0, made.certificate.read_bytes(), made.key.read_bytes())
        agents = {name: OldAgent(made, port, name, version) for name, version in (("listed", OLD), ("not", "0.0.1"))}
        for name in agents:
            service.nodes.on_change(None, read_node(json.dumps(node_object(name)).encode()))
        tasks = [asyncio.ensure_future(agent.run()) for agent in agents.values()]
        await until(lambda: journals.is_fresh("listed"))
        await until(lambda: journals.find_unproven("not") == "otherVersion")
        pod = pod_object("p", "2")
        assert service.placing.filter(filter_request(pod, list(agents))).nodes == ["listed"]
        assert service.placing.model.node("listed").policy == "compare"
        for name, agent in agents.items():
            assert journals.has_stream(name)
            assert set(agent.kinds) <= {"Ask", "Pace"}
        assert [(one["version"], one["protocol"]) for one in log.of("stream began") if one["node"] == "listed"] == [
            (OLD, 1)
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await journals.close()

    asyncio.run(main())


async def old_service(made: Certificates, heard: list[dict[str, Any]]) -> tuple[Any, int]:
    """A service that speaks the first protocol: it asks at once, and passes over what it does not know."""

    async def follow(requests: AsyncIterator[bytes], context: Any) -> None:
        heard.append(json.loads(await context.read()))
        await context.write(b'{"kind":"Ask","epoch":0,"sequence":-1,"state":true}')
        while (data := await context.read()) is not grpc.aio.EOF:
            heard.append(json.loads(data))

    server = grpc.aio.server()
    method = grpc.stream_stream_rpc_method_handler(follow)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {FOLLOW: method}),))
    pair = (made.key.read_bytes(), made.certificate.read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    return server, port


class NewAgent:
    """This program's agent, and what it said."""

    def __init__(self, made: Certificates, folder: Path, port: int) -> None:
        (folder / "token").write_text("n")
        self.troubles: list[str] = []
        self.began: list[tuple[str, int]] = []
        self.journal = NodeJournal(version="9.9.9")
        self.journal.begin(Node.of(LIKE.rules, LIKE.state))
        self.stream = JournalStream(
            f"127.0.0.1:{port}", self.journal, node="n", token_file=folder / "token", server_name="localhost",
            authority=AuthorityFile(made.authority, "cluster.caFile"),
            trouble=lambda where, what: self.troubles.append(what),
            began=lambda target, version, protocol: self.began.append((version, protocol)),
        )  # fmt: skip

    async def during(self, test: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(self.stream.run(BackOff(0.01, 0.1)))
        try:
            await test()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@needs_openssl
@pytest.mark.process
def test_an_older_service(made: Certificates, tmp_path: Path) -> None:
    """An agent beside a service of the protocol before sends it its state, and knows that it is old."""
    heard: list[dict[str, Any]] = []

    async def main() -> None:
        server, port = await old_service(made, heard)
        agent = NewAgent(made, tmp_path, port)

        async def test() -> None:
            await until(lambda: len(heard) > 1)
            await until(lambda: agent.journal.streams)
            assert agent.began == [("", 1)]

        await agent.during(test)
        await server.stop(None)

    asyncio.run(main())
    hello, state = heard[:2]
    assert hello == {"kind": "Hello", "node": "n", "version": "9.9.9", "protocol": PROTOCOL}
    assert (state["event"]["type"], state["event"]["decisions"]) == ("State", DECISIONS)


@needs_openssl
@pytest.mark.process
def test_equal_decisions_need_no_list(made: Certificates, tmp_path: Path) -> None:
    """An agent of a version that the service has never heard of, with the same number, is predicted as its own; both
    know the version of the other."""

    async def main() -> None:
        log = RecordedLog()
        journals = Journals(Rulebook(), {NEW}, caller=caller, trouble=ignore, log=log, version=NEW)
        service = wire_service(FakeClusterApi(), journals)
        service.nodes.on_change(None, read_node(json.dumps(node_object("n")).encode()))
        port = await journals.start("127.0.0.1", 0, made.certificate.read_bytes(), made.key.read_bytes())
        agent = NewAgent(made, tmp_path, port)

        async def test() -> None:
            await until(lambda: journals.is_fresh("n"))
            assert agent.began == [(NEW, PROTOCOL)]
            assert log.of("stream began")[0]["version"] == "9.9.9"
            assert service.placing.model.node("n").policy == "compare"

        await agent.during(test)
        await journals.close()

    asyncio.run(main())


@needs_openssl
@pytest.mark.process
def test_protocols_that_do_not_meet(made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that does not speak an agent's protocol any more says so to it, with both numbers, and so does an agent
    to a service that is too old; neither goes on."""

    async def main() -> None:
        troubles: list[str] = []
        journals = Journals(
            Rulebook(), {NEW}, caller=caller, trouble=lambda where, what: troubles.append(what), version=NEW
        )
        port = await journals.start("127.0.0.1", 0, made.certificate.read_bytes(), made.key.read_bytes())
        agent = NewAgent(made, tmp_path, port)

        async def refused() -> None:
            await until(lambda: agent.troubles and troubles)
            text = f"the agent (9.9.9) speaks protocol {PROTOCOL}, this service ({NEW}) speaks 99 or newer"
            assert f"FAILED_PRECONDITION: {text}" in agent.troubles[0]
            assert troubles[0].endswith(text)
            assert not journals.nodes

        with monkeypatch.context() as now:
            now.setattr(admission, "OLDEST_PROTOCOL", 99)
            await agent.during(refused)
        await journals.close()

        server, port = await old_service(made, [])
        late = NewAgent(made, tmp_path, port)

        async def too_old() -> None:
            await until(lambda: late.troubles)
            assert "the service (older) speaks protocol 1, this agent 99 or newer" in late.troubles[0]
            assert not late.journal.streams

        monkeypatch.setattr("podslice.agent.reporter.OLDEST_PROTOCOL", 99)
        await late.during(too_old)
        await server.stop(None)

    asyncio.run(main())


@needs_openssl
@pytest.mark.process
def test_what_cannot_be_read(made: Certificates) -> None:
    """A newer agent whose setup has a field that this service does not know keeps its stream, and its node is counted
    as of another version; the same from an agent of our own version is a fault, and ends the stream."""

    class NewerAgent(OldAgent):
        async def run(self) -> None:
            encoded = encode(self.hollow.journal.whole_state())
            strange = json.loads(encoded)
            strange["event"]["setup"]["ofTomorrow"] = 1
            credentials = grpc.ssl_channel_credentials(self._made.authority.read_bytes())
            async with grpc.aio.secure_channel(f"127.0.0.1:{self._port}", credentials) as channel:
                call = channel.stream_stream(METHOD)(metadata=(("authorization", f"Bearer {self._node}"),))
                await call.write(json.dumps({"kind": "Hello", "node": self._node, "version": self._version}).encode())
                await call.write(json.dumps(strange).encode())
                async for _ in call:
                    pass

    async def main() -> None:
        troubles, log = list[str](), RecordedLog()
        journals = Journals(
            Rulebook(), {NEW}, caller=caller, trouble=lambda where, what: troubles.append(f"{where}: {what}"), log=log
        )
        port = await journals.start("127.0.0.1", 0, made.certificate.read_bytes(), made.key.read_bytes())
        agents = [NewerAgent(made, port, "tomorrow", "0.2.0"), NewerAgent(made, port, "today", NEW)]
        tasks = [asyncio.ensure_future(agent.run()) for agent in agents]
        await until(lambda: journals.find_unproven("tomorrow") == "otherVersion")
        await until(lambda: log.of("stream ended") and not journals.has_stream("today"))
        assert journals.has_stream("tomorrow")
        (trouble,) = troubles
        assert trouble.startswith("otherVersion: tomorrow: cannot be read: ")
        assert "ofTomorrow" in trouble
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await journals.close()

    asyncio.run(main())
