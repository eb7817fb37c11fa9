"""The interval of beats, by the number of agents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from podslice.cluster.journal import listener
from podslice.cluster.journal.pace import LONGEST, SHORTEST, STALE_SECONDS, BeatPace
from podslice.replica.stream_messages import OPTIONS, Pace, decode_down, encode_message
from podslice.values.errors import InputError
from tests.replica.test_streams import Agent, Certificates, Service, certificates, met, served, until

__all__ = ["certificates"]


def rates(pace: BeatPace, streams: int) -> Iterator[float]:
    """Beats a second while so many agents connect, one after the other."""
    for number in range(1, streams + 1):
        pace.follow(number, 0.0)
        yield number / pace.seconds


def test_few_agents_speak_every_three_seconds() -> None:
    pace = BeatPace()
    assert max(rates(pace, 1500)) <= 500
    assert (pace.seconds, pace.patience(0.0)) == (SHORTEST, STALE_SECONDS)


@pytest.mark.parametrize(("streams", "most"), [(5_000, 10.0), (15_000, 30.0), (100_000, LONGEST)])
def test_many_agents_speak_no_more_often_than_can_be_heard(streams: int, most: float) -> None:
    """Up to 15 000 nodes all beats together are some 500 a second, and no silence is longer than three beats."""
    pace = BeatPace()
    assert max(list(rates(pace, streams))[:15_000]) <= 500 * 1.25
    assert most / 1.25 <= pace.seconds <= most
    assert pace.patience(0.0) == pytest.approx(pace.seconds * STALE_SECONDS / SHORTEST)


def test_nobody_is_silent_before_it_can_know_better() -> None:
    """Most agents have gone: those that are left are to speak more often, and hear of it with their next beat."""
    pace = BeatPace()
    for number in range(15_000):
        pace.follow(number, 0.0)
    slow = pace.patience(0.0)
    pace.follow(10, 100.0)
    assert pace.seconds == SHORTEST
    assert pace.patience(100.0 + slow - 0.1) == slow
    assert pace.patience(100.0 + slow) == STALE_SECONDS


@pytest.mark.process
def test_an_agent_keeps_the_pace_it_is_told(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says no more than that, and its events at once as ever."""

    async def test(service: Service) -> None:
        service.journals.pace = BeatPace(most=0.05)
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        entry = service.journals.nodes["n1"]
        await until(lambda: entry.stream is not None and entry.stream.pace == 20.0)
        await asyncio.sleep(0.3)
        heard = entry.last_message
        await asyncio.sleep(0.5)
        assert entry.last_message == heard, "a beat every tenth of a second no longer"
        agent.admit("p1")
        await until(lambda: met(service, agent))
        assert entry.last_message > heard
        await agent.close()

    served(certificates, test, monkeypatch)


class Wire:
    """A connection between an agent and the service, until it is cut and nothing passes any more, without notice to
    either."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._ends: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        self._open.clear()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        further, there = await asyncio.open_connection("127.0.0.1", self._port)
        self._ends += [writer, there]
        await asyncio.gather(self._passed(reader, there), self._passed(further, writer))

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(data)

    async def close(self) -> None:
        assert self._server is not None
        self._open.set()
        self._server.close()
        for one in self._ends:
            one.close()
        await asyncio.gather(*(one.wait_closed() for one in self._ends), return_exceptions=True)
        await asyncio.sleep(0.1)


def test_a_connection_that_is_gone_shows_whatever_the_pace(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pings are not answered, long before the agent would count as silent; with a tenth of the seconds."""
    monkeypatch.setattr(
        listener, "_OPTIONS", tuple((name, value // 10 if name.endswith("_ms") else value) for name, value in OPTIONS)
    )

    async def test(service: Service) -> None:
        service.journals.pace = BeatPace(most=0.01)
        wire = Wire(service.port)
        whole, service.port = service.port, await wire.start()
        agent = Agent(service, tmp_path)
        await until(lambda: met(service, agent))
        assert service.journals.pace.seconds == LONGEST
        wire.cut()
        await until(lambda: not service.journals.has_stream("n1"))
        service.port = whole
        await agent.close()
        await wire.close()

    served(certificates, test, monkeypatch)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 61.0, -1.0, float("1e300")])
def test_no_service_makes_an_agent_silent_or_restless(seconds: float) -> None:
    assert decode_down(encode_message(Pace(20.0))) == Pace(20.0)
    with pytest.raises(InputError):
        decode_down(encode_message(Pace(seconds)))
