"""`/metrics`: every metric of the managers under the kubelet's exact names, and the agent's own.

The managers count in `NodeContext.metrics` under their short names; `kubelet_` goes before all but
`resource_manager_…`, as upstream has it. Some of those counters do not end in `_total`, which the client library would
not allow, so their text is written here.
"""

from __future__ import annotations

import functools
import time
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from podslice.agent.journal import NodeJournal
from podslice.agent.owner import Owner
from podslice.api.pod.memory_demand import container_memory
from podslice.machine.delta import ConsequenceKind
from podslice.node.checkpoints.guard_files import Guard
from podslice.node.context import EXCLUSIVE, SHARED_POOL
from podslice.node.cpu.state import OWNING
from podslice.node.node import Node
from podslice.node.plugins.classes import CPUClasses
from podslice.node.plugins.contract import POINTS
from podslice.node.topology.manager import SCORED_MERGES
from podslice.node.view import NodeView
from podslice.replica.events import PlanOutcome
from podslice.service.trust import AuthorityFile
from podslice.values.cpuset import bits_of
from podslice.values.quirks import PROFILE_RELEASES, is_without_defects
from podslice.values.reasons import is_out_of
from podslice.values.series import Labels, Series, labels_text, series

_OVERCOMMITTED = "podslice_memory_overcommitted_bytes"
_PER_NUMA = "cpu_manager_allocation_per_numa"
_CLASS_CPUS = "podslice_class_cpus"
_GAUGES = frozenset({SHARED_POOL.name, EXCLUSIVE.name, _PER_NUMA, _CLASS_CPUS})
_HOOK_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
_DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Default buckets of the kubelet's client library, which differ from ours."""
_RESIZE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 300.0)
_PREPARE_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0, 45.0)
"""The goal is 10 ms, a kubelet gives up after 45 s."""
_ADMISSION_BUCKETS = tuple(0.05 * 2**i for i in range(15))
# Upstream's label values; all other reasons share one, so that the number of series is bounded (memory-device 3.5).
_REASONS = frozenset(
    """AppArmor PodOSSelectorNodeLabelDoesNotMatch PodOSNotSupported InvalidNodeInfo InitContainerRestartPolicyForbidden
    SupplementalGroupsPolicyNotSupported UnexpectedAdmissionError UnknownReason UnexpectedPredicateFailureType OutOfcpu
    OutOfmemory OutOfephemeral-storage OutOfpods PodLevelResourcesNotSupported PodFeatureUnsupported Evicted
    SysctlForbidden TopologyAffinityError NodeShutdown VolumeAttachmentLimitExceeded""".split()
)
_ASSIGNMENTS = "podslice_container_assignments"
_KINDS = ("node_exclusive", "pod_exclusive", "pod_shared")
_ALWAYS = tuple(
    Series(name)
    for name in (
        "cpu_manager_pinning_requests_total",
        "cpu_manager_pinning_errors_total",
        "memory_manager_pinning_requests_total",
        "memory_manager_pinning_errors_total",
        "topology_manager_admission_requests_total",
        "topology_manager_admission_errors_total",
    )
)

_ENDPOINT = "kubelet_pod_resources_endpoint"
_HELP = {
    "kubelet_container_aligned_compute_resources_count": "Containers that are aligned, by boundary and scope.",
    "kubelet_container_aligned_compute_resources_failure_count": "Containers that could not be aligned.",
    "kubelet_cpu_manager_allocation_per_numa": "CPUs that containers have for themselves, by NUMA node.",
    "kubelet_cpu_manager_exclusive_cpu_allocation_count": "CPUs that containers have for themselves.",
    "kubelet_cpu_manager_pinning_errors_total": "Containers that wanted CPUs for themselves and got none.",
    "kubelet_cpu_manager_pinning_requests_total": "Containers that wanted CPUs for themselves.",
    "kubelet_cpu_manager_shared_pool_size_millicores": "Size of the node's shared pool in thousandths of a CPU.",
    "kubelet_memory_manager_pinning_errors_total": "Containers that wanted memory of NUMA nodes and got none.",
    "kubelet_memory_manager_pinning_requests_total": "Containers that wanted memory of NUMA nodes.",
    "kubelet_topology_manager_admission_errors_total": "Pods that could not be aligned and were refused.",
    "kubelet_topology_manager_admission_requests_total": "Pods that were to be aligned.",
    f"{_ENDPOINT}_errors_get": "Calls of Get that failed.",
    f"{_ENDPOINT}_errors_get_allocatable": "Calls of GetAllocatableResources that failed.",
    f"{_ENDPOINT}_errors_list": "Calls of List that failed.",
    f"{_ENDPOINT}_requests_get": "Calls of Get.",
    f"{_ENDPOINT}_requests_get_allocatable": "Calls of GetAllocatableResources.",
    f"{_ENDPOINT}_requests_list": "Calls of List.",
    f"{_ENDPOINT}_requests_total": "Calls of PodResources, by version of the API.",
    "podslice_class_cpus": "CPUs by class, and by who has them: owned, shared, reserved, offline.",
    "podslice_class_fallbacks_total": "Containers that started on shared CPUs of none of their classes.",
    "podslice_plugin_errors_total": "Answers of plugins of the CPU Manager that broke their contract.",
    "podslice_scored_merges_total": "Merges that weighed resources against each other, and whether upstream agrees.",
    "podslice_memory_overcommitted_bytes": "Memory that pods hold on a NUMA node beyond what it has now.",
    "resource_manager_allocation_errors_total": "Allocations that failed, by resource and source.",
    "resource_manager_allocations_total": "Allocations, by resource and source.",
    "podslice_container_assignments": "Running containers with resources of their own, by what they have.",
    "resource_manager_container_assignments": "Containers that were given resources of their own, by what they got.",
}
"""`# HELP` texts of the metrics of the managers."""


def rejection_label(reason: str) -> str:
    """Return the value of `kubelet_admission_rejections_total{reason}` (memory-device 3.5)."""
    if reason in _REASONS:
        return reason
    return "OutOfExtendedResources" if is_out_of(reason) else "Other"


def _outcome_count(counts: Mapping[PlanOutcome, int], fate: PlanOutcome) -> float:
    return float(counts.get(fate, 0))


class Metrics:
    """Counters, histograms and gauges of an agent, in a registry of their own; `MetricsPage` adds the gauges of the
    node. `profile` is the node's: that of a kubelet has no metrics which that kubelet has not."""

    def __init__(self, profile: str = "podslice") -> None:
        # The client library adds a `_created` series to every counter, which the kubelet does not have.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.hooks = self._histogram(
            "podslice_hook_duration_seconds", "Our part of a call of the runtime.", _HOOK_BUCKETS, "hook"
        )
        self.connections = self._counter("podslice_nri_connections", "Registrations with the runtime.")
        self.connected = self._gauge("podslice_nri_connected", "1 while registered with the runtime.")
        self.troubles = self._counter("podslice_troubles", "Things that went wrong, by kind.", "kind")
        self.pod_resources = dict.fromkeys(_POD_RESOURCES, 0)
        self._of_admissions(profile)
        self._of_drift()
        self._of_resizes()
        self._of_guards()
        self._of_devices()
        self._of_machine_changes()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _of_admissions(self, profile: str) -> None:
        self.admission_ms = self._histogram(
            "kubelet_topology_manager_admission_duration_ms",
            "Duration in milliseconds to serve a pod admission request.",
            _ADMISSION_BUCKETS,
        )
        self.admission: Histogram | None = None
        self.pod_pinning_errors: Counter | None = None
        if is_without_defects(profile):
            self._of_the_kep()
        self.rejections = self._counter("kubelet_admission_rejections", "Pods refused, by reason.", "reason")
        self.rejected = self._counter("podslice_pods_rejected", "Refused pods that were marked Failed.")
        self.failures = self._counter("podslice_pod_failures", "Errors that ended a step of one pod, by step.", "step")

    def _of_the_kep(self) -> None:
        """Add the metrics that KEP-5526 names and v1.36.2 does not have."""
        self.admission = self._histogram(
            "kubelet_topology_manager_admission_duration_seconds",
            "Duration in seconds to serve a pod admission request.",
            tuple(bucket / 1000 for bucket in _ADMISSION_BUCKETS),
        )
        self.pod_pinning_errors = self._counter(
            "kubelet_pod_topology_manager_pinning_errors",
            "Pods with pod-level resources that could not be aligned.",
        )

    def _of_drift(self) -> None:
        self.drift = self._counter("podslice_drift", "Differences found between decisions and cgroups.", "kind")
        self.repaired = self._counter("podslice_drift_repaired", "Differences repaired.", "kind")
        for kind in ("cpus", "mems", "quota", "memory"):
            self.drift.labels(kind)
            self.repaired.labels(kind)
        self.strangers = self._counter("podslice_strangers", "Containers found that were created without us.")
        self.last_reconcile = self._gauge("podslice_reconcile_timestamp_seconds", "When the last reconcile pass ended.")

    def _of_resizes(self) -> None:
        self.resizes = self._counter(
            "podslice_resizes_not_applied", "Requested resizes of exclusive CPUs that the agent does not carry out."
        )
        self.answered = self._counter(
            "podslice_resizes", "Resizes of exclusive CPUs, by what became of them.", "operation", "result"
        )
        self.resize_seconds = self._histogram(
            "podslice_resize_seconds", "From the kubelet's call until all is written.", _RESIZE_BUCKETS
        )
        self.moves = self._counter("podslice_moves", "Moves of running containers, by what became of them.", "result")
        for result in ("done", "failed", "notBegun"):
            self.moves.labels(result)

    def _of_guards(self) -> None:
        self.guard_writes = self._counter("podslice_guard_writes", "Kernel files written by guards.", "guard", "result")
        self.guard_contested = self._counter(
            "podslice_guard_contested", "Kernel files left to another program that kept changing them.", "guard"
        )
        self.guard_open = self._gauge(
            "podslice_guard_open_files", "Kernel files that let exclusive CPUs be used.", "guard"
        )
        for guard in get_args(Guard):
            for result in ("written", "restored", "refused"):
                self.guard_writes.labels(guard, result)
            self.guard_contested.labels(guard)
            self.guard_open.labels(guard)

    def _of_devices(self) -> None:
        self.plugin_registrations = self._counter(
            "kubelet_device_plugin_registration", "Device plugin registrations.", "resource_name"
        )
        self.plugin_allocations = self._histogram(
            "kubelet_device_plugin_alloc_duration_seconds",
            "Duration in seconds to serve a device plugin Allocation request.",
            _DEFAULT_BUCKETS,
            "resource_name",
        )
        self.claim_prepares = self._histogram(
            "podslice_claim_prepare_seconds",
            "Time to prepare a claim, with reading it from the API server.",
            _PREPARE_BUCKETS,
            "result",
        )

    def _of_machine_changes(self) -> None:
        self.machine_changes = self._counter(
            "podslice_machine_changes", "What followed from CPUs, memory and NUMA nodes that came and went.", "kind"
        )
        for change in get_args(ConsequenceKind):
            self.machine_changes.labels(change)

    def claim_prepared(self, result: str, seconds: float) -> None:
        """Count a claim that was `prepared` or `refused`."""
        self.claim_prepares.labels(result).observe(seconds)

    def plugin_registered(self, resource: str) -> None:
        """Count a registration of a device plugin."""
        self.plugin_registrations.labels(resource).inc()

    def plugin_allocated(self, resource: str, seconds: float) -> None:
        """Count an answer of a device plugin to Allocate."""
        self.plugin_allocations.labels(resource).observe(seconds)


class PendingResizes(Protocol):
    """The number of resizes that wait for room or for their delay; `resize.resizing.Resizing` has it."""

    @property
    def pending(self) -> int: ...


class IsolationText(Protocol):
    """Implemented by `guards.isolationmetrics.IsolationMetrics`."""

    def text(self) -> str: ...


class MetricsPage:
    """The page of `/metrics`: the metrics of `metrics`, and gauges that are read from the node for every page.

    `isolation`: the metrics of the containers' isolation, None where it is not measured. `journal`: the one that the
    cluster's services follow, `services` their number, and `authority` that of their certificates, None for the
    system's. `is_kubelets`: whether the release that decides is that of the kubelet beside the agent.
    """

    def __init__(
        self,
        metrics: Metrics,
        owner: Owner,
        *,
        resizes: PendingResizes,
        isolation: IsolationText | None,
        journal: NodeJournal,
        services: int = 0,
        authority: AuthorityFile | None = None,
        is_kubelets: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._owner = owner
        self._isolation = isolation
        self._clock = clock
        self._gauge(
            "podslice_resize_pending",
            "Resizes that wait for room or time.",
            read=lambda: float(resizes.pending),
        )
        self._gauge(
            "podslice_degraded_containers", "Containers that own CPUs which are offline.", read=self._count_degraded
        )
        self._gauge(
            "podslice_safe_mode", "1 while the state cannot be trusted.", read=lambda: float(bool(owner.safe_mode))
        )
        self._gauge("podslice_state_age_seconds", "Time since the state files last changed.", read=self._state_age)
        self._gauge("podslice_pods", "Pods on the node.", read=lambda: float(len(owner.pods)))
        release = self._gauge(
            "podslice_kubernetes_release",
            "The release that decides: 1 while it is that of the kubelet, 0 while it may be another.",
            "release",
        )
        decides = PROFILE_RELEASES[owner.admitting.profile]
        release.labels(str(decides)).set_function(lambda: float(is_kubelets()))
        containers = self._gauge("podslice_containers", "Containers on the node.", "isolation")
        for kind in ("container", "mixed", "pod", "host"):
            containers.labels(kind).set_function(functools.partial(self._count, kind))
        self._gauge(
            "podslice_cluster_services",
            "Names of cluster services that the agent is to report to.",
            read=lambda: float(services),
        )
        self._gauge(
            "podslice_cluster_streams",
            "Replicas of the cluster's service that follow.",
            read=lambda: float(len(journal.streams)),
        )
        if authority is not None:
            self._gauge(
                "podslice_cluster_authority_expiry_timestamp_seconds",
                "When the authority of the cluster's services expires, as Unix time; 0 without a usable one.",
                read=authority.expiry,
            )
            self._gauge(
                "podslice_cluster_authority_reload_successful",
                "1 while the authority's file is what is trusted, 0 while it cannot be used.",
                read=authority.is_used,
            )
        plans = self._gauge("podslice_plans", "Plans since the start, by what became of them.", "fate")
        for fate in get_args(PlanOutcome)[1:]:
            plans.labels(fate).set_function(functools.partial(_outcome_count, journal.binding_outcomes, fate))

    def _gauge(self, name: str, text: str, *labels: str, read: Callable[[], float] | None = None) -> Gauge:
        gauge = Gauge(name, text, labels, registry=self._metrics.registry)
        if read is not None:
            gauge.set_function(read)
        return gauge

    def _count(self, isolation: str) -> float:
        return float(sum(r.applied.isolation == isolation for r in self._owner.containers.values()))

    def _count_degraded(self) -> float:
        placing = self._owner.placing
        return float(sum(placing.lost(record) != 0 for record in self._owner.containers.values()))

    def _state_age(self) -> float:
        times = []
        for path in self._owner.directory.glob("*_state"):
            try:
                times.append(path.stat().st_mtime)
            except OSError:
                continue
        return max(0.0, self._clock() - max(times)) if times else 0.0

    def text(self) -> bytes:
        """Return the page of `/metrics`."""
        node = self._owner.node
        running = ((record.unit, record.member) for record in self._owner.containers.values())
        texts = [manager_metrics(node, running), memory_overcommitment(node)] if node is not None else []
        served: dict[str, dict[Labels, float]] = {}
        for key, value in self._metrics.pod_resources.items():
            name, _, version = key.partition("/")
            served.setdefault(name, {})[("server_api_version", version or "v1"),] = value
        texts += [_family(f"kubelet_pod_resources_endpoint_{name}", "counter", one) for name, one in served.items()]
        texts += [] if self._isolation is None else [self._isolation.text()]
        return generate_latest(self._metrics.registry) + "".join(texts).encode()


_POD_RESOURCES = (
    "requests_total",
    "requests_total/v1alpha1",
    "requests_list",
    "requests_get",
    "requests_get_allocatable",
    "errors_list",
    "errors_get",
    "errors_get_allocatable",
)


def manager_metrics(node: Node, running: Iterable[tuple[str, str]]) -> str:
    """Return the managers' counters in Prometheus' text format. `running`: containers by pod UID and name."""
    counted: dict[str, dict[Labels, float]] = {}
    view = node.view
    for one, value in (*dict.fromkeys((*_ALWAYS, *_initial(view)), 0).items(), *node.counters.items()):
        counted.setdefault(one.name, {})[one.labels] = value
    if view.pins_cpus:
        counted[_PER_NUMA] = dict(_per_numa(view))
        if view.cpu_classes is not None:
            counted[_CLASS_CPUS] = dict(_per_class(view, view.cpu_classes))
    gauges = _GAUGES
    if view.gates["PodLevelResourceManagers"]:
        gauges |= {_ASSIGNMENTS}
        counted[_ASSIGNMENTS] = dict(_assignments(view, running))
    kinds = {name: "gauge" if name in gauges else "counter" for name in counted}
    return "".join(_family(_full_name(name), kinds[name], counted[name]) for name in sorted(counted))


def memory_overcommitment(node: Node) -> str:
    """Return the metric of bytes that pods hold beyond the memory of a NUMA node, some of which went away."""
    if not node.view.binds_memory:
        return ""
    short = node.state.memory.short
    values: dict[Labels, float] = {
        (("numa_node", str(numa.id)),): float(short.get(numa.id, 0)) for numa in node.machine.nodes
    }
    return _family(_OVERCOMMITTED, "gauge", values)


def _assignments(view: NodeView, running: Iterable[tuple[str, str]]) -> Iterable[tuple[Labels, float]]:
    """Yield the running containers by their present resources, with the labels of upstream's counter, which never
    falls."""
    found: Counted[tuple[str, str]] = Counted()
    for uid, name in set(running):
        pod = view.pods.get(uid)
        container = next((one for one in pod.containers if one.name == name), None) if pod is not None else None
        if pod is None or container is None:
            continue
        if view.pins_cpus and view.assignment(uid, name) is not None:
            own = view.isolation(pod, container) in OWNING
            found["cpu", _assignment(own=own, of_pod=uid in view.pod_cpus)] += 1
        if view.binds_memory and view.blocks_of(uid, name):
            own = bool(container_memory(pod, container))
            found["memory", _assignment(own=own, of_pod=bool(view.pod_blocks.get(uid)))] += 1
    for resource, static in (("cpu", view.pins_cpus), ("memory", view.binds_memory)):
        for kind in _KINDS if static else ():
            yield (("assignment_type", kind), ("resource_name", resource)), float(found[resource, kind])


def _assignment(*, own: bool, of_pod: bool) -> str:
    if not of_pod:
        return "node_exclusive"
    return "pod_exclusive" if own else "pod_shared"


def _initial(view: NodeView) -> Iterator[Series]:
    """Yield the series that are 0 from the start (cpu-topology 10.1, 10.2)."""
    for kind in ("count", "failure_count"):
        if view.pins_cpus:
            yield series(f"container_aligned_compute_resources_{kind}", boundary="physical_cpu", scope="container")
        if view.aligns:
            for scope in ("container", "pod"):
                yield series(f"container_aligned_compute_resources_{kind}", boundary="numa_node", scope=scope)
    if view.pins_cpus:
        yield series("container_aligned_compute_resources_count", boundary="uncore_cache", scope="container")
    for name in view.cpu_classes.cpus if view.cpu_classes is not None and view.pins_cpus else ():
        yield series("podslice_class_fallbacks_total", **{"class": name})
    if view.policy.topology.best_effort == "scored":
        yield from SCORED_MERGES.values()
    for entry in view.policy.plugins.profile:
        for point in POINTS:
            yield series("podslice_plugin_errors_total", plugin=entry.name, point=point)


def _per_numa(view: NodeView) -> Iterable[tuple[Labels, float]]:
    """Yield the assigned CPUs by NUMA node. Unlike upstream a node without any goes back to 0 (cpu-topology 11.16)."""
    assigned = view.assigned
    for numa in view.machine.nodes:
        cpus = bits_of(thread for core in numa.cores or () for thread in core.threads)
        yield (("numa_node", str(numa.id)),), float((cpus & assigned).bit_count())


def _per_class(view: NodeView, classes: CPUClasses) -> Iterable[tuple[Labels, float]]:
    """Yield the CPUs by class and state."""
    states = {
        "owned": view.owned & ~view.offline,
        "shared": view.assignable,
        "reserved": view.reserved & ~view.offline,
        "offline": view.offline,
    }
    for name, members in classes.cpus.items():
        for state, cpus in states.items():
            yield (("class", name), ("state", state)), float((members & cpus).bit_count())


def _full_name(name: str) -> str:
    return name if name.startswith(("resource_manager_", "podslice_")) else f"kubelet_{name}"


def _family(full: str, kind: str, values: Mapping[Labels, float]) -> str:
    texts = {labels_text(labels): value for labels, value in values.items()}
    lines = [f"{full}{labels} {float(value)}" for labels, value in sorted(texts.items())]
    return "\n".join((f"# HELP {full} {_HELP[full]}", f"# TYPE {full} {kind}", *lines)) + "\n"
