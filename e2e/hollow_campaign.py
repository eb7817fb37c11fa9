"""Rounds of pods that come and go on a hollow cluster while everything around them fails, for any length of time.

    python -m e2e.hollow --campaign rounds.jsonl --nodes 100 --placements 1000000

Each round is a line of the file: what it was drawn from, its faults, how long digests took to meet after each, and what
was promised and not kept. A campaign goes on where its file ends. Promised in every round: no pod is refused by a node,
no CPU has two owners, holds return to zero, and digests meet within 30 seconds of any fault.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import msgspec

from e2e.hollow_cluster import SCHEDULER, HollowCluster, Load, Progress, hollow, in_parallel
from e2e.hollow_nodes import Fault
from podslice.cluster.apiclient import HTTPClusterApi
from podslice.service.answers import GoneError, ObjectChange

MEETING_SECONDS = 30.0
ROUND = 400
"""Pods of a round."""
_SIZES = (2, 4, 4, 6, 8, 8, 10, 12, 14)


class CampaignRound(msgspec.Struct, frozen=True):
    """The result of a round. `agreed`, `disputed`: verdicts of the services that saw the answers. `met`: seconds after
    each fault until every digest matched its node's."""

    number: int
    seed: int
    nodes: int
    placements: int
    agreed: int
    disputed: int
    refused: int
    faults: list[str]
    met: list[float]
    problems: list[str]


class StaleApi(HTTPClusterApi):
    """An API server whose watches can be made too old (410)."""

    def __init__(self, config: object) -> None:
        super().__init__(config)
        self.stale = 0

    async def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        """See `ClusterApi`."""
        known = self.stale
        async with aclosing(super().watch(path, selector, version)) as changes:  # type: ignore[type-var]
            async for change in changes:
                yield change
                if self.stale != known:
                    raise GoneError


class Faults:
    """The faults of a cluster, by name."""

    def __init__(self, cluster: HollowCluster, api: StaleApi, draw: random.Random) -> None:
        self._cluster, self._api, self._draw = cluster, api, draw
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "service killed": self._kill, "API server restarted": self._restart, "410": self._stale,
            "clock jumps": self._jump, "agents restarted": self._agents, "line breaks": self._line,
        }  # fmt: skip

    async def _kill(self) -> None:
        port = await self._cluster.kill_service()
        await asyncio.sleep(self._draw.uniform(0.0, 1.0))
        await self._cluster.start_service(port)

    async def _restart(self) -> None:
        plane = self._cluster.plane
        await asyncio.to_thread(plane.stop, "kube-apiserver")
        await asyncio.to_thread(plane.start_server)

    async def _stale(self) -> None:
        self._api.stale += 1

    async def _jump(self) -> None:
        self._cluster.ahead += 3600.0

    async def _agents(self) -> None:
        nodes = self._cluster.nodes.nodes
        for name in self._draw.sample(sorted(nodes), len(nodes) // 4):
            nodes[name].restart()

    async def _line(self) -> None:
        self._cluster.journals.fault = Fault(lose=self._draw.choice((3, 7)), double=5)


class Campaign:
    """Run rounds on one cluster, and pass each to `write`."""

    def __init__(self, cluster: HollowCluster, api: StaleApi, *, seed: int, pods: int = ROUND) -> None:
        self.cluster, self.seed, self.pods = cluster, seed, pods
        self._api = api

    async def round(self, number: int) -> CampaignRound:
        """Run a round: pods come, half of them go again, and two faults happen in between."""
        draw, cluster = random.Random(f"{self.seed}/{number}"), self.cluster
        cluster.nodes.admitted = 0
        cluster.nodes.refused.clear()
        before = cluster.counts()
        load = Load("campaign", {f"r{number}-{pod}": draw.choice(_SIZES) for pod in range(self.pods)}, lives=2)
        progress = asyncio.ensure_future(Progress(cluster, load, SCHEDULER).run())
        kinds, faults, met = Faults(cluster, self._api, draw).kinds, draw.sample(sorted(KINDS), 2), []
        for at, kind in zip(sorted(draw.sample(range(self.pods * 3 // 4), 2)), faults, strict=True):
            while cluster.nodes.admitted < at and not progress.done():
                await asyncio.sleep(0.02)
            await kinds[kind]()
            if kind == "line breaks":
                while cluster.nodes.admitted < at + self.pods // 8 and not progress.done():
                    await asyncio.sleep(0.02)
                cluster.journals.fault = Fault()
            met.append(await self._meeting())
        result = await progress
        problems = list(cluster.broken_promises())
        problems += [f"{result.running} of {result.pods} run"] if result.running < result.pods else []
        problems += [f"refused: {one}" for one in cluster.nodes.refused[:3]]
        problems += [f"digests met {one:.0f} s after {kind}" for one, kind in zip(met, faults, strict=True)
                     if one > MEETING_SECONDS]  # fmt: skip
        await self._clear()
        binding_outcomes = cluster.counts() - before
        return CampaignRound(
            number, self.seed, len(cluster.nodes.nodes), result.running, binding_outcomes["agreed"],
            binding_outcomes["disputed"], len(cluster.nodes.refused), faults, met, problems,
        )  # fmt: skip

    async def _meeting(self) -> float:
        """Wait until every digest matches its node's, and return the seconds."""
        began = time.monotonic()
        while list(self.cluster.apart()) and time.monotonic() - began < 4 * MEETING_SECONDS:
            await asyncio.sleep(0.05)
        return round(time.monotonic() - began, 1)

    async def _clear(self) -> None:
        """Remove the round's pods."""
        cluster = self.cluster
        names = [one.name for one in cluster.watch.objects.values()]
        await asyncio.to_thread(in_parallel, cluster.plane, cluster.delete_by, names)
        while cluster.nodes.runs:
            await asyncio.sleep(0.1)


KINDS = ("service killed", "API server restarted", "410", "clock jumps", "agents restarted", "line breaks")


async def campaign(file: Path, *, nodes: int, placements: int, seed: int, pods: int = ROUND) -> list[CampaignRound]:
    """Run rounds, after those of the file, until there are `placements` placements."""
    decoder = msgspec.json.Decoder(CampaignRound)
    rounds = [decoder.decode(line) for line in file.read_bytes().splitlines()] if file.exists() else []
    names = [f"n{number:05d}" for number in range(nodes)]
    while sum(one.placements for one in rounds) < placements:
        with tempfile.TemporaryDirectory(prefix="podslice-campaign-") as folder:
            async with hollow(Path(folder), names, service=True, client=StaleApi, nominating_nodes=0) as cluster:
                assert isinstance(cluster.api, StaleApi)
                runs = Campaign(cluster, cluster.api, seed=seed, pods=pods)
                for _ in range(_ROUNDS_OF_A_CLUSTER):
                    found = await runs.round(len(rounds))
                    rounds.append(found)
                    with file.open("ab") as out:
                        out.write(msgspec.json.encode(found) + b"\n")
                    print(f"{found.number}: {found.placements} {found.faults} {found.met} {found.problems}", flush=True)
                    if sum(one.placements for one in rounds) >= placements:
                        break
    return rounds


_ROUNDS_OF_A_CLUSTER = 50
"""Events of the scheduler stay for an hour; so a cluster is replaced now and then."""


def summary(rounds: list[CampaignRound]) -> str:
    """Summarise a campaign in a line."""
    placements, agreed = sum(one.placements for one in rounds), sum(one.agreed for one in rounds)
    latest = max((seconds for one in rounds for seconds in one.met), default=0.0)
    problems = [problem for one in rounds for problem in one.problems]
    disputed, refused = sum(one.disputed for one in rounds), sum(one.refused for one in rounds)
    faults = sum(len(one.faults) for one in rounds)
    return (
        f"{len(rounds)} rounds, {placements} placements, {refused} refused, {agreed} as expected, {disputed} not, "
        f"{faults} faults, digests met within {latest:.1f} s; "
        f"{len(problems)} broken promises{': ' + problems[0] if problems else ''}"
    )
