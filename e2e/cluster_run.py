"""`python -m e2e --cluster`: the scenarios of a cluster one after the other, and their results."""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import http.client
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from e2e import cluster as place
from e2e import (
    cluster_claims,
    cluster_daemonset,
    cluster_ends,
    cluster_kubectl,
    cluster_reboot,
    cluster_refusals,
    cluster_resizes,
    cluster_restarts,
    cluster_scenarios,
    cluster_scheduler,
    cluster_systemd,
    cluster_two,
)  # fmt: skip
from e2e.agent_image import agent_image
from e2e.cluster import CONTROL_PLANE, SHAPE, Cluster
from e2e.cluster_claims import PLANE, ClaimedCluster
from e2e.cluster_daemonset import DaemonSetCluster, SeeingDaemonSetCluster, SystemdDaemonSetCluster
from e2e.cluster_reboot import RebootCluster
from e2e.cluster_results import ClusterOutcome
from e2e.cluster_scenarios import (
    CLAIMED,
    CLUSTER,
    DAEMON_SET,
    PROGRAM,
    REACHED,
    REBOOTS,
    SCHEDULED,
    SYSTEMD,
    SYSTEMD_DAEMON_SET,
    TWO,
    ClusterScenario,
)
from e2e.cluster_scheduler import JOURNAL_ADDRESS, JOURNAL_PORT, ScheduledCluster
from e2e.cluster_systemd import SystemdCluster
from e2e.cluster_two import TwoNodes
from e2e.controlplane import SERVICE_ADDRESS, ControlPlane, ControlPlaneError, StatusError, free_port
from e2e.egress import Egress
from e2e.image import (
    checkout_disk,
    empty_disk,
    guest_busybox,
    image_disk,
    kernel,
    lock_cache,
    program_disk,
    root_image,
    snapshot_name,
)
from e2e.packages import FetchError
from e2e.programs import Programs, find_programs
from e2e.vm import GuestError, StoppedError, VirtualMachine
from e2e.world import CheckError

SUITES = (
    cluster_scenarios, cluster_refusals, cluster_restarts, cluster_ends, cluster_resizes, cluster_daemonset,
    cluster_systemd, cluster_reboot, cluster_two, cluster_scheduler, cluster_kubectl,
    cluster_claims,
)  # fmt: skip
_WITH_IMAGE, _UNDER_SYSTEMD = (DAEMON_SET, SYSTEMD_DAEMON_SET, REACHED), (SYSTEMD, SYSTEMD_DAEMON_SET)
_PLANE, _GUEST = "plane", "guest"
_MAKE_NODES = ("cluster.py", "controlplane.py", "certificates.py")
_PROBLEMS = (
    CheckError, GuestError, StatusError, ControlPlaneError, OSError, http.client.HTTPException, LookupError, ValueError
)  # fmt: skip


def choose(patterns: list[str], *, full: bool) -> list[ClusterScenario]:
    """Return the requested scenarios; the short set by default."""
    if patterns:
        return [one for one in CLUSTER.values() if any(fnmatch.fnmatchcase(one.ident, word) for word in patterns)]
    return [one for one in CLUSTER.values() if full or one.short]


def run_cluster(chosen: list[ClusterScenario], cache: Path, jobs: int = 1) -> list[ClusterOutcome]:
    """Scenarios with the same configuration share a cluster as long as they pass; so many clusters at a time. Raises
    `FetchError`."""
    machine = Machine(cache, find_programs(cache))
    groups: dict[str, list[ClusterScenario]] = {}
    for one in machine.possible(chosen):
        groups.setdefault(json.dumps([one.resources, one.settings, one.node], sort_keys=True), []).append(one)

    with ThreadPoolExecutor(jobs) as pool:
        parts = distribute_groups(list(groups.values()), jobs)
        return [one for found in pool.map(lambda part: run_in_turn(machine, part), parts) for one in found]


def run_in_turn(machine: Machine, waiting: list[ClusterScenario]) -> list[ClusterOutcome]:
    """Run the groups on one cluster after the other. A scenario whose machine stopped is retried once, in the next
    one."""
    outcomes: list[ClusterOutcome] = []
    stopped: set[str] = set()
    while waiting:
        for outcome in _in_one_cluster(machine, waiting):
            if outcome.stopped and outcome.ident not in stopped:
                stopped.add(outcome.ident)
                waiting.insert(0, CLUSTER[outcome.ident])
            else:
                outcomes.append(outcome)
    return outcomes


def distribute_groups(groups: list[list[ClusterScenario]], jobs: int) -> list[list[ClusterScenario]]:
    """Order the groups for `jobs` clusters: long ones first, and those split that would outlast the others."""
    most = -(-sum(map(len, groups)) // jobs)
    parts = [group[start : start + most] for group in groups for start in range(0, len(group), most)]
    return sorted(parts, key=len, reverse=True)


class Machine:
    """Files that every cluster starts from. `image` is the agent's, where it can be built and was requested."""

    def __init__(self, cache: Path, programs: Programs) -> None:
        self._cache = cache
        self._programs = programs
        self.image: Path | None = None
        with lock_cache(cache):
            self._linux, self._initramfs = kernel(cache)
            self._root = root_image(cache)
            self._program = program_disk(programs.hyperkube, cache)
            self._checkout = checkout_disk(place.REPOSITORY, cache)
            self._busybox = guest_busybox(cache)

    def possible(self, chosen: list[ClusterScenario]) -> list[ClusterScenario]:
        """The scenarios that can run here: those with the agent's image need a builder. One line says what is left
        out."""
        wanted = [one for one in chosen if one.node in _WITH_IMAGE]
        if not wanted:
            return chosen
        try:
            with lock_cache(self._cache):
                self.image = agent_image(place.REPOSITORY, self._cache)
        except FetchError as error:
            print(f"e2e: {', '.join(one.ident for one in wanted)} left out: {error}", flush=True)
            return [one for one in chosen if one.node not in _WITH_IMAGE]
        return chosen

    @contextmanager
    def started(self, node: str) -> Iterator[Cluster]:
        """A control plane and as many resumed guests as its nodes, gone afterwards. The first one is a node already,
        but for the one that REBOOTS, which has its disk to mount before."""
        ready = None if node == REBOOTS else self._ready(node)
        with tempfile.TemporaryDirectory(prefix="cluster-", dir=self._cache) as name:
            folder = Path(name)
            if ready is not None:
                shutil.copytree(ready / _PLANE, folder / _PLANE)
            with ExitStack() as running:
                settings, kubelet = PLANE if node == CLAIMED else CONTROL_PLANE, None
                if node == REACHED:
                    kubelet = free_port()
                    names = (place.NODE, place.ADDRESS)
                    egress = running.enter_context(Egress({f"{one}:{place.KUBELET_PORT}": kubelet for one in names}))
                    settings = settings._replace(api_server=egress.options(folder / _PLANE))
                plane = running.enter_context(ControlPlane(self._programs, folder / _PLANE, settings))
                ports = {(SERVICE_ADDRESS, 443): plane.port}
                journal = ports[JOURNAL_ADDRESS, JOURNAL_PORT] = free_port()
                saved = ready / _GUEST if ready is not None else None
                vm = running.enter_context(self._guest(folder, ports, node, saved, kubelet=kubelet))
                if node == SCHEDULED:
                    cluster: Cluster = ScheduledCluster(vm, plane, journal)
                elif node == TWO:
                    cluster = TwoNodes(vm, running.enter_context(self._guest(folder / "second", ports, node)), plane)
                else:
                    cluster = self._cluster(node, vm, plane)
                cluster.joined = ready is not None
                yield cluster

    def _cluster(self, node: str, vm: VirtualMachine, plane: ControlPlane) -> Cluster:
        if node in _WITH_IMAGE and self.image:
            kinds = {SYSTEMD_DAEMON_SET: SystemdDaemonSetCluster, REACHED: SeeingDaemonSetCluster}
            return kinds.get(node, DaemonSetCluster)(vm, plane, self.image)
        return {REBOOTS: RebootCluster, SYSTEMD: SystemdCluster, CLAIMED: ClaimedCluster}.get(node, Cluster)(vm, plane)

    def _ready(self, node: str) -> Path:
        """A folder with a control plane and the guest that is its node, both as they were when the node had become
        ready. Made once."""
        sources = [Path(__file__).with_name(name).read_bytes() for name in _MAKE_NODES]
        what = (*self._snapshot_key(node), self._programs.etcd.name, hashlib.sha256(b"".join(sources)).hexdigest())
        found = self._cache / snapshot_name(what, self._initramfs, self._root).replace("snapshot", "ready")
        with found.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not found.exists():
                self._make_ready(node, found)
        return found

    def _make_ready(self, node: str, target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="cluster-", dir=self._cache) as name:
            folder, partial = Path(name), Path(name) / "ready"
            partial.mkdir()
            plane = ControlPlane(self._programs, folder / _PLANE, CONTROL_PLANE)
            with plane, self._guest(folder, {(SERVICE_ADDRESS, 443): plane.port}, node) as vm:
                cluster = self._cluster(SYSTEMD if node in _UNDER_SYSTEMD else PROGRAM, vm, plane)
                cluster.join()
                cluster.until("the node is ready", cluster.node_is_ready)
                vm.save(partial / _GUEST)
            plane.keep(partial / _PLANE)
            partial.rename(target)

    def _snapshot_key(self, node: str) -> tuple[object, ...]:
        """Return the key of a guest's snapshot: everything it depends on."""
        return (SHAPE, "cluster", "five disks", self._program.name, _words(node))

    def _guest(
        self,
        folder: Path,
        ports: Mapping[tuple[str, int], int],
        node: str,
        saved: Path | None = None,
        *,
        kubelet: int | None = None,
    ) -> VirtualMachine:
        """A machine, with its disks in this folder, as it was `saved` or with containerd alone."""
        folder.mkdir(exist_ok=True)
        checkout = folder / "checkout.tar"
        checkout.write_bytes(self._checkout)
        devices = place.disks(self._program, image_disk(self.image, folder / "image.tar"))
        devices += place.writable_disk(empty_disk(folder / "kept.ext4"))
        devices += place.network(self._busybox, ports, kubelet=kubelet)
        snapshot = saved or self._cache / snapshot_name(self._snapshot_key(node), self._initramfs, self._root)
        return VirtualMachine(
            SHAPE, folder, self._linux, self._initramfs, self._root, checkout, snapshot, devices, _words(node)
        )


def _words(node: str) -> str:
    """Return further words of the kernel's command line."""
    return "e2e.systemd" if node in _UNDER_SYSTEMD else ""


def _in_one_cluster(machine: Machine, waiting: list[ClusterScenario]) -> Iterator[ClusterOutcome]:
    """Scenarios until one fails; what ran is taken from `waiting`."""
    begin = time.monotonic()
    try:
        with machine.started(waiting[0].node) as cluster:
            yield from _scenarios(cluster, waiting, begin)
    except _PROBLEMS as error:
        yield _print_outcome(_failed_outcome(waiting.pop(0), begin, error))


def _scenarios(cluster: Cluster, waiting: list[ClusterScenario], begin: float) -> Iterator[ClusterOutcome]:
    try:
        cluster.start(waiting[0].resources, waiting[0].settings)
    except _PROBLEMS as error:
        yield _print_outcome(_failed_outcome(waiting.pop(0), begin, error))
        print(_last_words(cluster)[0], flush=True)
        return
    print(f"        a cluster is ready after {time.monotonic() - begin:.1f} s", flush=True)
    while waiting:
        outcome = _one(cluster, waiting.pop(0))
        if not outcome.problem:
            yield _print_outcome(outcome)
            continue
        words, answers = _last_words(cluster)
        yield _print_outcome(outcome._replace(stopped=outcome.stopped or not answers))
        print(words, flush=True)
        return


def _last_words(cluster: Cluster) -> tuple[str, bool]:
    """Return the last output of the node's programs, and whether the machine still answers and its network works."""
    try:
        return cluster.last_words(), cluster.reaches_the_server()
    except GuestError as error:
        return str(error), not isinstance(error, StoppedError)


def _one(cluster: Cluster, scenario: ClusterScenario) -> ClusterOutcome:
    begin = time.monotonic()
    try:
        scenario.run(cluster)
        cluster.nothing_left()
    except _PROBLEMS as error:
        return _failed_outcome(scenario, begin, error)
    return ClusterOutcome(scenario.ident, time.monotonic() - begin, "")


def _failed_outcome(scenario: ClusterScenario, begin: float, error: Exception) -> ClusterOutcome:
    problem = str(error) or type(error).__name__
    return ClusterOutcome(scenario.ident, time.monotonic() - begin, problem, isinstance(error, StoppedError))


def _print_outcome(outcome: ClusterOutcome) -> ClusterOutcome:
    word = "FAILED" if outcome.problem else "passed"
    print(f"{word}  {outcome.ident:20} {outcome.seconds:5.1f} s  {outcome.problem}", flush=True)
    return outcome
