"""The stream between agents and the service, with real gRPC and TLS on the loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import jsonschema
import pytest
from e2e.certificates import OPENSSL, Certificates, make
from release.schemas import STREAM, stream_text

from podslice import Node
from podslice.agent.journal import NodeJournal
from podslice.agent.reporter import JournalStream, ServiceStreams
from podslice.cluster.journal import journals as module
from podslice.cluster.journal import listener
from podslice.cluster.journal.callers import CallerError
from podslice.cluster.journal.entries import MOST_WAITING, NodeStream
from podslice.cluster.journal.journals import Journals
from podslice.node.holding import ContainerHolding, Holding, digest
from podslice.replica.events import PodRefused, Stamped
from podslice.replica.replica import ApplyResult
from podslice.replica.rulebook import Rulebook
from podslice.replica.shared_values import ReadWholeState, SharedValues
from podslice.replica.stream_messages import (
    METHOD,
    Ask,
    Beat,
    Hello,
    Pace,
    PlanGiven,
    PlanWithdrawn,
    Up,
    decode_down,
    decode_up,
    encode_message,
)
from podslice.service.pacing import BackOff
from podslice.service.trust import AuthorityFile
from podslice.values.errors import InputError
from tests.clock import until
from tests.cluster.recorded_log import RecordedLog
from tests.conftest import make_node, make_pod

VERSION = "test"
pytestmark = [
    pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("tls"))


async def caller(token: str) -> str:
    """The node that the token names."""
    name, _, node = token.partition(" of ")
    if name != "agent":
        raise CallerError("the token is not valid")
    return node


class Service:
    """`podslice cluster`'s half, and what it heard."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self.troubles: list[str] = []
        self.log = RecordedLog()
        self.applied: list[tuple[str, Stamped, ApplyResult]] = []
        self.port = 0
        self.journals = self._new()

    def _new(self) -> Journals:
        made = Journals(
            Rulebook(), {VERSION}, caller=caller, trouble=lambda what, why: self.troubles.append(why), log=self.log
        )
        made.events.applied.add(lambda *news: self.applied.append(news))
        return made

    async def start(self) -> None:
        tls = self.certificates
        self.port = await self.journals.start(
            "127.0.0.1", self.port, tls.certificate.read_bytes(), tls.key.read_bytes()
        )

    async def restart(self) -> None:
        """Start another service, which knows nothing."""
        await self.journals.close()
        self.journals = self._new()
        await self.start()


class Agent:
    """An agent's half: a node, its journal, and its stream."""

    def __init__(self, service: Service, folder: Path, node: str = "n1", token: str = "agent of n1") -> None:
        self.node = make_node()
        self.journal = NodeJournal(version=VERSION)
        self.journal.begin(self.node)
        self.troubles: list[str] = []
        file = folder / f"token-{node}"
        file.write_text(token)
        self.stream = JournalStream(
            f"127.0.0.1:{service.port}",
            self.journal,
            node=node,
            token_file=file,
            authority=AuthorityFile(service.certificates.authority, "cluster.caFile"),
            trouble=lambda what, why: self.troubles.append(why),
        )
        self.task = asyncio.ensure_future(self.stream.run(BackOff(0.05, 0.1)))

    def admit(self, uid: str) -> None:
        before, pod = self.node.state, make_pod(uid, ("c", "2"))
        self.journal.record_decision(before, pod, self.node.admit(pod))

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def served(
    certificates: Certificates, test: Callable[[Service], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> Service:
    monkeypatch.setattr(module, "_ASK_SECONDS", 0.0)
    monkeypatch.setattr("podslice.agent.reporter.BEAT_SECONDS", 0.1)
    service = Service(certificates)

    async def main() -> None:
        await service.start()
        try:
            await test(service)
        finally:
            await service.journals.close()

    asyncio.run(main())
    return service


def met(service: Service, agent: Agent, name: str = "n1") -> bool:
    entry = service.journals.nodes.get(name)
    return entry is not None and service.journals.is_fresh(name) and entry.replica.digest == digest(agent.node.state)


@pytest.mark.process
def test_events_arrive_and_digests_meet(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admissions on the node are in the replica, each with equal digests, without a whole state in between."""

    async def test(service: Service) -> None:
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        for number in range(5):
            agent.admit(f"p{number}")
        await until(lambda: met(service, agent))
        assert agent.journal.streams == {agent.stream.target}
        await agent.close()
        assert agent.journal.streams == set()
        await until(lambda: not service.journals.is_fresh("n1"))

    service = served(certificates, test, monkeypatch)
    assert [applied.outcome for _, _, applied in service.applied] == ["adopted", *["equal"] * 5]


def test_what_was_said_is_not_kept(certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that waits for its agent's next words does not hold on to the last ones: whole states are large, and at
    a start all agents say them."""
    left: list[int] = []

    async def test(service: Service) -> None:
        monkeypatch.setattr("podslice.agent.reporter.BEAT_SECONDS", 1e6)
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        assert isinstance(service.applied[0][1].event, ReadWholeState)
        service.applied.clear()
        await asyncio.sleep(0)
        gc.collect()
        left.append(sum(type(one) is ReadWholeState for one in gc.get_objects()))
        await agent.close()

    gc.collect()
    assert not any(type(one) is ReadWholeState for one in gc.get_objects())
    served(certificates, test, monkeypatch)
    assert left == [0]


def test_service_and_stream_come_back(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is started again gets the state; a stream that is cut gets what is missing, and no more."""

    async def test(service: Service) -> None:
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        await service.restart()
        agent.admit("p1")
        await until(lambda: met(service, agent))
        await agent.close()
        await until(lambda: not service.journals.is_fresh("n1"))
        heard = len(service.applied)
        agent.admit("p2")
        agent.task = asyncio.ensure_future(agent.stream.run(BackOff(0.05, 0.1)))
        await until(lambda: met(service, agent))
        assert [applied.outcome for _, _, applied in service.applied[heard:]] == ["equal"]
        await agent.close()

    served(certificates, test, monkeypatch)


def test_a_mismatch_heals_by_itself(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that did something else than the core would is asked for its state, and digests meet again."""

    async def test(service: Service) -> None:
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        before = agent.node.state
        agent.node.admit(make_pod("other", ("c", "4")))
        agent.journal.record_decision(before, make_pod("p", ("c", "2")), make_node().admit(make_pod("p", ("c", "2"))))
        await until(lambda: met(service, agent))
        outcomes = [applied.outcome for _, _, applied in service.applied]
        assert outcomes[:3] == ["adopted", "mismatch", "adopted"]
        assert set(outcomes[3:]) <= {"doubled"}, "a beat in between may ask once more"
        assert service.applied[2][2].mine is service.applied[1][2].mine
        assert service.troubles[1:] == [
            "n1: shared pool: 0-1,4-31 here, 0-1,6-31 on the node",
            "n1: pod p: (CPUs 2-3) here, nothing on the node",
            "n1: pod other: nothing here, (CPUs 2-5) on the node",
        ]
        await agent.close()

    served(certificates, test, monkeypatch)


def test_plans_go_down(certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reaches the agent, and a withdrawn one is gone there."""
    plan = PlanGiven("p1", Holding((ContainerHolding(3),)), 1, 2, "x")

    async def test(service: Service) -> None:
        assert not service.journals.send_plan("n1", plan)
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        assert service.journals.send_plan("n1", plan)
        await until(lambda: agent.journal._plans.get("p1") == plan)
        service.journals.send_plan("n1", PlanWithdrawn("p1"))
        await until(lambda: not agent.journal._plans)
        await agent.close()

    served(certificates, test, monkeypatch)


@pytest.mark.parametrize(
    ("token", "node", "said"),
    [
        ("stolen", "n1", "the token is not valid"),
        ("agent of n2", "n1", "is the agent of n2, and speaks for 'n1'"),
        ("", "n1", "holds no token"),
    ],
)
def test_an_agent_speaks_for_its_own_node_only(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, node: str, said: str
) -> None:
    """Without a token, with one that does not count, or for another node, nothing is taken in, and both sides say."""

    async def test(service: Service) -> None:
        agent = Agent(service, tmp_path, node, token)
        await until(lambda: len(agent.troubles) > 1)
        assert said in agent.troubles[0]
        assert service.journals.nodes == {}
        await agent.close()

    served(certificates, test, monkeypatch)


def test_a_lying_agent_breaks_its_own_node_only(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nonsense ends the stream of who sends it; the other node's replica goes on."""

    async def lie(service: Service, *messages: bytes) -> str:
        credentials = grpc.ssl_channel_credentials(certificates.authority.read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{service.port}", credentials) as channel:
            call = channel.stream_stream(METHOD)(metadata=(("authorization", "Bearer agent of n2"),), timeout=20)
            try:
                for message in (encode_message(Hello("n2", VERSION)), *messages):
                    await call.write(message)
                await call.done_writing()
                async for _ in call:
                    pass
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return (await call.code()).name
            return "OK"

    async def test(service: Service) -> None:
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        await lie(service, b"{")
        await lie(service, encode_message(Hello("n2", VERSION)))
        await lie(service, encode_message(Beat(5, 10**15, "", "")))
        assert not service.journals.is_fresh("n2")
        agent.admit("p1")
        await until(lambda: met(service, agent))
        await agent.close()

    service = served(certificates, test, monkeypatch)
    ends = [str(fields["cause"]) for fields in service.log.of("stream ended") if fields["node"] == "n2"]
    assert "is not JSON" in ends[0]
    assert ends[1:] == ["InputError: message: says again who it is", "the agent ended it"]


def test_a_flood_waits_at_its_sender(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that sends more than is processed is read no faster: its messages stay with it and fill no memory here,
    and meanwhile another agent is read as before."""
    monkeypatch.setattr(module, "_REST", 1e9)
    flood = encode_message(Stamped(7, 1, "", "", PodRefused("u", "r", "x" * 100_000)))
    written: list[int] = []

    async def test(service: Service) -> None:
        credentials = grpc.ssl_channel_credentials(certificates.authority.read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{service.port}", credentials) as channel:
            call = channel.stream_stream(METHOD)(metadata=(("authorization", "Bearer agent of n2"),))
            await call.write(encode_message(Hello("n2", VERSION)))

            async def pour() -> None:
                for number in range(1000):
                    await call.write(flood)
                    written.append(number)

            pouring = asyncio.ensure_future(pour())
            await until(lambda: len(service.applied) == 1)
            monkeypatch.setattr(module, "_REST", 0.0)
            agent = Agent(service, tmp_path)
            for number in range(5):
                await until(lambda: met(service, agent))
                agent.admit(f"p{number}")
            await until(lambda: met(service, agent))
            assert not pouring.done()
            assert len(written) < 300
            assert [name for name, _, _ in service.applied].count("n2") == 1
            pouring.cancel()
            await agent.close()

    served(certificates, test, monkeypatch)


def test_more_streams_than_may_be(certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a stream is refused at once, and comes in when another has ended."""
    monkeypatch.setattr(listener, "MOST_STREAMS", 1)

    async def test(service: Service) -> None:
        one, other = Agent(service, tmp_path), Agent(service, tmp_path, "n2", "agent of n2")
        await until(lambda: met(service, one) or met(service, other, "n2"))
        first, second, name = (one, other, "n2") if met(service, one) else (other, one, "n1")
        await until(lambda: any("RESOURCE_EXHAUSTED" in why for why in second.troubles))
        await first.close()
        await until(lambda: met(service, second, name))
        await second.close()

    served(certificates, test, monkeypatch)


def test_plans_that_nobody_takes() -> None:
    """An agent that does not read costs so many plans and no more; the latest are kept."""
    stream = NodeStream()
    for number in range(5000):
        stream.put(PlanWithdrawn(str(number)))
    kept = [message for message in stream._waiting if isinstance(message, PlanWithdrawn)]
    assert [one.uid for one in kept] == [str(number) for number in range(5000 - MOST_WAITING, 5000)]


def test_a_silent_node_is_not_fresh(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds without a word and nothing is said for the node any more, though its stream is there."""
    now = [0.0]
    node = make_node()
    journal = NodeJournal(version=VERSION)
    journal.begin(node)
    assert journal.journal is not None
    service = Journals(Rulebook(), {VERSION}, caller=caller, trouble=lambda what, why: None, clock=lambda: now[0])
    service.seed("n1", journal.journal.whole_state())
    assert not service.is_fresh("n1"), "an object of the API server is not a stream"
    entry = service.nodes["n1"]
    entry.stream, entry.last_message = module.NodeStream(), 0.0
    assert service.is_fresh("n1")
    now[0] = 10.1
    assert not service.is_fresh("n1")


def test_a_large_message_is_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large state delays no other work while it is decoded; a small one is decoded at once."""
    readers: list[int] = []
    decoded = module.decode_message

    def reading(data: bytes, common: SharedValues | None = None) -> Up:
        readers.append(threading.get_ident())
        return decoded(data, common)

    monkeypatch.setattr(module, "decode_message", reading)
    journals = Journals(Rulebook(), {VERSION}, caller=caller, trouble=lambda what, why: None)
    data = encode_message(Beat(1, 2, "a", "b"))
    large = data + b" " * module.LARGE_MESSAGE
    assert asyncio.run(journals._message(data)).message == Beat(1, 2, "a", "b")
    assert asyncio.run(journals._message(large)).message == Beat(1, 2, "a", "b")
    assert readers[0] == threading.get_ident() != readers[1]


def test_messages_of_the_stream_are_read_as_written() -> None:
    """Every message comes out as it went in; what is none is one typed error."""
    plan = PlanGiven("p", Holding((ContainerHolding(1 << 80),), pod_cpus=7), 3, 4, "x")
    for up in (Hello("n", "v"), Beat(1, 2, "a", "b")):
        assert decode_up(encode_message(up)) == up
    for down in (Ask(), Ask(1, 2, True), plan, PlanWithdrawn("p")):
        assert decode_down(encode_message(down)) == down
    for data in (b"", b"{}", b'{"kind":"Ask","epoch":"x"}', b"\xff\xfe", encode_message(Ask())):
        with pytest.raises(InputError, match="message"):
            decode_up(data)


def test_a_node_of_the_cluster_that_is_gone_is_forgotten() -> None:
    """Nothing stays of a node that left."""
    node = Node.of(make_node().rules, make_node().state)
    journal = NodeJournal(version=VERSION)
    journal.begin(node)
    assert journal.journal is not None
    service = Journals(Rulebook(), {VERSION}, caller=caller, trouble=lambda what, why: None)
    service.seed("n1", journal.journal.whole_state())
    service.forget("n1")
    assert service.nodes == {}


def test_every_replica_of_the_service_has_a_stream(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with several addresses has a stream to each; one that goes is forgotten, one that cannot be resolved is
    reported as a trouble."""
    other = Service(certificates)

    async def test(service: Service) -> None:
        await other.start()
        agent = Agent(service, tmp_path)
        await agent.close()
        addresses = [f"127.0.0.1:{service.port}", f"127.0.0.1:{other.port}"]

        async def resolve(host: str, port: int) -> list[str]:
            assert (host, port) == ("podslice-cluster.svc", 9097)
            if not addresses:
                raise OSError(None, "no such name")
            return list(addresses)

        def stream(address: str, name: str) -> JournalStream:
            assert name == "podslice-cluster.svc"
            agent.stream.target = address
            return JournalStream(
                address, agent.journal, node="n1", token_file=tmp_path / "token-n1",
                authority=AuthorityFile(certificates.authority, "cluster.caFile"),
                server_name="127.0.0.1", trouble=lambda what, why: None,
            )  # fmt: skip

        troubles: list[str] = []
        streams = ServiceStreams(
            "podslice-cluster.svc:9097", stream, trouble=lambda what, why: troubles.append(why), resolve=resolve,
            sleep=lambda seconds: asyncio.sleep(0.05),
        )  # fmt: skip
        task = asyncio.ensure_future(streams.run())
        await until(lambda: met(service, agent) and met(other, agent))
        addresses.pop()
        await until(lambda: not other.journals.is_fresh("n1"))
        assert met(service, agent)
        addresses.clear()
        await until(lambda: troubles)
        assert troubles[0] == "podslice-cluster.svc:9097: no such name"
        assert service.journals.is_fresh("n1"), "a name server that is away cuts no stream"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: agent.journal.listeners == [])
        await other.journals.close()

    served(certificates, test, monkeypatch)


def test_messages_are_those_of_the_shipped_schema() -> None:
    """Every recorded event and every message of the stream is valid by the schema that the package ships, which is that
    of the types."""
    assert STREAM.read_text() == stream_text()
    validator = jsonschema.Draft202012Validator(json.loads(STREAM.read_text()))
    recorded = (Path(__file__).parent / "events.jsonl").read_bytes().splitlines()
    plan = PlanGiven("p", Holding((ContainerHolding(1 << 80),), pod_cpus=7), 3, 4, "x")
    said = [Hello("n", "v"), Beat(1, 2, "a", "b"), Ask(), Pace(30.0), plan, PlanWithdrawn("p")]
    for data in (*recorded, *map(encode_message, said)):
        validator.validate(json.loads(data))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"kind": "Ask", "epoch": "one"})
