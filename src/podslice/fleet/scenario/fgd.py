"""Validation: does the engine reproduce the published tables of FGD's artifact (USENIX ATC 2023)?

17 workloads, 6 policies, 10 seeds: the share of GPUs that is allocated as pods arrive, without departures. The artifact
has the tables; docs/development/fleet-engine.md describes its experiment, tie rule included. Traces and tables are not
part of podslice.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import mean, variance
from typing import Any, NamedTuple

import msgspec

from podslice.api.pod.spec import Pod, PodSpec
from podslice.config.kubelet import KubeletConfig
from podslice.fleet.engine.nodes import Fleet, FleetClass, FleetNode
from podslice.fleet.engine.options import CellOptions, PolicyName
from podslice.fleet.engine.run import rare_collections
from podslice.fleet.engine.shapes import FleetShape, SchedulerRequests
from podslice.fleet.engine.streams import draw_below, shuffle, stream
from podslice.fleet.engine.workload import Workload
from podslice.fleet.traces.trace import TracePod, open_trace
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.values.errors import InputError

PUBLISHED: Mapping[PolicyName, str] = {
    "fgd": "06-FGD",
    "best-fit": "05-BestFit",
    "dot-product": "02-DotProd",
    "gpu-packing": "04-GpuPacking",
    "gpu-clustering": "03-GpuClustering",
    "random": "01-Random",
}
"""The artifact's names of policies."""
POINTS = (60, 80, 90, 95, 100, 120)
"""Points of comparison: requested GPUs of the pods that have arrived, in percent of all GPUs."""
SEEDS, QUICK_SEEDS, QUICK_WORKLOAD = 10, 3, "default"
_TRACES, _TABLES = "alibaba-gpu-v2023", "hkust-simulator/expected"
_NODES, _PODS, _TABLE = "openb_node_list_gpu_node.csv", "openb_pod_list_{}.csv.gz", "analysis_allo_discrete.csv.gz"
_INFLATED = 1300
"""GPUs requested by all pods together, in thousandths of all GPUs."""
_MOST_PODS = 1001
_LEAST_BAND, _ERRORS, _FAR, _MAY_BE_OUTSIDE = 0.15, 2.5, 1.0, 0.03


class FGDRun(NamedTuple):
    """One run: a list of pods, a policy, a seed."""

    workload: str
    policy: PolicyName
    seed: int


Curve = dict[int, float]
"""Allocated GPUs by requested GPUs of arrived pods, both in percent of all GPUs."""


class FGDPoint(msgspec.Struct, frozen=True, rename="camel"):
    """Our mean and the published one at one point, in percent of all GPUs, with the standard deviations over seeds.
    `band`: the tolerated difference, 0.15 or 2.5 standard errors of the difference, assuming equal variance of both."""

    workload: str
    policy: str
    percent: int
    seeds: int
    ours: float
    ours_deviation: float
    published: float
    published_deviation: float
    band: float

    @property
    def difference(self) -> float:
        """Our mean less the published one."""
        return self.ours - self.published

    @property
    def inside(self) -> bool:
        """Whether the difference is within what chance explains."""
        return abs(self.difference) <= self.band


class FGDVerdict(NamedTuple):
    """All points, and whether they agree: at most 3 % outside of their bands, none off by more than a percent."""

    points: tuple[FGDPoint, ...]

    @property
    def outside(self) -> int:
        """Number of points outside of their bands."""
        return sum(not point.inside for point in self.points)

    @property
    def worst(self) -> float:
        """The largest absolute difference."""
        return max((abs(point.difference) for point in self.points), default=0.0)

    @property
    def agrees(self) -> bool:
        """Whether podslice reproduces the published tables."""
        return self.outside <= _MAY_BE_OUTSIDE * len(self.points) and self.worst <= _FAR


class FGDTraces:
    """The folder with the artifact's lists and tables. Raises `InputError` where a file is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for needed in (folder / _TRACES / _NODES, folder / _TABLES / _TABLE):
            if not needed.is_file():
                raise InputError(
                    f"has no {needed.relative_to(folder)}",
                    path=str(folder),
                    remedy="name the folder with alibaba-gpu-v2023 and hkust-simulator of the FGD artifact",
                )

    def workloads(self) -> list[str]:
        """Return the names of the available lists of pods."""
        before, after = _PODS.split("{}")
        found = (path.name for path in (self.folder / _TRACES).glob(_PODS.format("*")))
        return sorted(name.removeprefix(before).removesuffix(after) for name in found)

    def read_published(self, workload: str, policy: PolicyName) -> list[Curve]:
        """Return the published curves, one for each seed."""
        wanted = f"openb_pod_list_{workload}", PUBLISHED[policy]
        with gzip.open(self.folder / _TABLES / _TABLE, "rt", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if (row["workload"], row["sc_policy"]) == wanted]
        return [{int(name): float(cell) for name, cell in row.items() if name.isdigit() and cell} for row in rows]

    def fleet(self) -> Fleet:
        """Return the nodes with GPUs. Their kubelets refuse nothing, so the machine behind them does not matter."""
        started = Node(from_synthetic("pack:1 numa:1 core:1 pu:1"), KubeletConfig(), predicates=False)
        classes: dict[tuple[int, int, int, str], FleetClass] = {}
        nodes = []
        with open_trace(self.folder / _TRACES / _NODES) as opened:
            rows = list(opened.nodes())
        for row in rows:
            key = row.cpu, row.memory or 0, row.gpus, row.model
            if key not in classes:
                room = {"cpu": row.cpu, "memory": row.memory or 0, "pods": _MOST_PODS}
                classes[key] = FleetClass(
                    name=f"{row.cpu // 1000} CPUs, {row.gpus} {row.model}",
                    rules=started.rules,
                    state=started.state,
                    allocatable=room,
                    gpus=row.gpus,
                    gpu_model=row.model,
                )
            nodes.append(FleetNode(row.name, list(classes).index(key)))
        return Fleet(tuple(classes.values()), tuple(nodes))

    def pods(self, workload: str) -> list[TracePod]:
        """Return a list of pods, sorted by name."""
        path = self.folder / _TRACES / _PODS.format(workload)
        if not path.is_file():
            raise InputError(f"has no list {workload}", path=str(self.folder), remedy=", ".join(self.workloads()))
        with open_trace(path) as opened:
            return sorted(opened.pods(), key=lambda pod: pod.name)


def total_milli_gpus(fleet: Fleet) -> int:
    """Return the milli-GPUs of all nodes."""
    return sum(1000 * fleet.classes[node.kind].gpus for node in fleet.nodes)


def inflate(pods: list[TracePod], seed: int, gpus: int) -> tuple[Workload, tuple[int, ...]]:
    """Return shuffled pods, drawn again from the list until they request 1.3 times all milli-`gpus`, and the pods of
    each shape in the list itself.

    The first draw that would exceed the total, counting its milli once, is the last; of longer lists pods are removed.
    """
    shapes: dict[tuple[object, ...], FleetShape] = {}
    rows: list[int] = []
    for pod in pods:
        key = pod.cpu, pod.memory, pod.gpus, pod.gpu_milli, pod.models
        if key not in shapes:
            shapes[key] = _shape(pod)
        rows.append(list(shapes).index(key))
    known = list(shapes.values())
    requests = [shape.gpu_request for shape in known]
    chosen, draws = list(rows), stream(seed, "inflate")
    shuffle(stream(seed, "shuffle"), chosen)
    asked, most = sum(requests[shape] for shape in chosen), gpus * _INFLATED // 1000
    while asked > most:
        asked -= requests[chosen.pop(draw_below(draws, len(chosen)))]
    # The artifact counts a multi-GPU pod's milli once when it decides whether to stop.
    while asked + known[shape := rows[draw_below(draws, len(rows))]].gpu_milli <= most:
        chosen.append(shape)
        asked += requests[shape]
    usual = tuple(rows.count(shape) for shape in range(len(known)))
    return Workload.of(known, chosen, range(len(chosen))), usual


def _shape(pod: TracePod) -> FleetShape:
    """Return a shape by sums only: the artifact's nodes have no kubelet."""
    amounts = {"cpu": pod.cpu, "memory": pod.memory}
    return FleetShape(
        name=f"{pod.cpu}m, {pod.gpus} x {pod.gpu_milli}",
        pod=Pod(spec=PodSpec()),
        requests=SchedulerRequests(amounts, amounts, amounts, amounts, amounts),
        gpus=pod.gpus,
        gpu_milli=pod.gpu_milli if pod.gpus else 0,
        gpu_models=pod.models,
    )


def run_one(folder: Path, run: FGDRun) -> Curve:
    """Simulate one run and return its curve."""
    from podslice.fleet.engine.run import run_cell

    traces = FGDTraces(folder)
    fleet = traces.fleet()
    gpus = total_milli_gpus(fleet)
    workload, usual = inflate(traces.pods(run.workload), run.seed, gpus)
    options = CellOptions(
        policy=run.policy,
        ties="permuted",
        percentage=100,
        retry="never",
        sample_arrivals=True,
        metrics=(),
        usual=usual,
    )
    with rare_collections():
        series = run_cell(fleet, workload, options, run.seed).series
    return make_curve(series["arrived_milli"], series["gpu_milli"], gpus)


def make_curve(arrived: Iterable[int], allocated: Iterable[int], gpus: int) -> Curve:
    """Return the mean allocation over all arrivals that round to the same percent, half to even."""
    sums: dict[int, list[int]] = {}
    for came, has in zip(arrived, allocated, strict=True):
        found = sums.setdefault(round(came * 100 / gpus), [0, 0])
        found[0] += has
        found[1] += 1
    return {percent: total * 100 / (count * gpus) for percent, (total, count) in sums.items()}


def value_at(found: Curve, percent: int) -> float:
    """Return the value of a curve at a percent; between its neighbours where no arrival rounded to it."""
    if percent in found:
        return found[percent]
    before = max((one for one in found if one < percent), default=None)
    after = min((one for one in found if one > percent), default=None)
    return mean(found[one] for one in (before, after) if one is not None)


def plan_runs(traces: FGDTraces, *, quick: bool, seeds: int, workloads: Iterable[str] = ()) -> list[FGDRun]:
    """Return the runs: all workloads and policies with one seed, then with the next."""
    lists = list(workloads) or ([QUICK_WORKLOAD] if quick else traces.workloads())
    # Seeds are the outer loop, so that a validation which is stopped has some seeds of everything.
    numbers = range(min(seeds, QUICK_SEEDS) if quick else seeds)
    return [FGDRun(workload, policy, seed) for seed, workload, policy in product(numbers, lists, PUBLISHED)]


class CurveFile:
    """Curves of finished runs, a JSON line each, from which a stopped validation continues."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.curves: dict[FGDRun, Curve] = {}
        text = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
        self._before = "" if text.endswith("\n") or not text else "\n"
        """Ends an incomplete line that a stopped validation has left."""
        for line in text.splitlines():
            try:
                workload, policy, seed, values = json.loads(line)
            # The last line of a validation that was killed may be cut.
            except ValueError:
                continue
            self.curves[FGDRun(workload, policy, seed)] = {int(percent): value for percent, value in values.items()}

    def add(self, run: FGDRun, found: Curve) -> None:
        """Append a curve. Raises `InputError` where the file cannot be written."""
        self.curves[run] = found
        if self._path is not None:
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(self._before + json.dumps([*run, found]) + "\n")
            except OSError as error:
                remedy = "make room and run again; lines that are whole are kept"
                raise InputError(
                    f"cannot be written: {error.strerror}", source=str(self._path), remedy=remedy
                ) from None
            self._before = ""


def run_all(folder: Path, runs: list[FGDRun], kept: CurveFile, workers: int) -> Iterator[FGDRun]:
    """Simulate the runs that have no curve yet; yield each when it is done."""
    missing = [run for run in runs if run not in kept.curves]
    if workers < 2:
        for run in missing:
            kept.add(run, run_one(folder, run))
            yield run
        return
    pool: Executor
    with ProcessPoolExecutor(workers) as pool:
        waiting: dict[Any, FGDRun] = {pool.submit(run_one, folder, run): run for run in missing}
        for done in as_completed(waiting):
            kept.add(waiting[done], done.result())
            yield waiting[done]


def compare(traces: FGDTraces, curves: Mapping[FGDRun, Curve]) -> FGDVerdict:
    """Compare our curves with the published tables."""
    pairs = sorted({(run.workload, run.policy) for run in curves})
    return FGDVerdict(tuple(point for pair in pairs for point in _points(traces, curves, *pair)))


def _points(traces: FGDTraces, curves: Mapping[FGDRun, Curve], workload: str, policy: PolicyName) -> Iterator[FGDPoint]:
    """Yield the comparisons of a list of pods and a policy."""
    published = traces.read_published(workload, policy)
    ours = [found for run, found in sorted(curves.items()) if (run.workload, run.policy) == (workload, policy)]
    for percent in POINTS:
        theirs, mine = [value_at(one, percent) for one in published], [value_at(one, percent) for one in ours]
        spread, own = variance(theirs), variance(mine) if len(mine) > 1 else 0.0
        count, others = len(mine), len(theirs)
        # With one seed of ours only the artifact's variance remains.
        pooled = ((count - 1) * own + (others - 1) * spread) / (count + others - 2)
        band = max(_LEAST_BAND, _ERRORS * sqrt(pooled * (1 / count + 1 / others)))
        yield FGDPoint(
            workload, policy, percent, len(mine), mean(mine), sqrt(own), mean(theirs), sqrt(spread), band
        )  # fmt: skip
