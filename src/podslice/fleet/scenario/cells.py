"""Cells, each simulated by one process, and the inputs of the engine made from a scenario."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.advise.whatif.compare import Scenario
from podslice.advise.whatif.variants import variants
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.fleet.engine.nodes import Fleet, FleetClass, FleetNode, NodeEvent
from podslice.fleet.engine.options import CellOptions, PolicyName
from podslice.fleet.engine.workload import Workload
from podslice.fleet.importing.kube_budgets import budgets_of
from podslice.fleet.importing.kube_pods import cluster_pods
from podslice.fleet.importing.kube_start import InitialFleet, place_initial_pods
from podslice.fleet.scenario.cluster import (
    NamedNodes,
    gpu_offer,
    kubelet_config,
    kubelet_policy,
    kubelet_profile,
    read_cluster,
    start_fleet,
)
from podslice.fleet.scenario.inputs import Inputs, canonical_json
from podslice.fleet.scenario.scenario import (
    AS_WRITTEN,
    FleetScenario,
    KubeletEntry,
    ScenarioEvent,
    SyntheticShapes,
    WorkloadEntry,
)
from podslice.fleet.scenario.strict import milliseconds
from podslice.fleet.traces.pods import Kubelets, build_workload, columns_of, read_manifests_of, read_pods, span
from podslice.fleet.traces.trace_load import Capacity
from podslice.node.rules import NodeRules
from podslice.values.errors import InputError, raise_all
from podslice.values.quirks import PROFILES

_FIT: dict[str, PolicyName] = {
    "LeastAllocated": "least-allocated",
    "MostAllocated": "most-allocated",
    "RequestedToCapacityRatio": "requested-to-capacity-ratio",
}
_SAMPLES = 200
"""Rows of a series where a scenario does not set how often samples are taken."""
_SHARE = 10
"""Thousandths of the demand between two samples, where no pod ends and arrivals are the clock."""
_METRICS = {"alignment": ("alignment",), "fragmentation": ("fragmentation",), "stranded": ("stranded", "largest")}
"""Metrics of the engine, beside counts, by the metric of a scenario."""
_UNSAFE = str.maketrans({"/": "-", " ": "", "+": "_"})


class FleetCell(NamedTuple):
    """One simulation. `variant`: number of the configuration that a search (`recommend`) tries, else -1; `label`: its
    name."""

    alternative: str
    kubelet: str
    scheduler: str
    transform: str
    seed: int
    variant: int = -1
    label: str = ""

    @property
    def key(self) -> str:
        """The cell's name, also of its files."""
        parts = (self.alternative, self.configuration, self.scheduler, self.transform, f"s{self.seed}")
        # No name may contain `~` (`scenario_file`), so that a key can be split again.
        return "~".join(parts)

    @property
    def configuration(self) -> str:
        """The name of the kubelet configuration."""
        return self.kubelet if self.variant < 0 else f"{self.kubelet}.{self.label.translate(_UNSAFE)}"


class CellInputs(NamedTuple):
    """The arguments of the engine."""

    fleet: Fleet
    workload: Workload
    options: CellOptions
    seed: int


class Study:
    """A scenario with its files read: its cells, and the inputs of each. Raises `InputError`."""

    def __init__(self, scenario: FleetScenario, folder: Path) -> None:
        self.scenario = scenario
        self.inputs = Inputs(folder)
        self.cluster: NamedNodes = read_cluster(scenario, self.inputs)
        self.gpus = gpu_offer(scenario)
        self._resolve_files()
        self._variants: dict[tuple[str, str], list[tuple[str, KubeletConfig]]] = {}
        self.cells = tuple(self._cells())
        self._initial: tuple[tuple[str, str], InitialFleet] | None = None

    def _resolve_files(self) -> None:
        """Find every file before anything is simulated."""
        for index, entry in enumerate(self.scenario.workload):
            where = f"workload[{index}]"
            if entry.trace:
                self.inputs.path(entry.trace, where=f"{where}.trace")
            if entry.cluster:
                self.inputs.path(entry.cluster, where=f"{where}.cluster")
            if entry.manifests:
                self.inputs.paths(entry.manifests, where=f"{where}.manifests")
            if origin := _shape_trace(entry):
                self.inputs.path(origin, where=f"{where}.synthetic.shapes.from")
        budgets_of(self.scenario, self.inputs)
        for name in self.scenario.kubelets:
            # The configuration file is the same for all classes: reading it for the first one finds its errors.
            for found in self.cluster.classes[:1]:
                kubelet_config(self.scenario, self.inputs, name, found)
            for found in self.cluster.classes:
                kubelet_policy(self.scenario, self.inputs, name, found)
                kubelet_profile(self.scenario, name, found)
        raise_all(self._pattern_problems())

    def _pattern_problems(self) -> Iterator[InputError]:
        """Yield an error for each pattern that matches nothing."""
        classes = sorted({one.name for one in self.cluster.classes})
        for name, entry in self.scenario.kubelets.items():
            for field, patterns in (("byClass", entry.by_class), ("policyByClass", entry.policy_by_class)):
                for pattern in patterns:
                    if not any(fnmatchcase(one, pattern) for one in classes):
                        path, remedy = f"kubelets.{name}.{field}", f"there are {', '.join(classes[:8])}"
                        yield InputError(f"no class of nodes is called {pattern}", path=path, remedy=remedy)
        for index, event in enumerate(self.scenario.node_events):
            for what, pattern in event_patterns(event):
                if not any(fnmatchcase(node.name, pattern) for node in self.cluster.nodes):
                    yield InputError(f"no node is called {pattern}", path=f"nodeEvents[{index}].{what}")

    def check_traces(self) -> tuple[str, ...]:
        """Read every trace and manifest to its end, so that a damaged one is reported before anything is simulated.
        Return lines about what is passed over in manifests. Raises `InputError`."""
        notes: list[str] = []
        for index, entry in enumerate(self.scenario.workload):
            where = f"workload[{index}]"
            shapes = entry.synthetic and entry.synthetic.shapes
            if entry.manifests:
                notes += read_manifests_of(self.inputs, entry, where).notes
                continue
            if entry.trace:
                path, columns = self.inputs.path(entry.trace, where=f"{where}.trace"), entry.columns
            elif isinstance(shapes, SyntheticShapes):
                path, columns = self.inputs.path(shapes.origin, where=f"{where}.synthetic.shapes.from"), shapes.columns
            else:
                continue
            if not read_pods(path, columns_of(columns, where)):
                raise InputError("has no pods", source=str(path), remedy="a line for each, below the columns' names")
        return tuple(notes)

    @property
    def id(self) -> str:
        """SHA-256 of the scenario and of all its input files."""
        data = {"scenario": _without_new_fields(self.scenario), "inputs": self.inputs.digests()}
        return hashlib.sha256(canonical_json(data)).hexdigest()

    @property
    def workload_id(self) -> str:
        """SHA-256 of the pods: runs with the same one can be compared."""
        plain = msgspec.to_builtins(self.scenario)
        digests = self.inputs.digests()
        data = {"workload": plain["workload"], "seeds": plain["seeds"], "files": sorted(self._pod_files(digests))}
        return hashlib.sha256(canonical_json(data)).hexdigest()

    def _pod_files(self, digests: dict[str, str]) -> Iterator[str]:
        """Yield the digests of the files that the workload names."""
        for entry in self.scenario.workload:
            for name in filter(None, (entry.trace, entry.cluster, _shape_trace(entry))):
                yield digests[name]
            if entry.manifests:
                yield from (digests[name] for name in digests if fnmatchcase(name, entry.manifests))

    def _cells(self) -> Iterator[FleetCell]:
        """Yield all cells of the matrix; seeds vary fastest."""
        scenario = self.scenario
        for alternative in scenario.alternatives:
            for kubelet, variant, label in self._kubelets(alternative):
                for scheduler in scenario.schedulers:
                    for transform in scenario.transforms:
                        for seed in scenario.seeds:
                            yield FleetCell(alternative, kubelet, scheduler, transform, seed, variant, label)

    def _kubelets(self, alternative: str) -> Iterator[tuple[str, int, str]]:
        """Yield name, variant and label of each kubelet configuration."""
        for name, entry in self.scenario.kubelets.items():
            if entry.recommend:
                for number, (label, _) in enumerate(self._search_variants(name, alternative)):
                    yield name, number, label
            else:
                yield name, -1, ""

    def _search_variants(self, name: str, alternative: str) -> list[tuple[str, KubeletConfig]]:
        """Return the configurations that a search tries: variants of the first class' configuration."""
        key = (name, alternative)
        if key not in self._variants:
            found = self.cluster.classes[0]
            config = kubelet_config(self.scenario, self.inputs, name, found)
            first = Scenario(name, found.machine(alternative), config)
            self._variants[key] = [(one.name.removeprefix("as it is: "), one.config) for one in variants(first)]
        return self._variants[key]

    def configs(self, cell: FleetCell, *, kubelet: str = "") -> dict[int, KubeletConfig]:
        """Return the configuration of each class of nodes in a cell; `kubelet`: of another entry of the matrix. Raises
        `InputError`."""
        name = kubelet or cell.kubelet
        configs = {
            number: kubelet_config(self.scenario, self.inputs, name, found)
            for number, found in enumerate(self.cluster.classes)
        }
        if cell.variant < 0 or kubelet:
            return configs
        tried = self._search_variants(name, cell.alternative)[cell.variant][1]
        return {
            number: msgspec.structs.replace(
                config,
                cpu_manager_policy=tried.cpu_manager_policy,
                cpu_manager_policy_options=tried.cpu_manager_policy_options,
                topology_manager_policy=tried.topology_manager_policy,
                topology_manager_scope=tried.topology_manager_scope,
            )
            for number, config in configs.items()
        }

    def start(self, cell: FleetCell) -> Fleet:
        """Return the nodes of a cell without any pods. Raises `ClassStartError`."""
        started = self._start_classes(cell, self.configs(cell), cell.configuration)
        return Fleet(started.classes + self._start_later_classes(cell), tuple(map(self._mark_absent, started.nodes)))

    def fleet(self, cell: FleetCell) -> Fleet:
        """Return the nodes of a cell, with the pods that run on them from the beginning. Raises `ClassStartError`."""
        return self.initial_fleet(cell).fleet

    def initial_fleet(self, cell: FleetCell) -> InitialFleet:
        """Return the same, with the sources of the states. Raises `ClassStartError`."""
        place = (cell.alternative, cell.configuration)
        if self._initial is None or self._initial[0] != place:
            same = self.scenario.kubelets[cell.kubelet] == KubeletEntry() and cell.alternative == AS_WRITTEN
            found = place_initial_pods(self.start(cell), self.cluster.starts, self._pods_on_nodes(), same=same)
            self._initial = place, found
        return self._initial[1]

    def _pods_on_nodes(self) -> dict[str, list[Pod]]:
        """Return the pods of live clusters by node. Pods of imported histories are left out: their CPUs are not
        recorded."""
        found: dict[str, list[Pod]] = {}
        names = frozenset(node.name for node in self.cluster.nodes)
        for index, entry in enumerate(self.scenario.workload):
            if entry.cluster and not entry.since and self.cluster.starts:
                path = self.inputs.path(entry.cluster, where=f"workload[{index}].cluster")
                for one in cluster_pods(path, names).pods:
                    if one.node:
                        found.setdefault(one.node, []).append(one.pod)
        return found

    def _mark_absent(self, node: FleetNode) -> FleetNode:
        """Return the node as absent where an event adds it later."""
        # A node that an event adds is absent before.
        added = any(event.add is not None and fnmatchcase(node.name, event.add) for event in self.scenario.node_events)
        return node._replace(absent=True) if added else node

    def _start_classes(self, cell: FleetCell, configs: dict[int, KubeletConfig], kubelet: str) -> Fleet:
        """Return the nodes with a kubelet of this entry started for each class."""
        found = self.cluster.classes
        return start_fleet(
            self.cluster,
            configs,
            [kubelet_policy(self.scenario, self.inputs, kubelet, one) for one in found],
            kubelet=kubelet,
            alternative=cell.alternative,
            gpus=self.gpus,
            profiles=[kubelet_profile(self.scenario, kubelet, one) for one in found],
        )

    @property
    def _later_kubelets(self) -> list[str]:
        """Configurations with which nodes restart, in the order of the events."""
        return list(dict.fromkeys(event.kubelet for event in self.scenario.node_events if event.kubelet))

    def _start_later_classes(self, cell: FleetCell) -> tuple[FleetClass, ...]:
        """Return the classes of restarted nodes, all classes for each later configuration."""
        return tuple(
            one
            for name in self._later_kubelets
            for one in self._start_classes(cell, self.configs(cell, kubelet=name), name).classes
        )

    def build(self, cell: FleetCell) -> CellInputs:
        """Return the arguments of the engine for a cell. Raises `InputError` and `ClassStartError`."""
        fleet = self.fleet(cell)
        workload = self.workload(cell, fleet)
        return CellInputs(fleet, workload, self.options(cell, fleet, workload), cell.seed)

    def workload(self, cell: FleetCell, fleet: Fleet) -> Workload:
        """Return the pods of a cell."""
        capacity = Capacity(
            sum(self.cluster.classes[node.kind].gpus for node in fleet.nodes) * 1000,
            sum(fleet.classes[node.kind].allocatable["cpu"] for node in fleet.nodes),
        )
        return build_workload(
            self.scenario,
            self.inputs,
            transform=self.scenario.transforms[cell.transform],
            seed=cell.seed,
            kubelets=Kubelets(_newest(fleet).gates, PROFILES[self.scenario.profile]),
            capacity=capacity,
            nodes=fleet.nodes,
        )

    def options(self, cell: FleetCell, fleet: Fleet, workload: Workload) -> CellOptions:
        """Return the options of a cell. Raises `InputError`."""
        scenario, scheduler = self.scenario, self.scenario.schedulers[cell.scheduler]
        sample_ms, sample_share = self._sampling(workload)
        where = f"schedulers.{cell.scheduler}"
        return CellOptions(
            policy=scheduler.policy or _FIT[scheduler.fit],
            balanced=scheduler.balanced,
            curve=scheduler.curve,
            filter=scheduler.filter,
            nrt_delay_ms=milliseconds(scheduler.nrt_delay, f"{where}.nrtDelay"),
            percentage=scheduler.percentage,
            ties=scheduler.ties,
            retry=scenario.refusals.retry,
            tries=scenario.refusals.tries,
            # Without a delay a loop would have endless attempts at one moment.
            delay_ms=max(milliseconds(scenario.refusals.delay, "refusals.delay"), 1),
            limit=scenario.refusals.limit,
            preemption=scenario.preemption in (True, "on"),
            budgets=budgets_of(scenario, self.inputs),
            events=tuple(self._events(fleet)),
            sample_ms=sample_ms,
            sample_share=sample_share,
            warmup_ms=milliseconds(scenario.warmup, "warmup"),
            metrics=tuple(dict.fromkeys(name for metric in scenario.metrics for name in _METRICS.get(metric, ()))),
            cpus=True,
        )

    def _sampling(self, workload: Workload) -> tuple[int, int]:
        """Return the interval of samples in milliseconds and in thousandths of the demand; one of them is 0."""
        sample = self.scenario.sample
        if sample.every is not None:
            return max(milliseconds(sample.every, "sample.every"), 1), 0
        if sample.per_percent_arrived is not None:
            return 0, max(round(sample.per_percent_arrived * 10), 1)
        if any(length >= 0 for length in workload.length):
            return max(span(workload) // _SAMPLES, 1), 0
        return 0, _SHARE

    def _events(self, fleet: Fleet) -> Iterator[NodeEvent]:
        """Yield the node events in order of time, one for each class of the matching nodes."""
        classes = len(self.cluster.classes)
        restarts = self._later_kubelets
        found = []
        for index, event in enumerate(self.scenario.node_events):
            where = f"nodeEvents[{index}]"
            for what, pattern in event_patterns(event):
                nodes = [number for number, node in enumerate(fleet.nodes) if fnmatchcase(node.name, pattern)]
                at = milliseconds(event.at, f"{where}.at")
                for kind, members in _group_by_class(fleet, nodes).items():
                    # Classes of later configurations follow the first ones, in blocks of equal size
                    # (`_start_later_classes`).
                    new = classes * (1 + restarts.index(event.kubelet)) + kind if event.kubelet else -1
                    found.append(NodeEvent(at, what, tuple(members), new))  # type: ignore[arg-type]  # one of the four
        return iter(sorted(found, key=lambda event: event.at_ms))


def _newest(fleet: Fleet) -> NodeRules:
    """Return the rules of the first class of the newest release: the API server is at least as new as its kubelets."""
    return max((one.rules for one in fleet.classes), key=lambda rules: rules.release.minor)


def _without_new_fields(scenario: FleetScenario) -> dict[str, Any]:
    """Return a scenario as plain data; fields that older versions did not have are left out where they are empty, so
    that its id stays."""
    plain: dict[str, Any] = msgspec.to_builtins(scenario)
    for entry in (*plain["machines"].values(), *plain["kubelets"].values()):
        if not entry["kubernetes"]:
            del entry["kubernetes"]
    return plain


def event_patterns(event: ScenarioEvent) -> Iterator[tuple[str, str]]:
    """Yield the kind of an event and the pattern of its nodes."""
    for what in ("drain", "fail", "add", "restart"):
        if (pattern := getattr(event, what)) is not None:
            yield what, pattern


def _shape_trace(entry: WorkloadEntry) -> str:
    """Return the trace from which synthetic pods take their shapes, "" for none."""
    return getattr(entry.synthetic and entry.synthetic.shapes, "origin", "")


def _group_by_class(fleet: Fleet, nodes: list[int]) -> dict[int, list[int]]:
    """Return the numbers of nodes by class."""
    found: dict[int, list[int]] = {}
    for number in nodes:
        found.setdefault(fleet.nodes[number].kind, []).append(number)
    return found
