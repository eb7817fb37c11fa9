"""A hollow cluster: etcd, an API server, the real kube-scheduler, `podslice cluster`, and many nodes without machines.

Nodes decide with the real core (`hollow_nodes`). Promised in every run with the service: no pod is refused by a node,
no CPU has two owners, holds return to zero and every replica's digests meet its node's.
"""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

from lightkube.config.kubeconfig import KubeConfig

from e2e.controlplane import ADMIN, Api, ControlPlane, Json, Settings, StatusError, gates_text
from e2e.hollow_nodes import HollowJournals, HollowNodes, NodeLine
from e2e.programs import find_programs
from e2e.scheduling import Pods, eventually, extender, pod, profile
from e2e.sharedplane import prepare_namespace
from podslice.cluster.apiclient import PODS as ALL_PODS
from podslice.cluster.apiclient import RUNNING, HTTPClusterApi
from podslice.cluster.object_table import ObjectTable, PodChange, Trouble, synchronous
from podslice.cluster.placements import NodeReport
from podslice.cluster.service import ClusterService, Listening, ServiceSettings
from podslice.cluster.wiring import wire
from podslice.service.clusterobjects import ScheduledPod, read_pod
from podslice.service.http.apiconnection import ApiConnection
from podslice.service.supervise import Supervisor

SCHEDULER, ALONE = "podslice", "default-scheduler"
PODS = "/api/v1/namespaces/default/pods"
_PATIENCE = 180.0
"""Seconds without any progress after which a load ends."""
_REST = 90.0
"""Seconds within which holds end and digests match, even on a busy machine."""
_QUIET, _QUIET_SHARE, _QUIET_AT_MOST = 0.5, 0.2, 20.0
"""Before a load, no program uses more than this share of a processor for so many seconds; waited for this long at most:
what a start costs belongs to no pod."""
BACKLOG_HOLD = 1800.0
"""Seconds that nominations may wait for a scheduler that starts after the last of them."""


class Load(NamedTuple):
    """Pods to be created, by name: how many CPUs. `lives`: every so many-th pod is deleted as soon as it runs."""

    name: str
    cpus: dict[str, int]
    lives: int = 0


class HollowResult(NamedTuple):
    """The result of a load. `seconds` are from the first pod that runs to the last; `refusals` are the nodes'."""

    nodes: int
    load: str
    who: str
    pods: int
    running: int
    seconds: float
    refusals: int
    problems: tuple[str, ...]
    free: int
    """CPUs that could still be given to containers."""
    counts: Json

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.running / self.seconds if self.seconds else 0.0

    @property
    def two_processors(self) -> float:
        """Pods a second on two processors without other work."""
        used = sum(self.counts["cpu"].values())
        return 2 * self.running / used if used else 0.0

    def row(self) -> str:
        """One row of a Markdown table."""
        return (
            f"| {self.nodes} | {self.load} | {self.who} | {self.running} of {self.pods} | {self.seconds:.1f} | "
            f"{self.rate:.0f} | {self.two_processors:.0f} | {self.refusals} | {self.free} | "
            f"{'; '.join(self.problems) or 'none'} |"
        )


HEADER = (
    "| nodes | load | scheduler | running | seconds | pods/s | by processor time | refused by nodes "
    "| CPUs free at the end | broken promises |\n|---:|---|---|---:|---:|---:|---:|---:|---:|---|"
)


def loads(nodes: int, pods: int = 0, seed: int = 7) -> dict[str, Load]:
    """The loads for so many nodes of 64 CPUs on 4 NUMA nodes; a pod of 10 CPUs fits four times on one."""
    draw = random.Random(seed)
    sizes = [draw.choice((2, 4, 4, 6, 8, 8, 10, 12, 14)) for _ in range(pods or 5 * nodes)]
    return {
        "equal": Load("equal", {f"equal-{number}": 10 for number in range(pods or 4 * nodes)}),
        "mixed": Load("mixed", {f"mixed-{number}": size for number, size in enumerate(sizes)}),
        "churn": Load("churn", {f"churn-{number}": size for number, size in enumerate(sizes * 2)}, lives=2),
    }


class HollowCluster:
    """A running hollow cluster, with the service or without."""

    def __init__(self, plane: ControlPlane, nodes: HollowNodes, api: HTTPClusterApi) -> None:
        self.plane, self.nodes, self.api = plane, nodes, api
        self.flags: list[str] = []
        self.scheduler: Json = {}
        """The configuration of the scheduler, until it is started."""
        self.journals = HollowJournals(nodes.source)
        nodes.send = self.journals.feed
        self.service: ClusterService | None = None
        self._settings: dict[str, Any] = {}
        self._past: Counter[str] = Counter()
        self.ahead = 0.0
        """Seconds by which the service's clock has jumped."""
        self.troubles: list[str] = []
        self.disputes: list[NodeReport] = []
        self.watch = bound_pods(api, nodes.pod_changed, self._trouble)

    def start_scheduler(self) -> None:
        """Start the scheduler, once."""
        configuration, self.scheduler = self.scheduler, {}
        if configuration:
            self.plane.start_scheduler(configuration, *self.flags)

    def _trouble(self, where: str, what: str) -> None:
        self.troubles.append(f"{where}: {what}")

    async def start_service(self, port: int = 0, **settings: Any) -> int:
        """Start `podslice cluster`, which knows nothing yet but its latest settings; returns its port."""
        self._settings |= settings
        service = wire(
            self.api, self.journals, ServiceSettings(**self._settings), trouble=self._trouble,
            disputed=self.disputes.append, clock=lambda: time.monotonic() + self.ahead,
        )  # fmt: skip
        self.service = service
        await service.start(Listening(port=port))
        while not (service.nodes.ready and service.pods.ready):
            await asyncio.sleep(0.05)
        for name in self.nodes.nodes:
            self.journals.catch_up([name])
            await asyncio.sleep(0)
        return service.port

    async def kill_service(self) -> int:
        """Stop the service, which loses all it knew, and return its port."""
        assert self.service is not None
        port, service, self.service = self.service.port, self.service, None
        self._past += service.placing.model.counts
        self.journals.restart()
        await service.stop()
        return port

    def processor_seconds(self) -> dict[str, float]:
        """Return the processor seconds of each program. In this process nodes decide and write their journals
        ("nodes"); the rest of it is the service, and the watch by which nodes hear of pods."""
        mine, nodes = time.process_time(), self.nodes.seconds
        return {**self.plane.processor_seconds(), "nodes": nodes, "service": mine - nodes}

    async def rest(self) -> None:
        """Wait until no program is busy with its start any more."""
        deadline = time.monotonic() + _QUIET_AT_MOST
        before = self.processor_seconds()
        while time.monotonic() < deadline:
            await asyncio.sleep(_QUIET)
            now = self.processor_seconds()
            if all(used - before.get(name, 0.0) < _QUIET * _QUIET_SHARE for name, used in now.items()):
                return
            before = now

    def counts(self) -> Counter[str]:
        """Return the outcomes of holds, of all services so far."""
        return self._past + (Counter() if self.service is None else self.service.placing.model.counts)

    async def beat(self) -> None:
        """Send the agents' beats: replicas that are behind get the missing events."""
        while True:
            await asyncio.sleep(1.0)
            behind = [name for name, line in self.journals.nodes.items() if self._behind(name, line)]
            self.journals.catch_up(behind)

    def _behind(self, name: str, line: NodeLine) -> bool:
        journal, replica = self.nodes.nodes[name].journal, line.replica
        return not replica.proven or (replica.epoch, replica.sequence) != (journal.epoch, journal.sequence)

    def delete(self, name: str) -> None:
        """Delete a pod without grace."""
        with self.plane.api() as api:
            self.delete_by(api, name)

    @staticmethod
    def delete_by(api: Api, name: str, over: threading.Event | None = None) -> None:
        """Delete a pod without grace over an open connection; `over` ends retries."""
        patiently(api, "DELETE", f"{PODS}/{name}?gracePeriodSeconds=0", over=over)

    def reason(self, name: str, text: str) -> None:
        """Wait until the scheduler's message about a pod has this text. Raises `AssertionError` where it does not."""
        with self.plane.api() as api:
            pods = Pods(api)
            eventually(lambda: api.ask("GET", f"{pods.path}/{name}").code == 200, f"there is no pod {name}")
            eventually(lambda: text in pods.unscheduled(name).get("message", ""), f"the scheduler does not say {text}")

    def broken_promises(self) -> Iterator[str]:
        """Yield broken promises, once everything is quiet."""
        for name, node in self.nodes.nodes.items():
            twice = node.doubly_owned()
            if twice:
                yield f"{name}: CPUs {twice} have two owners"
        if self.service is None:
            return
        held = self.service.placing.model.holds()
        if held:
            yield f"{len(held)} holds are left"
        apart = list(self.apart())
        if apart:
            yield f"{len(apart)} replicas are not their nodes, such as {apart[0]}"

    async def quiet(self) -> list[str]:
        """Return the promises that stay broken after everything had time to settle."""
        await self.nodes.settle()
        deadline = time.monotonic() + _REST
        while (problems := list(self.broken_promises())) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        return problems

    def apart(self) -> Iterator[str]:
        """Return the nodes whose replica is not proven to match."""
        for name, node in self.nodes.nodes.items():
            line = self.journals.nodes.get(name)
            if line is None or not line.replica.proven or line.replica.digest != node.journal.digest:
                yield name


def bound_pods(api: HTTPClusterApi, on_change: PodChange, trouble: Trouble) -> ObjectTable[ScheduledPod]:
    """Watch pods that have a node and may still run, as kubelets do."""
    return ObjectTable(
        api,
        ALL_PODS,
        f"{RUNNING},spec.nodeName!=",
        read=synchronous(read_pod),
        key=lambda pod: pod.uid,
        on_change=on_change,
        trouble=trouble,
    )


@asynccontextmanager
async def hollow(
    folder: Path,
    names: Iterable[str],
    *,
    service: bool,
    gates: Mapping[str, bool] | None = None,
    silent: bool = False,
    waits: bool = False,
    every_node: bool = False,
    client: Callable[[object], HTTPClusterApi] = HTTPClusterApi,
    **settings: Any,
) -> AsyncIterator[HollowCluster]:
    """A control plane with these nodes and a scheduler, in this folder; `gates` are both programs'. `silent`: the nodes
    report nothing about their pods to the API server; `waits`: the scheduler starts with `start_scheduler`;
    `every_node`: it looks at all of them for each pod, as it always does with the service."""
    names = list(names)
    alpha = ["--runtime-config=api/alpha=true"] if gates else []
    options = ("--disable-admission-plugins=TaintNodesByCondition,ServiceAccount", "--max-requests-inflight=2000",
               "--max-mutating-requests-inflight=1000", *alpha)  # fmt: skip
    plane_settings = Settings(api_server=options, gates=gates or {})
    with ControlPlane(find_programs(), folder / "plane", plane_settings) as plane:
        config = KubeConfig.from_dict(plane.kubeconfig("admin")).get()
        with plane.api() as admin:
            prepare_namespace(admin, "default")
        api, connection = client(config), ApiConnection(config, path="hollow")
        nodes = HollowNodes(names, None if silent else connection)
        free = next(iter(nodes.nodes.values())).free
        await asyncio.to_thread(_create_nodes, plane, names, free)
        cluster = HollowCluster(plane, nodes, api)
        loops = Supervisor(cluster._trouble)
        loops.start("hollow nodes", cluster.watch.run)
        try:
            extenders = []
            if service:
                port = await cluster.start_service(**settings)
                loops.start("beats", cluster.beat)
                weight = 2 if settings.get("advise") else 200
                url = f"http://127.0.0.1:{port}/v1"
                extenders = [extender(url, preemptVerb="preempt", httpTimeout="10s", weight=weight)]
            cluster.scheduler = {
                "profiles": [profile(SCHEDULER if service else ALONE)], "extenders": extenders,
                "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2,
                **({"percentageOfNodesToScore": 100} if service or every_node else {}),
            }  # fmt: skip
            cluster.flags = [f"--feature-gates={gates_text(gates)}"] if gates else []
            if not waits:
                cluster.start_scheduler()
            yield cluster
        finally:
            await loops.stop()
            if cluster.service is not None:
                await cluster.service.stop()
            await nodes.settle()
            await connection.close()
            await api.close()


def _create_nodes(plane: ControlPlane, names: list[str], cpus: int) -> None:
    amounts = {"cpu": str(cpus), "memory": "240Gi", "pods": "250"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "on paper"}
    status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}

    def create(api: Api, name: str) -> None:
        patiently(api, "POST", "/api/v1/nodes", {"metadata": {"name": name}} | status)

    in_parallel(plane, create, names)


def in_parallel(
    plane: ControlPlane, call: Callable[[Api, str], object], names: Iterable[str], threads: int = 4
) -> None:
    """Call for every name, over as many connections as there are threads."""
    names = list(names)

    def some(part: int) -> None:
        with plane.api() as api:
            for name in names[part::threads]:
                call(api, name)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(some, range(threads)))


def create_pods(port: int, authority: Path, token: str, documents: list[Json], connections: int = 4) -> float:
    """Create pods one after the other over so many connections. Return the processor seconds of this process, which
    does nothing else: threads of the service's process would keep it waiting."""
    began = time.process_time()

    def some(part: int) -> None:
        with closing(Api(port, authority, token)) as api:
            for document in documents[part::connections]:
                patiently(api, "POST", PODS, document)

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(some, range(connections)))
    return time.process_time() - began


class Progress:
    """Progress of a load: what runs, and when the first and the last pod started. `names` of its pods are created.
    `backlog`: all of them are there, and nominated, before the scheduler starts."""

    def __init__(
        self,
        cluster: HollowCluster,
        load: Load,
        scheduler: str,
        *,
        names: Iterable[str] | None = None,
        backlog: bool = False,
    ) -> None:
        self.cluster, self.load, self.scheduler, self.backlog = cluster, load, scheduler, backlog
        self.names = list(load.cpus if names is None else names)
        self.first = self.last = 0.0
        self.tries = 0
        self._over = threading.Event()
        """Set when the load is over: a thread that waited for the API server would else outlive it."""

    @property
    def done(self) -> int:
        return self.cluster.nodes.admitted

    async def run(self) -> HollowResult:
        """Create the pods, wait until they run or nothing moves any more, and look at every promise."""
        plane, loop = self.cluster.plane, asyncio.get_running_loop()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as creator:
            # The process is there, with all it imports, before anything is measured.
            where = plane.port, plane.authority, plane.token(ADMIN)
            await loop.run_in_executor(creator, create_pods, *where, [])
            documents = [self._document(name, name) for name in self.names]
            creating = loop.run_in_executor(creator, create_pods, *where, documents) if self.backlog else None
            if creating is not None:
                await creating
                await self._wait_for_nominations()
            self.cluster.start_scheduler()
            if creating is None:
                await self.cluster.rest()
            began = self.cluster.processor_seconds()
            if creating is None:
                creating = loop.run_in_executor(creator, create_pods, *where, documents)
            await self._follow(creating)
            now = self.cluster.processor_seconds() | {"creator": 0.0 if self.backlog else creating.result()}
        used = {name: round(seconds - began.get(name, 0.0), 2) for name, seconds in now.items()}
        return await self._result(used)

    async def _follow(self, creating: Awaitable[float]) -> None:
        """Wait until the pods run or nothing moves any more."""
        retrying = asyncio.ensure_future(self._retry())
        before, moved = 0, time.monotonic()
        while self.done < len(self.load.cpus) and time.monotonic() - moved < _PATIENCE:
            await asyncio.sleep(0.05)
            if self.done > before:
                self.first = self.first or time.monotonic()
                before, moved = self.done, time.monotonic()
                self.last = moved
        await creating
        self._over.set()
        await asyncio.gather(retrying, return_exceptions=True)

    async def _wait_for_nominations(self) -> None:
        """Wait until the service has nominated as many pods as it can."""
        service = self.cluster.service
        if service is None or not service.settings.nominate:
            return
        if len(self.cluster.nodes.nodes) < service.settings.nominating_nodes:
            return
        before, moved = -1, time.monotonic()
        while before < len(self.names) and time.monotonic() - moved < _PATIENCE / 4:
            await asyncio.sleep(0.1)
            if service.nominator.nominated > before:
                before, moved = service.nominator.nominated, time.monotonic()

    def _document(self, name: str, of: str) -> Json:
        return pod(name, self.scheduler, cpus=str(self.load.cpus[of]))

    async def _retry(self) -> None:
        """Act as a controller: replace pods that a node refused, and delete pods that have lived long enough."""
        seen, cluster = 0, self.cluster
        while not self._over.is_set():
            await asyncio.sleep(0.2)
            refused = [text.split(" on ")[0] for text in cluster.nodes.refused[seen:]]
            seen += len(refused)
            await asyncio.to_thread(in_parallel, cluster.plane, self._again, refused, 2)
            if self.load.lives:
                await asyncio.to_thread(in_parallel, cluster.plane, self._delete, self._old(), 2)

    def _delete(self, api: Api, name: str) -> None:
        if not self._over.is_set():
            self.cluster.delete_by(api, name, self._over)

    def _again(self, api: Api, name: str) -> None:
        if self._over.is_set():
            return
        self.tries += 1
        self.cluster.delete_by(api, name, self._over)
        of = name.partition(".")[0]
        patiently(api, "POST", PODS, self._document(f"{of}.{self.tries}", of), over=self._over)

    def _old(self) -> list[str]:
        running = (one for one in self.cluster.watch.objects.values() if one.uid in self.cluster.nodes.runs)
        return [one.name for one in running if int(one.name.partition(".")[0].split("-")[1]) % self.load.lives == 0]

    async def _result(self, used: Json) -> HollowResult:
        cluster, service = self.cluster, self.cluster.service
        problems = await cluster.quiet()
        refused = cluster.nodes.refused
        if service is not None and refused:
            problems.append(f"{len(refused)} pods refused, such as {refused[0]}")
        problems += sorted(set(cluster.troubles))[:3]
        counts: Json = {"cpu": used, **cluster.journals.outcomes}
        if service is not None:
            counts |= {"nominated": service.nominator.nominated, **service.placing.model.counts}
        who = "podslice" if service is not None else "alone"
        free = sum(node.free for node in cluster.nodes.nodes.values())
        return HollowResult(
            len(cluster.nodes.nodes), self.load.name, who, len(self.load.cpus), self.done, self.last - self.first,
            len(refused), tuple(problems), free, counts,
        )  # fmt: skip


def patiently(
    api: Api, method: str, path: str, body: Json | None = None, *, over: threading.Event | None = None
) -> None:
    """Call, and retry while the API server is away, until `over` is set. Raises `StatusError` for a refusal that is
    none of a pod that is there, or is not, already."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            answer = api.ask(method, path, body)
            if answer.code < 300 or answer.code in (404, 409):
                return
            if answer.code < 500 and answer.code != 429:
                raise StatusError(answer.code, answer.body)
        except (OSError, http.client.HTTPException):
            api.close()
            if time.monotonic() > deadline:
                raise
        if over is None:
            time.sleep(0.2)
        elif over.wait(0.2):
            return
