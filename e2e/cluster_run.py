"""`python -m e2e --cluster`: the scenarios of a cluster one after the other, and their results."""

from __future__ import annotations

import fnmatch
import http.client
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from e2e import cluster as place
from e2e import cluster_daemonset, cluster_ends, cluster_refusals, cluster_restarts, cluster_scenarios
from e2e.agent_image import agent_image
from e2e.cluster import CONTROL_PLANE, SHAPE, Cluster
from e2e.cluster_daemonset import DaemonSetCluster
from e2e.cluster_scenarios import CLUSTER, DAEMON_SET, SYSTEMD, ClusterScenario
from e2e.cluster_systemd import SystemdCluster
from e2e.controlplane import ControlPlane, ControlPlaneError, StatusError
from e2e.image import checkout_disk, guest_busybox, image_disk, kernel, locked, program_disk, root_image, snapshot_name
from e2e.packages import FetchError
from e2e.programs import Programs, find_programs
from e2e.vm import GuestError, VirtualMachine
from e2e.world import CheckError

SUITES = (cluster_scenarios, cluster_refusals, cluster_restarts, cluster_ends, cluster_daemonset)
_PROBLEMS = (
    CheckError, GuestError, StatusError, ControlPlaneError, OSError, http.client.HTTPException, LookupError, ValueError
)  # fmt: skip


class ClusterOutcome(NamedTuple):
    """One scenario. An empty `problem` is a pass."""

    ident: str
    seconds: float
    problem: str


def choose(patterns: list[str], *, full: bool) -> list[ClusterScenario]:
    """The scenarios that were asked for; without a word the short set."""
    if patterns:
        return [one for one in CLUSTER.values() if any(fnmatch.fnmatchcase(one.ident, word) for word in patterns)]
    return [one for one in CLUSTER.values() if full or one.short]


def run_cluster(chosen: list[ClusterScenario], cache: Path) -> list[ClusterOutcome]:
    """Scenarios with the same configuration share a cluster as long as they pass. Raises `FetchError`."""
    machine = Machine(cache, find_programs(cache))
    groups: dict[str, list[ClusterScenario]] = {}
    for one in machine.possible(chosen):
        groups.setdefault(json.dumps([one.resources, one.node], sort_keys=True), []).append(one)
    outcomes: list[ClusterOutcome] = []
    for members in groups.values():
        waiting = list(members)
        while waiting:
            outcomes += _in_one_cluster(machine, waiting)
    return outcomes


class Machine:
    """What every cluster starts from. `image` is the agent's, where it can be built and was asked for."""

    def __init__(self, cache: Path, programs: Programs) -> None:
        self._cache = cache
        self._programs = programs
        self.image: Path | None = None
        with locked(cache):
            self._linux, self._initramfs = kernel(cache)
            self._root = root_image(cache)
            self._program = program_disk(programs.hyperkube, cache)
            self._checkout = checkout_disk(place.REPOSITORY, cache)
            self._busybox = guest_busybox(cache)

    def possible(self, chosen: list[ClusterScenario]) -> list[ClusterScenario]:
        """The scenarios that can run here: those with the agent's image need a builder. One line says what is left
        out."""
        wanted = [one for one in chosen if one.node == DAEMON_SET]
        if not wanted:
            return chosen
        try:
            with locked(self._cache):
                self.image = agent_image(place.REPOSITORY, self._cache)
        except FetchError as error:
            print(f"e2e: {', '.join(one.ident for one in wanted)} left out: {error}", flush=True)
            return [one for one in chosen if one.node != DAEMON_SET]
        return chosen

    @contextmanager
    def started(self, node: str) -> Iterator[Cluster]:
        """A new control plane and a resumed guest, gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="cluster-", dir=self._cache) as name:
            folder = Path(name)
            checkout = folder / "checkout.tar"
            checkout.write_bytes(self._checkout)
            disks = place.disks(self._program, image_disk(self.image, folder / "image.tar"))
            with ControlPlane(self._programs, folder / "plane", CONTROL_PLANE) as plane:
                devices = (*disks, *place.network(plane.port, self._busybox))
                words = "e2e.systemd" if node == SYSTEMD else ""
                what = (SHAPE, "cluster", self._program.name, words)
                snapshot = self._cache / snapshot_name(what, self._initramfs, self._root)
                with VirtualMachine(
                    SHAPE, folder, self._linux, self._initramfs, self._root, checkout, snapshot, devices, words
                ) as vm:
                    if node == DAEMON_SET and self.image:
                        yield DaemonSetCluster(vm, plane, self.image)
                    elif node == SYSTEMD:
                        yield SystemdCluster(vm, plane)
                    else:
                        yield Cluster(vm, plane)


def _in_one_cluster(machine: Machine, waiting: list[ClusterScenario]) -> Iterator[ClusterOutcome]:
    """Scenarios until one fails; what ran is taken from `waiting`."""
    begin = time.monotonic()
    with machine.started(waiting[0].node) as cluster:
        try:
            cluster.start(waiting[0].resources)
        except _PROBLEMS as error:
            yield _told(ClusterOutcome(waiting.pop(0).ident, time.monotonic() - begin, f"no cluster: {error}"))
            print(cluster.last_words(), flush=True)
            return
        print(f"        a cluster is ready after {time.monotonic() - begin:.1f} s", flush=True)
        while waiting:
            outcome = _one(cluster, waiting.pop(0))
            yield _told(outcome)
            if outcome.problem:
                print(cluster.last_words(), flush=True)
                return


def _one(cluster: Cluster, scenario: ClusterScenario) -> ClusterOutcome:
    begin, problem = time.monotonic(), ""
    try:
        scenario.run(cluster)
        cluster.nothing_left()
    except _PROBLEMS as error:
        problem = str(error) or type(error).__name__
    return ClusterOutcome(scenario.ident, time.monotonic() - begin, problem)


def _told(outcome: ClusterOutcome) -> ClusterOutcome:
    word = "FAILED" if outcome.problem else "passed"
    print(f"{word}  {outcome.ident:20} {outcome.seconds:5.1f} s  {outcome.problem}", flush=True)
    return outcome


def markdown(outcomes: list[ClusterOutcome]) -> str:
    """The table of results."""
    rows = [["id", "promise", "result", "seconds"], ["---"] * 3 + ["---:"]]
    for one in outcomes:
        result = "FAIL" if one.problem else "pass"
        rows.append([one.ident, CLUSTER[one.ident].promise, result, f"{one.seconds:.0f}"])
    passed = sum(not one.problem for one in outcomes)
    head = f"# Results in a cluster\n\n{passed} of {len(outcomes)} passed ([e2e.md](e2e.md#in-a-cluster)).\n\n"
    return head + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
