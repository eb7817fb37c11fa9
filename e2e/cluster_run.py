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
from e2e import cluster_scenarios
from e2e.cluster import CONTROL_PLANE, SHAPE, Cluster
from e2e.cluster_scenarios import CLUSTER, ClusterScenario
from e2e.controlplane import ControlPlane, ControlPlaneError, StatusError
from e2e.image import checkout_disk, guest_busybox, kernel, locked, program_disk, root_image, snapshot_name
from e2e.programs import Programs, find_programs
from e2e.vm import GuestError, VirtualMachine
from e2e.world import CheckError

SUITES = (cluster_scenarios,)
_PROBLEMS = (CheckError, GuestError, StatusError, ControlPlaneError, OSError, http.client.HTTPException)


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
    for one in chosen:
        groups.setdefault(json.dumps(one.resources, sort_keys=True), []).append(one)
    outcomes: list[ClusterOutcome] = []
    for members in groups.values():
        waiting = list(members)
        while waiting:
            outcomes += _in_one_cluster(machine, waiting)
    return outcomes


class Machine:
    """What every cluster starts from."""

    def __init__(self, cache: Path, programs: Programs) -> None:
        self._cache = cache
        self._programs = programs
        with locked(cache):
            self._linux, self._initramfs = kernel(cache)
            self._root = root_image(cache)
            self._disk = program_disk(programs.hyperkube, cache)
            self._checkout = checkout_disk(place.REPOSITORY, cache)
            self._busybox = guest_busybox(cache)

    @contextmanager
    def started(self) -> Iterator[tuple[VirtualMachine, ControlPlane]]:
        """A new control plane and a resumed guest, gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="cluster-", dir=self._cache) as name:
            folder = Path(name)
            checkout = folder / "checkout.tar"
            checkout.write_bytes(self._checkout)
            with ControlPlane(self._programs, folder / "plane", CONTROL_PLANE) as plane:
                devices = (*place.disk(self._disk), *place.network(plane.port, self._busybox))
                snapshot = self._cache / snapshot_name((SHAPE, "cluster", self._disk.name), self._initramfs, self._root)
                with VirtualMachine(
                    SHAPE, folder, self._linux, self._initramfs, self._root, checkout, snapshot, devices
                ) as vm:
                    yield vm, plane


def _in_one_cluster(machine: Machine, waiting: list[ClusterScenario]) -> Iterator[ClusterOutcome]:
    """Scenarios until one fails; what ran is taken from `waiting`."""
    begin = time.monotonic()
    with machine.started() as (vm, plane):
        try:
            cluster = Cluster(vm, plane, waiting[0].resources)
        except _PROBLEMS as error:
            yield _told(ClusterOutcome(waiting.pop(0).ident, time.monotonic() - begin, f"no cluster: {error}"))
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
