"""The pods of a scenario: rows of traces, made-up ones and manifests become one list in order of arrival.

Everything here depends on the scenario, the transform and the seed, and not on what is compared: every configuration
meets the same pods at the same times.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from podslice.core.errors import InputError
from podslice.core.fleet.nodes import FleetNode
from podslice.core.fleet.shapes import FleetShape
from podslice.core.fleet.streams import below, shuffle, stream
from podslice.core.fleet.workload import NEVER, Workload
from podslice.core.node import identified
from podslice.core.pod.spec import Pod
from podslice.core.quirks import Quirks
from podslice.fleet.columns import Column, checked_column
from podslice.fleet.inputs import Inputs
from podslice.fleet.kube_pods import ClusterPod, cluster_pods
from podslice.fleet.reading import Reader, manifest_shape, placed
from podslice.fleet.scenario import (
    FleetScenario,
    Inflate,
    Lifetime,
    Reading,
    Synthetic,
    SyntheticLifetime,
    SyntheticShapes,
    TransformEntry,
    WorkloadEntry,
)
from podslice.fleet.strict import milliseconds, quantity
from podslice.fleet.trace import TracePod, open_trace
from podslice.k8s.manifest import load_pods

_STEP = 1000
"""Milliseconds between pods that have no times of their own."""
_MOST_PODS = 50_000_000
_OWNERS = {"Job": "job", "CronJob": "job", "Pod": "bare", "DaemonSet": "daemonset"}


class Capacity(NamedTuple):
    """What all nodes have: milli of GPUs, milli-CPUs."""

    gpu: int
    cpu: int


class _Pod(NamedTuple):
    arrival: int
    shape: FleetShape
    length: int
    node: int = NEVER
    there: str = ""
    """Its UID in the state with which its node begins, if it is in that."""


class Kubelets(NamedTuple):
    """What of the kubelets decides how pods are seen."""

    gates: Mapping[str, bool]
    quirks: Quirks


def build_workload(
    scenario: FleetScenario,
    inputs: Inputs,
    *,
    transform: TransformEntry,
    seed: int,
    kubelets: Kubelets,
    capacity: Capacity,
    nodes: Sequence[FleetNode],
) -> Workload:
    """The pods of a transform and a seed. Raises `InputError`."""
    pods: list[_Pod] = []
    for index, entry in enumerate(scenario.workload):
        maker = _PodMaker(scenario, inputs, f"workload[{index}]", transform, seed, kubelets)
        if entry.manifests:
            pods += maker.of_manifests(entry, len(nodes))
        elif entry.cluster:
            pods += maker.of_cluster(entry, nodes)
        elif entry.synthetic is not None:
            pods += maker.of_synthetic(entry, entry.synthetic)
        else:
            pods += maker.of_trace(entry, capacity)
        if len(pods) > _MOST_PODS:
            raise InputError(f"makes more than {_MOST_PODS} pods", path=f"workload[{index}]")
    pods.sort(key=lambda pod: pod.arrival)
    return _columns(pods)


def _columns(pods: Sequence[_Pod]) -> Workload:
    numbers: dict[int, int] = {}
    shapes: list[FleetShape] = []
    column = array("q")
    for pod in pods:
        number = numbers.get(id(pod.shape))
        if number is None:
            number = numbers[id(pod.shape)] = len(shapes)
            shapes.append(pod.shape)
        column.append(number)
    return Workload.of(
        shapes,
        column,
        (pod.arrival for pod in pods),
        (pod.length for pod in pods),
        (pod.node for pod in pods),
        {number: pod.there for number, pod in enumerate(pods) if pod.there},
    )


def columns_of(texts: Mapping[str, str], where: str) -> tuple[tuple[str, Column], ...]:
    """`columns` of a scenario: meaning to `column` or `column:unit`. Raises `InputError`."""
    found = []
    for meaning, text in texts.items():
        name, colon, unit = text.rpartition(":")
        column = Column(name, unit) if colon else Column(text)
        found.append((meaning, checked_column(meaning, column, path=f"{where}.columns.{meaning}")))
    return tuple(found)


@cache
def read_pods(path: Path, columns: tuple[tuple[str, Column], ...]) -> tuple[TracePod, ...]:
    """All pods of a trace, read once a process. Raises `InputError`."""
    with open_trace(path, dict(columns), rows="pods") as opened:
        return tuple(opened.pods())


class _PodMaker:
    """Makes the pods of one entry of a workload."""

    def __init__(
        self,
        scenario: FleetScenario,
        inputs: Inputs,
        where: str,
        transform: TransformEntry,
        seed: int,
        kubelets: Kubelets,
    ) -> None:
        self.scenario = scenario
        self.inputs = inputs
        self.where = where
        self.transform = transform
        self.seed = seed
        self.kubelets = kubelets

    def reader(self, reading: Reading) -> Reader:
        """Makes shapes of rows."""
        return Reader(
            reading,
            gates=self.kubelets.gates,
            quirks=self.kubelets.quirks,
            transform=self.transform,
            owner=self.scenario.refusals.owner,
        )

    def rows(self, name: str, columns: Mapping[str, str]) -> list[TracePod]:
        """The pods of a trace."""
        path = self.inputs.path(name, where=f"{self.where}.trace")
        return list(read_pods(path, columns_of(columns, self.where)))

    def of_trace(self, entry: WorkloadEntry, capacity: Capacity) -> list[_Pod]:
        rows = self.rows(entry.trace, entry.columns)
        begin, rows = _window(rows, entry.reading, self.where)
        if entry.order == "shuffle":
            shuffle(stream(self.seed, "shuffle"), rows)
        elif entry.order == "size":
            rows.sort(key=lambda row: (-row.gpus * row.gpu_milli, -row.cpu, -row.memory))
        timed = any(row.arrival is not None for row in rows) and (entry.inflate is None or entry.inflate.to is None)
        arrivals = sorted(_arrival(row, begin) for row in rows) if timed else []
        if entry.inflate is not None:
            rows, arrivals = inflated(rows, arrivals, entry.inflate, capacity, stream(self.seed, "inflate"))
        if not timed:
            arrivals = [number * _STEP for number in range(len(rows))]
        elif entry.order == "trace":
            rows.sort(key=lambda row: _arrival(row, begin))
        scale = entry.reading.time.scale if timed else 1.0
        lengths = self._lengths(entry, rows, begin)
        shape = self.reader(entry.reading).shape
        return [
            _Pod(round(arrival * scale), shape(row), length)
            for arrival, row, length in zip(arrivals, rows, lengths, strict=True)
        ]

    def _lengths(self, entry: WorkloadEntry, rows: list[TracePod], begin: int) -> Iterator[int]:
        how, scale = entry.departures, entry.reading.time.scale
        if how == "none":
            return (NEVER for _ in rows)
        if isinstance(how, Lifetime):
            mean = milliseconds(how.mean, f"{self.where}.departures.mean")
            chance = stream(self.seed, "lifetimes")
            return (mean if how.lifetime == "constant" else _exponential(chance, mean) for _ in rows)
        if all(row.end is None for row in rows):
            remedy = "departures: none, or a lifetime"
            raise InputError("the trace has no ends", path=f"{self.where}.departures", remedy=remedy)
        return (
            NEVER if row.end is None else round((row.end - max(row.arrival or begin, begin)) * scale) for row in rows
        )

    def of_synthetic(self, entry: WorkloadEntry, made: Synthetic) -> list[_Pod]:
        shapes, weights = self._shapes(entry, made)
        total = sum(weights)
        bounds, reached = [], 0
        for weight in weights:
            reached += weight
            bounds.append(reached)
        which, chance = stream(self.seed, "sample"), stream(self.seed, "lifetimes")
        arrivals = _arrivals(made, stream(self.seed, "arrivals"), self.where)
        return [
            _Pod(arrival, shapes[bisect_right(bounds, below(which, total))], _length(made.lifetime, chance, self.where))
            for arrival, _ in zip(arrivals, range(made.pods), strict=False)
        ]

    def _shapes(self, entry: WorkloadEntry, made: Synthetic) -> tuple[list[FleetShape], list[int]]:
        shape = self.reader(entry.reading).shape
        counts: dict[int, tuple[FleetShape, int]] = {}
        where = f"{self.where}.synthetic.shapes"
        if isinstance(made.shapes, SyntheticShapes):
            rows = [(row, 1) for row in self.rows(made.shapes.origin, made.shapes.columns)]
        else:
            rows = [
                (
                    TracePod(
                        f"{where}[{index}]",
                        quantity(one.cpu, f"{where}[{index}].cpu").milli_value(),
                        quantity(one.memory, f"{where}[{index}].memory").value(),
                        one.gpus,
                        1000 if one.gpus else 0,
                    ),
                    one.weight,
                )
                for index, one in enumerate(made.shapes)
            ]
        for row, weight in rows:
            found = shape(row)
            counts[id(found)] = (found, counts.get(id(found), (found, 0))[1] + max(weight, 0))
        if not sum(count for _, count in counts.values()):
            raise InputError("are none", path=where)
        return [found for found, _ in counts.values()], [count for _, count in counts.values()]

    def of_cluster(self, entry: WorkloadEntry, nodes: Sequence[FleetNode]) -> list[_Pod]:
        """The pods of a dump: at once and on their nodes those that run, in order of their start, then the others; of a
        history each when it came."""
        path = self.inputs.path(entry.cluster, where=f"{self.where}.cluster")
        numbers = {node.name: number for number, node in enumerate(nodes)}
        shapes: dict[str, FleetShape] = {}
        found = []
        dumped = cluster_pods(path, frozenset(numbers), entry.since).pods
        keys = frozenset(key for one in dumped for key in one.placed.placement.label_keys)
        for one in dumped:
            owner = self.scenario.refusals.owner or one.owner
            where = one.placed._replace(placement=one.placed.placement.seen_by(keys))
            key = f"{owner} {replace(one.pod.spec, node_name='')} {_resized(one.pod)} {where}"
            if key not in shapes:
                shapes[key] = manifest_shape(
                    one.pod, one.name, owner, where, gates=self.kubelets.gates, quirks=self.kubelets.quirks
                )
            node = numbers[one.node] if one.node else NEVER
            arrival = one.arrival if entry.since or one.node else _STEP
            found.append(_Pod(arrival, shapes[key], one.length, node, _there(one, nodes[node]) if one.node else ""))
        return found

    def of_manifests(self, entry: WorkloadEntry, nodes: int) -> list[_Pod]:
        """Pods of DaemonSets first, one for each node, then the others in the order of their files."""
        first: list[_Pod] = []
        others: list[_Pod] = []
        for path in self.inputs.paths(entry.manifests, where=f"{self.where}.manifests"):
            known: dict[str, FleetShape] = {}
            for loaded in load_pods(str(path), replicas=True):
                key = f"{loaded.document}{loaded.path}"
                if key not in known:
                    owner = self.scenario.refusals.owner or _OWNERS.get(loaded.kind, "deployment")
                    name = f"{loaded.kind} {loaded.pod.metadata.name}"
                    known[key] = manifest_shape(
                        loaded.pod, name, owner, placed(loaded.data),  # type: ignore[arg-type]  # one of the owners above
                        gates=self.kubelets.gates, quirks=self.kubelets.quirks,
                    )  # fmt: skip
                    if loaded.kind == "DaemonSet":
                        first += [_Pod(0, known[key], NEVER, node) for node in range(nodes)]
                if loaded.kind != "DaemonSet":
                    others.append(_Pod(len(others) * _STEP, known[key], NEVER))
        return first + others


def _resized(pod: Pod) -> list[object]:
    """What containers have, which a resize may have made another amount than their specification says."""
    status = pod.status
    both = (*status.container_statuses, *status.init_container_statuses)
    return [(one.name, one.resources, one.allocated_resources) for one in both]


def _there(one: ClusterPod, node: FleetNode) -> str:
    """The UID of a pod in the state with which its node begins; empty where it is not in it."""
    uid = identified(one.pod).metadata.uid
    return uid if node.start is not None and uid in node.start.pods else ""


# Traces


def _window(rows: list[TracePod], reading: Reading, where: str) -> tuple[int, list[TracePod]]:
    """The beginning of the window in the trace's time, and the pods that arrive in it; those without arrival run when
    the trace begins."""
    time = reading.time
    start = milliseconds(time.start, f"{where}.reading.time.start")
    until = None if time.until is None else milliseconds(time.until, f"{where}.reading.time.until")
    first = min((row.arrival for row in rows if row.arrival is not None), default=0)
    begin = first + start
    if not start and until is None:
        return begin, rows
    end = None if until is None else first + until
    kept = [
        row
        for row in rows
        if (end is None or _arrival(row, begin) + begin < end)
        and (row.arrival is None or row.arrival >= begin)
        and (row.end is None or row.end > begin)
    ]
    return begin, kept


def _arrival(row: TracePod, begin: int) -> int:
    return 0 if row.arrival is None else max(row.arrival - begin, 0)


def inflated(
    rows: list[TracePod], arrivals: list[int], how: Inflate, capacity: Capacity, chance: Random
) -> tuple[list[TracePod], list[int]]:
    """More or fewer pods. Drawn uniformly with replacement up to a load, as FGD's artifact does: the first draw that
    would exceed it ends the drawing; a list above it loses pods at random."""
    if how.copies is not None or how.rate is not None:
        return _multiplied(rows, arrivals, float(how.copies or how.rate or 1), chance)
    whole = capacity.gpu if how.of == "gpu" else capacity.cpu
    limit = round((how.to or 0) * whole)
    asked = _gpu_request if how.of == "gpu" else _cpu_request
    pool, found = list(rows), list(rows) if how.keep else []
    load = sum(map(asked, found))
    while load > limit and found:
        load -= asked(found.pop(below(chance, len(found))))
    if not any(map(asked, pool)):
        return found, arrivals
    while True:
        row = pool[below(chance, len(pool))]
        if load + asked(row) > limit:
            return found, arrivals
        load += asked(row)
        found.append(row)


def _gpu_request(row: TracePod) -> int:
    return row.gpus * row.gpu_milli


def _cpu_request(row: TracePod) -> int:
    return row.cpu


def _multiplied(
    rows: list[TracePod], arrivals: list[int], times: float, chance: Random
) -> tuple[list[TracePod], list[int]]:
    """The list so many times, each copy at the same moments; of the last one a random part where `times` is no whole
    number."""
    whole, part = divmod(times, 1.0)
    places = [place for place in range(len(rows)) for _ in range(int(whole) + (chance.random() < part))]
    return [rows[place] for place in places], [arrivals[place] for place in places] if arrivals else []


# Made-up pods


def _arrivals(made: Synthetic, chance: Random, where: str) -> Iterator[int]:
    path = f"{where}.synthetic.arrivals"
    if (made.arrivals.poisson is None) == (made.arrivals.every is None):
        raise InputError("needs exactly one of poisson and every", path=path)
    if made.arrivals.every is not None:
        return _evenly(milliseconds(made.arrivals.every, f"{path}.every"))
    rate, _, unit = str(made.arrivals.poisson).partition("/")
    seconds = {"s": 1, "min": 60, "h": 3600}.get(unit)
    try:
        mean = (seconds or 0) * 1000 / float(rate)
    except (ValueError, ZeroDivisionError):
        mean = 0
    if mean <= 0:
        raise InputError(f"{made.arrivals.poisson!r} is no rate", path=f"{path}.poisson", remedy="write 40/s or 5/min")
    return _poisson(mean, chance)


def _evenly(step: int) -> Iterator[int]:
    at = 0
    while True:
        yield at
        at += step


def _poisson(mean: float, chance: Random) -> Iterator[int]:
    at = 0.0
    while True:
        at -= mean * math.log(1.0 - chance.random())
        yield round(at)


def _exponential(chance: Random, mean: int) -> int:
    return round(-mean * math.log(1.0 - chance.random()))


def _length(how: SyntheticLifetime | None, chance: Random, where: str) -> int:
    path = f"{where}.synthetic.lifetime"
    if how is None:
        return NEVER
    if how.lognormal is not None:
        mu, sigma = how.lognormal
        return round(1000 * math.exp(mu + sigma * _normal(chance)))
    if how.exponential is not None:
        return _exponential(chance, milliseconds(how.exponential, f"{path}.exponential"))
    if how.constant is not None:
        return milliseconds(how.constant, f"{path}.constant")
    raise InputError("needs lognormal, exponential or constant", path=path)


def _normal(chance: Random) -> float:
    """One draw of a standard normal distribution (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - chance.random()))
    return radius * math.cos(2.0 * math.pi * chance.random())


def span(workload: Workload) -> int:
    """Milliseconds from the first arrival to the last."""
    return workload.arrival[-1] - workload.arrival[0] if len(workload) else 0
