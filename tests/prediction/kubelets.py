"""Real kubelets with their own managers, observed by their files, beside `podslice cluster` and kube-scheduler.

    python -m tests.prediction.kubelets --pods 300 --kubelets 3      # pods of 1 to 7 CPUs that come and go; and alone
    python -m tests.prediction.kubelets --pods 10000 --alone 1000 --kubelets 6 --file pods.jsonl    # goes on in pieces

The kubelets are on made-up machines of two NUMA nodes (`prediction`), the scheduler and the service are the real ones.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version as installed_version
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
from e2e.controlplane import Json, Settings
from e2e.programs import Programs, find_programs
from e2e.scheduling import PATIENCE, Pods, eventually, extender, pod, start_scheduler_named
from lightkube.config.kubeconfig import KubeConfig
from tools.prediction.kubelet import RealKubelet
from tools.prediction.machine import Shape
from tools.prediction.runtime import FakeRuntime

from podslice import load_machine
from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.api_server.apiserver import ApiSource
from podslice.agent.devices.observeddevices import ObservedDevices
from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.reporter import JournalStream
from podslice.config.kubelet import KubeletConfig
from podslice.service.pacing import BackOff
from podslice.service.supervise import Supervisor
from podslice.service.trust import AuthorityFile
from tests.conformance.beside import Beside, agent_token, service_beside

OURS, ALONE = "podslice", "default-scheduler"
SHAPE = Shape("two nodes", sockets=2, nodes=2, cores=4)
"""Without CPU 0, which is reserved, 7 CPUs on one NUMA node and 8 on the other."""
FREE = 15
_SIZES = (1, 2, 3, 3, 4, 4, 5, 6, 7)
_RUNNING, _WAITS = "Running", "Unschedulable"
_LOOK_SECONDS = 0.1
ENOUGH = 0.8
"""Of all CPUs, from which on pods leave."""
_KUBELET = {
    "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod", "nodeStatusUpdateFrequency": "10s", "cpuManagerReconcilePeriod": "10s",
}  # fmt: skip
"""Their periods are a kubelet's own."""
_CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0",
    topology_manager_policy="single-numa-node",
    topology_manager_scope="pod",
)
_PLUGINS = "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"


class Kubelets(NamedTuple):
    """A control plane with the service beside it, and the kubelets that run, by name."""

    beside: Beside
    running: dict[str, RealKubelet]
    folder: Path

    @property
    def pods(self) -> Pods:
        return Pods(self.beside.api)

    def has(self, line: str) -> bool:
        """Whether the service's metrics say so."""
        return line in self.beside.asked("/metrics")


@contextmanager
def kubelets(programs: Programs, folder: Path, names: tuple[str, ...]) -> Iterator[Kubelets]:
    """Kubelets that are ready, and two schedulers: one with the service, and one alone."""
    settings = Settings(nodes=names, api_server=(_PLUGINS,))
    with ExitStack() as stack:
        beside = stack.enter_context(service_beside(folder, settings=settings))
        running = {}
        for name in names:
            own = folder / name
            own.mkdir()
            runtime = stack.enter_context(FakeRuntime(own / "cri.sock"))
            config = beside.plane.kubeconfig(f"system:node:{name}")
            kubelet = RealKubelet(programs.hyperkube, config, name, folder=own, machine=SHAPE, runtime=runtime)
            running[name] = stack.enter_context(kubelet)
            kubelet.start(_KUBELET)
        start_scheduler_named(beside.plane, OURS, {"extenders": [extender(f"http://127.0.0.1:{beside.port}/v1")]})
        start_scheduler_named(beside.plane, ALONE, {})
        yield Kubelets(beside, running, folder)


@asynccontextmanager
async def observed(found: Kubelets) -> AsyncIterator[None]:
    """Each kubelet is observed, and the service told of it, as `podslice agent --observe` does."""
    config = KubeConfig.from_dict(found.beside.plane.kubeconfig("admin")).get()
    loops, api = Supervisor(lambda name, why: None), HTTPApiServer(config)
    for name, kubelet in found.running.items():
        source = ApiSource(api, name, trouble=_quietly)
        told = ObservedKubelet(
            kubelet.folder, load_machine(str(kubelet.machine)), _CONFIG, profile="podslice",
            version=installed_version("podslice"), pods=partial(list, source.pods),
            ready=partial(getattr, source, "ready"), trouble=_quietly, devices=ObservedDevices(kubelet.folder).read,
        )  # fmt: skip
        token = found.folder / f"token-{name}"
        token.write_text(await asyncio.to_thread(agent_token, found.beside.api, name))
        stream = JournalStream(
            f"127.0.0.1:{found.beside.journals}", told.journal, node=name, token_file=token,
            authority=AuthorityFile(found.beside.certificates.authority, "cluster.caFile"), trouble=_quietly,
        )  # fmt: skip
        loops.start(f"pods of {name}", source.run)
        loops.start(f"files of {name}", told.run)
        loops.start(f"stream of {name}", partial(stream.run, BackOff(0.2, 2.0)))
    try:
        yield
    finally:
        await loops.stop()
        await api.close()


def _quietly(where: str, what: str) -> None:
    """Drop a trouble: it shows in the pods' states."""


def playing(programs: Programs, folder: Path, names: tuple[str, ...], scene: Callable[[Kubelets], Any]) -> Any:
    """Play the calls of `scene` on a thread while the kubelets are observed."""

    async def main(found: Kubelets) -> Any:
        async with observed(found):
            proven = f"podslice_cluster_nodes_proven {len(names)}.0"
            await asyncio.to_thread(eventually, lambda: found.has(proven), "a kubelet is not followed")
            return await asyncio.to_thread(scene, found)

    with kubelets(programs, folder, names) as found:
        return asyncio.run(main(found))


def became_of(found: Json) -> str:
    """Running, the reason that the node or the scheduler refused the pod for, or nothing yet."""
    status = found["status"]
    if status.get("phase") == "Failed":
        return str(status.get("reason"))
    if status.get("phase") == _RUNNING:
        return _RUNNING
    reasons = [one.get("reason") for one in status.get("conditions", []) if one["type"] == "PodScheduled"]
    return _WAITS if _WAITS in reasons else ""


def state(pods: Pods, name: str) -> str:
    """Return the state that a pod has reached."""
    return became_of(pods.get(name))


def gone(pods: Pods, name: str) -> None:
    """Delete a pod, and wait until its kubelet has ended it."""
    pods.api.ask("DELETE", f"{pods.path}/{name}")
    eventually(lambda: pods.api.ask("GET", f"{pods.path}/{name}").code == 404, f"{name} does not go")


class Pieces(msgspec.Struct, frozen=True):
    """Pods of one scheduler that came and went: how many by what became of them, and in how many seconds."""

    scheduler: str
    seed: int
    kubelets: int
    counts: dict[str, int]
    seconds: float

    @property
    def pods(self) -> int:
        return sum(self.counts.values())

    @property
    def refused(self) -> int:
        """By a node."""
        return self.pods - self.counts.get(_RUNNING, 0)


class Coming:
    """Pods of one scheduler that come and go, some at a time; where the nodes are nearly full random ones leave. Half
    of them have a second to end, the others are gone at once."""

    def __init__(self, found: Kubelets, scheduler: str, seed: int, *, at_once: int) -> None:
        self._pods, self._scheduler, self._seed, self._at_once = found.pods, scheduler, seed, at_once
        self._room = ENOUGH * FREE * len(found.running)
        self._drawn, self._leaves = Random(seed), Random(seed)
        self._sizes: dict[str, int] = {}
        """Of all that the API server has."""
        self._waiting: set[str] = set()
        self._live: dict[str, None] = {}
        self._created = 0
        self.counts: Counter[str] = Counter()

    def play(self, count: int) -> dict[str, int]:
        """So many pods, until all have gone. Raises `AssertionError` where nothing goes on."""
        deadline = time.monotonic() + PATIENCE
        while self._sizes or self._created < count:
            before = self._created, len(self._sizes), len(self._waiting)
            self._look()
            while self._created < count and len(self._waiting) < self._at_once and self._create():
                pass
            if self._created == count and not self._waiting:
                for name in list(self._live):
                    self._leave(name)
            if before != (self._created, len(self._sizes), len(self._waiting)):
                deadline = time.monotonic() + PATIENCE
            assert time.monotonic() < deadline, f"nothing goes on: {sorted(self._waiting)} wait, {len(self._live)} live"
            time.sleep(_LOOK_SECONDS)
        return dict(self.counts)

    def _look(self) -> None:
        """Read the state of each pod."""
        there = {one["metadata"]["name"]: one for one in self._pods.api.call("GET", self._pods.path)["items"]}
        for name in [name for name in self._sizes if name not in there]:
            del self._sizes[name]
        stuck = 0
        for name in sorted(self._waiting):
            became = became_of(there[name])
            if became == _WAITS:
                stuck += 1
            elif became:
                self._waiting.discard(name)
                self.counts[became] += 1
                self._live[name] = None
                if became != _RUNNING:
                    self._leave(name)
        if stuck and stuck == len(self._waiting) and self._live and len(self._sizes) == stuck + len(self._live):
            self._leave(self._leaves.choice(list(self._live)))

    def _create(self) -> bool:
        """The next pod, if there is room for one; else somebody leaves."""
        if sum(self._sizes.values()) + max(_SIZES) > self._room:
            if len(self._sizes) == len(self._waiting) + len(self._live) and self._live:
                self._leave(self._leaves.choice(list(self._live)))
            return False
        name = f"{self._scheduler}-{self._seed}-{self._created}"
        size, grace = self._drawn.choice(_SIZES), self._drawn.choice((0, 1))
        self._pods.create(pod(name, self._scheduler, cpus=str(size), terminationGracePeriodSeconds=grace))
        self._sizes[name] = size
        self._waiting.add(name)
        self._created += 1
        return True

    def _leave(self, name: str) -> None:
        """Its node may still end it when the API server has forgotten it."""
        del self._live[name]
        self._pods.api.ask("DELETE", f"{self._pods.path}/{name}")


def played(found: Kubelets, scheduler: str, count: int, seed: int, *, at_once: int) -> Pieces:
    """So many pods of a scheduler."""
    began = time.monotonic()
    counts = Coming(found, scheduler, seed, at_once=at_once).play(count)
    return Pieces(scheduler, seed, len(found.running), counts, round(time.monotonic() - began, 1))


class Told(NamedTuple):
    """The options of a run: so many pods through the service and `alone` of the same through the scheduler alone,
    in pieces, the ones of `file` among them."""

    pods: int
    alone: int
    piece: int
    at_once: int
    seed: int
    file: Path | None


def pieces_of(file: Path | None) -> list[Pieces]:
    """Return the pieces that were played before."""
    lines = file.read_bytes().splitlines() if file is not None and file.exists() else []
    return [msgspec.json.decode(line, type=Pieces) for line in lines]


def next_piece(told: Told, done: Sequence[Pieces]) -> tuple[str, int, int] | None:
    """Scheduler, number of pods and seed of what is to be played next; the scheduler alone gets its part first. None
    where all is done."""
    for scheduler, wanted in ((ALONE, told.alone), (OURS, told.pods)):
        mine = [one for one in done if one.scheduler == scheduler]
        missing = wanted - sum(one.pods for one in mine)
        if missing > 0:
            return scheduler, min(missing, told.piece), told.seed + len(mine)
    return None


def campaign(found: Kubelets, told: Told) -> list[Pieces]:
    """All pieces, a line of the file for each."""
    done = pieces_of(told.file)
    while (piece := next_piece(told, done)) is not None:
        scheduler, count, seed = piece
        one = played(found, scheduler, count, seed, at_once=told.at_once)
        done.append(one)
        print(f"{scheduler}, seed {seed}: {one.counts}, {one.pods / one.seconds:.1f} a second", flush=True)
        if told.file is not None:
            with told.file.open("ab") as out:
                out.write(msgspec.json.encode(one) + b"\n")
    return done


def summary(done: Sequence[Pieces]) -> Iterator[str]:
    """A line for each scheduler."""
    for scheduler in (OURS, ALONE):
        counts: Counter[str] = Counter()
        for one in done:
            counts.update(one.counts if one.scheduler == scheduler else {})
        yield f"{scheduler}: {counts.total()} pods, {dict(counts)}"


def main() -> int:
    """Exit 1 where a node refused a pod that the service sent."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.prediction.kubelets", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--alone", type=int, help="of the same pods through the scheduler alone; as many")
    parser.add_argument("--piece", type=int, default=200, help="pods that are played before a line is written")
    parser.add_argument("--kubelets", type=int, default=2)
    parser.add_argument("--at-once", type=int, help="pods that wait at a time; as many as kubelets")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--file", type=Path, help="a line for each piece; goes on where it ends")
    said = parser.parse_args()
    alone = said.pods if said.alone is None else said.alone
    told = Told(said.pods, alone, said.piece, said.at_once or said.kubelets, said.seed, said.file)
    names = tuple(f"k{number}" for number in range(said.kubelets))
    done = pieces_of(told.file)
    if next_piece(told, done) is not None:
        with tempfile.TemporaryDirectory(prefix="podslice-") as folder:
            done = playing(find_programs(), Path(folder), names, partial(campaign, told=told))
    print(*summary(done), sep="\n")
    return int(any(one.refused for one in done if one.scheduler == OURS))


if __name__ == "__main__":
    sys.exit(main())
