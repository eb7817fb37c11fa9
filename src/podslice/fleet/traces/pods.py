"""The pods of a scenario: rows of traces, synthetic pods and manifests become one list in order of arrival.

Everything here depends on the scenario, the transform and the seed, and not on what is compared: every configuration
meets the same pods at the same times.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.manifests.manifest import Manifests, load_manifests
from podslice.api.manifests.pipeline import ReadOptions
from podslice.api.pod.spec import Pod
from podslice.fleet.engine.nodes import FleetNode
from podslice.fleet.engine.shapes import FleetShape, Owner
from podslice.fleet.engine.streams import draw_below, shuffle, stream
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.importing.kube_budgets import budgets_of
from podslice.fleet.importing.kube_pods import ClusterPod, cluster_pods
from podslice.fleet.scenario.inputs import Inputs
from podslice.fleet.scenario.scenario import (
    FleetScenario,
    Lifetime,
    Reading,
    Synthetic,
    SyntheticShapes,
    TransformEntry,
    WorkloadEntry,
)
from podslice.fleet.scenario.strict import milliseconds, quantity
from podslice.fleet.scheduler.placement import NAME_LABEL, placement_of
from podslice.fleet.traces.columns import Column, check_column
from podslice.fleet.traces.reading import Reader, manifest_shape
from podslice.fleet.traces.synthetic import arrivals_of, draw_exponential, draw_length
from podslice.fleet.traces.trace import TracePod, open_trace
from podslice.fleet.traces.trace_load import Capacity, arrival_in, inflate, select_window
from podslice.node.node import with_default_uid
from podslice.scheduling.taints import Tolerations
from podslice.values.errors import InputError
from podslice.values.quirks import Quirks

_STEP = 1000
"""Milliseconds between pods that have no times of their own."""
_MOST_PODS = 50_000_000
_OWNERS: dict[str, Owner] = {"Pod": "bare", "DaemonSet": "daemonset"}
_JOBS = ("Job", "JobSet", "Workflow", "SparkApplication")
"""Ends of kinds whose pods run to an end: PyTorchJob, CronWorkflow."""


class _ScheduledPod(NamedTuple):
    arrival: int
    shape: FleetShape
    length: int
    node: int = NEVER
    initial_uid: str = ""
    """The pod's UID in the state with which its node begins, "" where it is not in that."""


class Kubelets(NamedTuple):
    """The settings of kubelets that affect the requests of pods."""

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
    """Return the pods of a transform and a seed. Raises `InputError`."""
    pods: list[_ScheduledPod] = []
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
    # Stable: pods of one moment stay in the order of their entries.
    pods.sort(key=lambda pod: pod.arrival)
    return _columns(pods)


def _columns(pods: Sequence[_ScheduledPod]) -> Workload:
    """Return the pods as columns, with each shape once."""
    numbers: dict[int, int] = {}
    shapes: list[FleetShape] = []
    column = array("q")
    for pod in pods:
        # Equal pods share one shape object, whose identity is cheaper to look up than its value.
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
        {number: pod.initial_uid for number, pod in enumerate(pods) if pod.initial_uid},
    )


def columns_of(texts: Mapping[str, str], where: str) -> tuple[tuple[str, Column], ...]:
    """Parse `columns` of a scenario: meaning to `column` or `column:unit`. Raises `InputError`."""
    found = []
    for meaning, text in texts.items():
        name, colon, unit = text.rpartition(":")
        column = Column(name, unit) if colon else Column(text)
        found.append((meaning, check_column(meaning, column, path=f"{where}.columns.{meaning}")))
    return tuple(found)


@cache
def read_pods(path: Path, columns: tuple[tuple[str, Column], ...]) -> tuple[TracePod, ...]:
    """Return all pods of a trace, read once in a process. Raises `InputError`."""
    with open_trace(path, dict(columns), rows="pods", in_file=True) as opened:
        return tuple(opened.pods())


def _owner_of(kind: str) -> Owner:
    return _OWNERS.get(kind) or ("job" if kind.endswith(_JOBS) else "deployment")


def read_manifests_of(inputs: Inputs, entry: WorkloadEntry, where: str) -> Manifests:
    """Return the pods of the manifests of an entry, and lines about what was read. Raises `InputError`."""
    place = f"{where}.manifests"
    return _read_manifests(tuple(map(str, inputs.paths(entry.manifests, where=place))), place)


@cache
def _read_manifests(paths: tuple[str, ...], place: str) -> Manifests:
    # Of several files some may hold no pods, such as Services beside the workloads.
    found = load_manifests(paths, ReadOptions(replicas=True, needs_pods=len(paths) == 1))
    if not found.pods:
        raise InputError(f"{len(paths)} files hold no pods", path=place, remedy="name others")
    return found


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
        """Return the reader that makes shapes of rows."""
        return Reader(
            reading,
            gates=self.kubelets.gates,
            quirks=self.kubelets.quirks,
            transform=self.transform,
            owner=self.scenario.refusals.owner,
        )

    def rows(self, name: str, columns: Mapping[str, str]) -> list[TracePod]:
        """Return the pods of a trace."""
        path = self.inputs.path(name, where=f"{self.where}.trace")
        return list(read_pods(path, columns_of(columns, self.where)))

    def of_trace(self, entry: WorkloadEntry, capacity: Capacity) -> list[_ScheduledPod]:
        """Return the pods of a trace, in a window, ordered and inflated as the entry says."""
        rows = self.rows(entry.trace, entry.columns)
        begin, rows = select_window(rows, entry.reading, self.where)
        if entry.order == "shuffle":
            shuffle(stream(self.seed, "shuffle"), rows)
        elif entry.order == "size":
            rows.sort(key=lambda row: (-row.gpus * row.gpu_milli, -row.cpu, -row.memory))
        timed = any(row.arrival is not None for row in rows) and (entry.inflate is None or entry.inflate.to is None)
        # The moments are those of the trace in any order; which pod arrives at which depends on `order`.
        arrivals = sorted(arrival_in(row, begin) for row in rows) if timed else []
        if entry.inflate is not None:
            rows, arrivals = inflate(rows, arrivals, entry.inflate, capacity, stream(self.seed, "inflate"))
        if not timed:
            arrivals = [number * _STEP for number in range(len(rows))]
        elif entry.order == "trace":
            rows.sort(key=lambda row: arrival_in(row, begin))
        scale = entry.reading.time.scale if timed else 1.0
        lengths = self._lengths(entry, rows, begin)
        shape = self.reader(entry.reading).shape
        return [
            _ScheduledPod(round(arrival * scale), shape(row), length)
            for arrival, row, length in zip(arrivals, rows, lengths, strict=True)
        ]

    def _lengths(self, entry: WorkloadEntry, rows: list[TracePod], begin: int) -> Iterator[int]:
        """Yield the run times in milliseconds, `NEVER` for pods that do not end."""
        how, scale = entry.departures, entry.reading.time.scale
        if how == "none":
            return (NEVER for _ in rows)
        if isinstance(how, Lifetime):
            mean = milliseconds(how.mean, f"{self.where}.departures.mean")
            chance = stream(self.seed, "lifetimes")
            return (mean if how.lifetime == "constant" else draw_exponential(chance, mean) for _ in rows)
        if all(row.end is None for row in rows):
            remedy = "departures: none, or a lifetime"
            raise InputError("the trace has no ends", path=f"{self.where}.departures", remedy=remedy)
        return (
            NEVER if row.end is None else round((row.end - max(row.arrival or begin, begin)) * scale) for row in rows
        )

    def of_synthetic(self, entry: WorkloadEntry, made: Synthetic) -> list[_ScheduledPod]:
        """Return pods whose shapes, arrivals and run times are drawn."""
        shapes, weights = self._shapes(entry, made)
        total = sum(weights)
        bounds, reached = [], 0
        for weight in weights:
            reached += weight
            bounds.append(reached)
        # One stream for each purpose: another run time does not change which shapes are drawn.
        which, chance = stream(self.seed, "sample"), stream(self.seed, "lifetimes")
        arrivals = arrivals_of(made, stream(self.seed, "arrivals"), self.where)
        return [
            _ScheduledPod(
                arrival,
                shapes[bisect_right(bounds, draw_below(which, total))],
                draw_length(made.lifetime, chance, self.where),
            )
            for arrival, _ in zip(arrivals, range(made.pods), strict=False)
        ]

    def _shapes(self, entry: WorkloadEntry, made: Synthetic) -> tuple[list[FleetShape], list[int]]:
        """Return shapes and their weights."""
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

    def of_cluster(self, entry: WorkloadEntry, nodes: Sequence[FleetNode]) -> list[_ScheduledPod]:
        """Return the pods of a dump: running ones first, on their nodes and in order of their start, then the pending
        ones; of a history each at its arrival."""
        path = self.inputs.path(entry.cluster, where=f"{self.where}.cluster")
        numbers = {node.name: number for number, node in enumerate(nodes)}
        shapes: dict[tuple[str, Tolerations], FleetShape] = {}
        found = []
        dumped = cluster_pods(path, frozenset(numbers), entry.since).pods
        keys = frozenset(key for one in dumped for key in one.placement.label_keys) | self._budget_keys()
        for one in dumped:
            owner = self.scenario.refusals.owner or one.owner
            where = one.placement.keep_labels(keys)
            # Equal sets may print differently: tolerations are compared as values.
            rules = where._replace(tolerations=Tolerations())
            text = f"{owner} {replace(one.pod.spec, node_name='')} {_actual_resources(one.pod)} {rules}"
            key = text, where.tolerations
            if key not in shapes:
                shapes[key] = manifest_shape(
                    one.pod, one.name, owner, where, gates=self.kubelets.gates, quirks=self.kubelets.quirks
                )
            node = numbers[one.node] if one.node else NEVER
            arrival = one.arrival if entry.since or one.node else _STEP
            found.append(
                _ScheduledPod(
                    arrival, shapes[key], one.length, node, _initial_uid(one, nodes[node]) if one.node else ""
                )
            )
        return found

    def _budget_keys(self) -> frozenset[str]:
        """Return the label keys that budgets select by. Namespaces must differ as soon as any selector exists."""
        selectors = [budget.selector for budget in budgets_of(self.scenario, self.inputs)]
        keys = {key for one in selectors for key in one.match_labels}
        keys |= {one.key for selector in selectors for one in selector.match_expressions}
        return frozenset(keys | {NAME_LABEL} if selectors else ())

    def of_manifests(self, entry: WorkloadEntry, nodes: int) -> list[_ScheduledPod]:
        """Return the pods of DaemonSets first, one for each node, then the others in the order of their files."""
        first: list[_ScheduledPod] = []
        others: list[_ScheduledPod] = []
        known: dict[str, FleetShape] = {}
        for loaded in read_manifests_of(self.inputs, entry, self.where).pods:
            key = f"{loaded.source} {loaded.document} {loaded.path}"
            if key not in known:
                owner = self.scenario.refusals.owner or _owner_of(loaded.kind)
                name = f"{loaded.kind} {loaded.pod.metadata.name}"
                known[key] = manifest_shape(
                    loaded.pod, name, owner, placement_of(loaded.data),
                    gates=self.kubelets.gates, quirks=self.kubelets.quirks,
                )  # fmt: skip
                if loaded.kind == "DaemonSet":
                    first += [_ScheduledPod(0, known[key], NEVER, node) for node in range(nodes)]
            if loaded.kind != "DaemonSet":
                others.append(_ScheduledPod(len(others) * _STEP, known[key], NEVER))
        return first + others


def _actual_resources(pod: Pod) -> list[object]:
    """Return the actual and allocated resources of containers, which a resize may have changed against the
    specification."""
    status = pod.status
    both = (*status.container_statuses, *status.init_container_statuses)
    return [(one.name, one.resources, one.allocated_resources) for one in both]


def _initial_uid(one: ClusterPod, node: FleetNode) -> str:
    """Return the UID of a pod in the state with which its node begins, "" where it is not in it."""
    uid = with_default_uid(one.pod).metadata.uid
    return uid if node.start is not None and uid in node.start.pods else ""


def span(workload: Workload) -> int:
    """Return the milliseconds from the first arrival to the last."""
    return workload.arrival[-1] - workload.arrival[0] if len(workload) else 0
