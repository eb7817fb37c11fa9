"""Whether a pod fits on a node: what the scheduler counts (pod-level-resources 13), and the general predicates, which a
kubelet checks again after its resource managers (memory-device 3.4).

The incoming pod counts by its specification, pods on the node by what they may really hold (status, pending resizes). A
scheduler normally only sends pods that fit. A kubelet checks again, because static pods, races and its own device
plugins can make a node fuller than the scheduler assumed; a refusal here reads `OutOfcpu`. Critical pods may instead
preempt others.

Not checked, because a pod of this library does not carry it: affinity rules, host ports, tolerations, supplemental
groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.api.pod.critical import is_critical
from podslice.api.pod.demand import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    HUGEPAGES_PREFIX,
    StatusUse,
    is_pod_level_requests_set,
    is_supported_pod_level_resource,
    pod_qos,
    pod_requests,
    requests_of,
)
from podslice.api.pod.eligibility import claimed_resources
from podslice.api.pod.spec import Container, Pod, ResourceList, map_containers
from podslice.machine.devices import is_extended_resource_name
from podslice.scheduling.eviction import eviction_requests
from podslice.scheduling.preemption import PreemptiblePod, PreemptionError, find_victims
from podslice.scheduling.selectors import has_labels
from podslice.values.errors import Refusal, RefusalKind
from podslice.values.quantity import ZERO, Quantity
from podslice.values.quirks import Quirks
from podslice.values.reasons import (
    INVALID_NODE_INFO,
    NODE_AFFINITY,
    NODE_NAME,
    POD_OS,
    POD_OS_LABEL,
    UNEXPECTED_ADMISSION,
    out_of,
)
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT
from podslice.values.tables import drop, put

# Requests that count

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
BASIC_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)
_FIRST = (PODS, *BASIC_RESOURCES)
CLAIMS_COUNT = "DRANodeAllocatableResources"
"""Gate with which claims count with the requests of pods."""

NON_ZERO_REQUESTS: ResourceList = {CPU: Quantity.parse("100m"), MEMORY: Quantity.parse("200Mi")}
"""Defaults for a container's missing request where the scheduler spreads pods by load."""

SUCCESS, UNSCHEDULABLE, UNRESOLVABLE = "Success", "Unschedulable", "UnschedulableAndUnresolvable"


class InsufficientResource(NamedTuple):
    """A resource of which the node has too little for the pod; CPUs in milli, everything else in whole units."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """Amount that the node would need free in addition."""
        return self.requested - (self.capacity - self.used)

    @property
    def reason(self) -> str:
        """The reason in a `FailedScheduling` event."""
        return "Too many pods" if self.resource == PODS else f"Insufficient {self.resource}"

    @property
    def unresolvable(self) -> bool:
        """Whether even an empty node would be too small, so that preemption cannot help."""
        return self.resource != PODS and self.requested > self.capacity


def filter_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """Return what an incoming pod requests of a node: effective requests of the specification, overhead included
    (pod-level-resources 13.1)."""
    return _not_negative(pod_requests(pod, pod_level=gates["PodLevelResources"]))


def admission_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """Return the same as the kubelet counts it at admission: with the claims that the pod's status names
    (cluster-integration A.7, gate DRANodeAllocatableResources)."""
    return _not_negative(pod_requests(pod, pod_level=gates["PodLevelResources"], claims=gates[CLAIMS_COUNT]))


def _not_negative(requests: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: max(0, amount) for name, amount in amounts(requests).items()}


def accounted_requests(pod: Pod, gates: Mapping[str, bool], release: Release = DEFAULT) -> dict[str, int]:
    """Return what a pod on the node takes from others: by specification, allocation and what is in force
    (pod-level-resources 7.3), as a scheduler of a release counts it."""
    return amounts(_account(pod, gates, release=release))


def non_zero_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """Return CPU (milli) and memory (bytes) of a pod on the node, with defaults for containers that request neither.

    With pod-level requests a default only stands for a resource that is missing from the whole (pod-level-resources
    13.2).
    """
    missing = NON_ZERO_REQUESTS
    if gates["PodLevelResources"] and is_pod_level_requests_set(pod):
        known = _account(pod, gates)
        missing = {name: amount for name, amount in NON_ZERO_REQUESTS.items() if name not in known}
    total = _account(pod, gates, missing)
    return {CPU: total.get(CPU, ZERO).milli_value(), MEMORY: total.get(MEMORY, ZERO).value()}


def _account(
    pod: Pod, gates: Mapping[str, bool], missing: ResourceList | None = None, release: Release = DEFAULT
) -> dict[str, Quantity]:
    """Return the requests of a pod on the node, with its status as far as the gates count it."""
    resizable = gates["InPlacePodLevelResourcesVerticalScaling"]
    return pod_requests(
        pod,
        pod_level=gates["PodLevelResources"],
        missing=missing,
        status=StatusUse.POD_LEVEL if resizable else StatusUse.CONTAINERS,
        claims=gates[CLAIMS_COUNT],
        by_container=release.running_sums_by_container,
    )


def insufficient_resources(
    requests: Mapping[str, int], used: Mapping[str, int], allocatable: Mapping[str, int], *, pods: int
) -> list[InsufficientResource]:
    """Return what the pod lacks in the order of the scheduler's filter: pods, cpu, memory, ephemeral-storage, then
    hugepages and extended resources in byte order (pod-level-resources 13.1; memory-device 3.4, step 7). Missing
    amounts count as 0. `used` is what the `pods` on the node request together."""
    lacking = []
    # The number of pods is checked even for a pod that requests nothing.
    if pods + 1 > allocatable.get(PODS, 0):
        lacking.append(InsufficientResource(PODS, 1, pods, allocatable.get(PODS, 0)))
    for name, wanted in requests.items():
        # A resource that is not requested never refuses, even if the node is overcommitted in it.
        if wanted > allocatable.get(name, 0) - used.get(name, 0) and wanted > 0 and name != PODS:
            lacking.append(InsufficientResource(name, wanted, used.get(name, 0), allocatable.get(name, 0)))
    return sorted(lacking, key=_place) if len(lacking) > 1 else lacking


def _place(lack: InsufficientResource) -> tuple[int, str]:
    return _FIRST.index(lack.resource) if lack.resource in _FIRST else len(_FIRST), lack.resource


def filter_code(lacking: Sequence[InsufficientResource]) -> str:
    """Return the filter's code: whether the pod fits, might fit after preemption, or never will."""
    if not lacking:
        return SUCCESS
    return UNRESOLVABLE if any(lack.unresolvable for lack in lacking) else UNSCHEDULABLE


def no_node_message(nodes: Sequence[Sequence[InsufficientResource]]) -> str:
    """Return the `FailedScheduling` message of a pod that fits none of the nodes, from what it lacks on each
    (pod-level-resources 13.4)."""
    reasons = Counter(lack.reason for lacking in nodes for lack in lacking)
    # Sorted as text, so "10 …" stands before "2 …", as upstream prints it.
    shown = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{len(nodes)} nodes are available: {', '.join(shown)}."


def amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Return resource amounts as the scheduler counts them: milli CPUs, whole units of everything else that it
    counts."""
    return {
        name: quantity.milli_value() if name == CPU else quantity.value()
        for name, quantity in quantities.items()
        if name in BASIC_RESOURCES or name == PODS or _is_scalar(name)
    }


def _is_scalar(name: str) -> bool:
    """Whether the scheduler counts a resource in addition to the basic ones; it ignores others."""
    return name.startswith((HUGEPAGES_PREFIX, "attachable-volumes-")) or (
        "kubernetes.io/" in name or is_extended_resource_name(name)
    )


# The general predicates

OS_LABEL = "kubernetes.io/os"
NODE_TOTAL, TOO_MANY_PODS = "node-total", "too-many-pods"
_LACKING = RefusalKind(
    NODE_TOTAL,
    "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}",
    out_of("{resource}"),
)
_NO_NODE = RefusalKind("no-node-info", "Kubelet cannot get node info.", INVALID_NODE_INFO)
_OTHER_OS_LABEL = RefusalKind(
    "os-label", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label", POD_OS_LABEL
)
_OTHER_OS = RefusalKind("os", "Failed to admit pod as the OS field doesn't match node OS", POD_OS)
_OTHER_LABELS = RefusalKind(
    "node-affinity",
    f"Predicate {NODE_AFFINITY} failed: node(s) didn't match Pod's node affinity/selector",
    NODE_AFFINITY,
)
_OTHER_NODE = RefusalKind(
    "node-name", f"Predicate {NODE_NAME} failed: node(s) didn't match the requested node name", NODE_NAME
)
_NO_VICTIMS = RefusalKind(
    "preemption-failed",
    "Unexpected error while attempting to recover from admission failure: {error}",
    UNEXPECTED_ADMISSION,
)


class Verdict(NamedTuple):
    """The answer of the predicates. `refusal` None: the pod fits, once the pods with the UIDs in `victims` have
    left."""

    refusal: Refusal | None = None
    victims: tuple[str, ...] = ()


_FITS = Verdict()


class PodOnNode(NamedTuple):
    """A pod as the predicates see it; computed once per pod by `pod_on_node`.

    Amounts are CPUs in milli, everything else in whole units. `requests` are effective requests with overhead, `taken`
    is what the pod takes from others.
    """

    pod: Pod
    qos: str
    requests: dict[str, int]
    taken: dict[str, int]
    gates: Mapping[str, bool]
    quirks: Quirks

    @property
    def reclaimable(self) -> dict[str, int]:
        """Amounts that preempting the pod would free."""
        return amounts(eviction_requests(self.pod, self.gates, self.quirks))


class OtherPods(msgspec.Struct, frozen=True):
    """The other pods on a node, and what they request in all."""

    pods: Collection[PodOnNode]
    used: Mapping[str, int]

    @classmethod
    def of(cls, pods: Sequence[PodOnNode]) -> OtherPods:
        """Return these pods with the sum of what they take."""
        used: dict[str, int] = {}
        for pod in pods:
            _add(used, pod.taken)
        return cls(pods, used)


class PodsOnNode(msgspec.Struct, frozen=True):
    """The pods of a node as the predicates see them, by UID in the node's order, and what they request in all; `active`
    is the table of pods that they were made of, compared by identity. A value: methods that change something return a
    new one."""

    active: Mapping[str, object] = {}
    pods: dict[str, PodOnNode] = {}
    used: Mapping[str, int] = {}

    def others_of(self, uid: str) -> OtherPods:
        """Return all pods but this one."""
        if uid not in self.pods:
            return OtherPods(self.pods.values(), self.used)
        return OtherPods(drop(self.pods, uid).values(), self._used_without(uid))

    def with_pod(self, uid: str, pod: PodOnNode, active: Mapping[str, object]) -> PodsOnNode:
        """Add or replace a pod."""
        used = self._used_without(uid) if uid in self.pods else dict(self.used)
        for name, amount in pod.taken.items():
            used[name] = used.get(name, 0) + amount
        return PodsOnNode(active, put(self.pods, uid, pod), used)

    def without(self, uid: str, active: Mapping[str, object]) -> PodsOnNode:
        """Remove a pod."""
        return PodsOnNode(active, drop(self.pods, uid), self._used_without(uid))

    def _used_without(self, uid: str) -> dict[str, int]:
        used = dict(self.used)
        known = self.pods.get(uid)
        for name, amount in known.taken.items() if known is not None else ():
            used[name] -= amount
        return used


class NodeObject(NamedTuple):
    """The node as its Node object describes it. None for `name` or `labels` leaves the checks that need them out.

    `allocatable` without `ephemeral-storage` leaves that unchecked; any other resource it lacks counts as 0. `amounts`
    is `allocatable` as the predicates count it, for callers that have computed it.
    """

    allocatable: Mapping[str, Quantity]
    name: str | None = None
    labels: Mapping[str, str] | None = None
    os: str = "linux"
    amounts: Mapping[str, int] | None = None


def pod_on_node(pod: Pod, gates: Mapping[str, bool], quirks: Quirks, *, qos: str = "") -> PodOnNode:
    """Return the predicates' view of a pod; `qos` where it is known already."""
    taken = admission_requests(pod, gates)
    asked = _drop_claimed(pod, gates)
    requests = taken if asked is pod else admission_requests(asked, gates)
    qos = qos or pod_qos(pod, gates)
    return PodOnNode(pod, qos, requests, _amounts_taken(pod, taken, gates, quirks), gates, quirks)


def _drop_claimed(pod: Pod, gates: Mapping[str, bool]) -> Pod:
    """Return the pod without requests for extended resources that claims cover (memory-device 3.4, step 6)."""

    def without(container: Container) -> Container:
        claimed, requests = claimed_resources(pod, container.name, gates), container.resources.requests or {}
        if claimed.isdisjoint(requests):
            return container
        left = {name: amount for name, amount in requests.items() if name not in claimed}
        return replace(container, resources=replace(container.resources, requests=left))

    if pod.status.extended_resource_claim_status is None:
        return pod
    return replace(pod, spec=map_containers(pod.spec, without))


def _amounts_taken(pod: Pod, requests: dict[str, int], gates: Mapping[str, bool], quirks: Quirks) -> dict[str, int]:
    """Return what a pod takes from others while it runs. Its status has what was granted to it, overhead included,
    where its pod level can be resized; v1.36.2 adds the overhead to that (pod-level-resources 7.3)."""
    has_overhead = pod.spec.overhead and gates["PodLevelResources"] and gates["InPlacePodLevelResourcesVerticalScaling"]
    if not (has_overhead and quirks.running_overhead_counts_twice) or pod.spec.resources is None:
        return requests
    twice = {
        name: amount
        for name, amount in amounts(pod.spec.overhead or {}).items()
        if name in requests_of(pod.spec.resources) and is_supported_pod_level_resource(name)
    }
    total = dict(requests)
    _add(total, twice)
    return total


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def general_predicates(
    pod: PodOnNode,
    others: OtherPods,
    node: NodeObject | None,
    *,
    devices_in_use: Mapping[str, int] | None = None,
) -> Verdict:
    """Decide whether the pod may run here, as far as the whole node is concerned.

    `devices_in_use` counts the allocated devices of all pods, if this pod already holds some: they raise what is
    allocatable, so that a pod survives a restart of its plugin (memory-device 2.14).
    """
    if node is None:
        return Verdict(Refusal(_NO_NODE))
    refusal = _check_os(pod.pod, node)
    if refusal is not None:
        return Verdict(refusal)
    allocatable = amounts(node.allocatable) if node.amounts is None else node.amounts
    # Devices of a plugin that is away are not allocatable, but pods hold them still.
    for name, amount in (devices_in_use or {}).items():
        if amount > allocatable.get(name, -1):
            allocatable = {**allocatable, name: amount}
    missing = insufficient_resources(pod.requests, others.used, allocatable, pods=len(others.pods))
    if missing:
        missing = [lack for lack in missing if lack.resource in allocatable or not may_be_unknown(lack.resource)]
    refusals = [] if node.name is None and node.labels is None else _check_node(pod.pod, node)
    if not missing and not refusals:
        return _FITS
    if is_critical(pod.pod):
        # Preemption cannot help against a wrong node, so upstream does not try it.
        return Verdict(refusals[0]) if refusals else _preempt(pod, others.pods, missing)
    return Verdict(lack_refusal(missing[0]) if missing else refusals[0])


def lack_refusal(lack: InsufficientResource) -> Refusal:
    """Return the kubelet's refusal for lack of a resource."""
    facts = {"resource": lack.resource, "requested": lack.requested, "used": lack.used, "capacity": lack.capacity}
    return Refusal(_LACKING._replace(code=TOO_MANY_PODS) if lack.resource == PODS else _LACKING, facts)


def may_be_unknown(name: str) -> bool:
    """Whether a resource is not checked where the node does not report it: extended ones, because another component may
    provide them (memory-device 3.4, step 6), and local storage, which a simulated node need not have."""
    return name == EPHEMERAL_STORAGE or is_extended_resource_name(name)


def _check_os(pod: Pod, node: NodeObject) -> Refusal | None:
    if (pod.metadata.labels or {}).get(OS_LABEL, node.os) != node.os:
        return Refusal(_OTHER_OS_LABEL)
    if pod.spec.os is not None and pod.spec.os.name != node.os:
        return Refusal(_OTHER_OS)
    return None


def _check_node(pod: Pod, node: NodeObject) -> list[Refusal]:
    """Return failures that are not about resources (memory-device 3.4, step 7)."""
    failures = []
    if node.labels is not None and not has_labels(node.labels, (pod.spec.node_selector or {}).items()):
        failures.append(Refusal(_OTHER_LABELS))
    if node.name is not None and pod.spec.node_name not in ("", node.name):
        failures.append(Refusal(_OTHER_NODE))
    return failures


def _preempt(pod: PodOnNode, others: Iterable[PodOnNode], missing: Sequence[InsufficientResource]) -> Verdict:
    """Return the verdict with the pods to preempt, or the refusal where that does not help."""
    by_class: dict[str, list[PreemptiblePod]] = {BEST_EFFORT: [], BURSTABLE: [], GUARANTEED: []}
    for other in others:
        if _may_preempt(pod.pod, other.pod):
            by_class[other.qos].append(PreemptiblePod(other.pod.metadata.uid, other.reclaimable | {PODS: 1}))
    try:
        victims = find_victims({lack.resource: lack.missing for lack in missing}, by_class)
    except PreemptionError as error:
        return Verdict(Refusal(_NO_VICTIMS, {"error": str(error)}))
    return Verdict(None, tuple(victims))


def _may_preempt(pod: Pod, other: Pod) -> bool:
    """Whether a pod may preempt another: critical over non-critical, or higher priority."""
    if is_critical(pod) and not is_critical(other):
        return True
    # A pod without priority (a static one that names no class) neither preempts nor is preempted by number.
    mine, theirs = pod.spec.priority, other.spec.priority
    return mine is not None and theirs is not None and mine > theirs
