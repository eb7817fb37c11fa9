"""Does a pod fit on a node: what the scheduler counts and what it answers (pod-level-resources 13).

The incoming pod counts by its specification, pods on the node by what they may really hold (status, pending
resizes). The kubelet asks the same question again at admission (`predicates`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podslice.core.machine.devices import is_extended_resource_name
from podslice.core.pod.demand import HUGEPAGES_PREFIX, StatusUse, is_pod_level_requests_set, pod_requests
from podslice.core.pod.spec import Pod, ResourceList
from podslice.core.values.quantity import ZERO, Quantity

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
BASIC_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)
_FIRST = (PODS, *BASIC_RESOURCES)
CLAIMS_COUNT = "DRANodeAllocatableResources"
"""The gate with which claims count with the requests of pods."""

NON_ZERO_REQUESTS: ResourceList = {CPU: Quantity.parse("100m"), MEMORY: Quantity.parse("200Mi")}
"""What stands for a container's missing request where the scheduler spreads pods by load."""

SUCCESS, UNSCHEDULABLE, UNRESOLVABLE = "Success", "Unschedulable", "UnschedulableAndUnresolvable"


class InsufficientResource(NamedTuple):
    """A resource the pod does not get; CPUs in milli, everything else in whole units."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """How much more the node would need free."""
        return self.requested - (self.capacity - self.used)

    @property
    def reason(self) -> str:
        """The words of a `FailedScheduling` event."""
        return "Too many pods" if self.resource == PODS else f"Insufficient {self.resource}"

    @property
    def unresolvable(self) -> bool:
        """True when even an empty node would be too small, so that preemption cannot help."""
        return self.resource != PODS and self.requested > self.capacity


def filter_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """What an incoming pod asks a node for: effective requests of the specification, overhead included
    (pod-level-resources 13.1)."""
    return _not_negative(pod_requests(pod, pod_level=gates["PodLevelResources"]))


def admission_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """The same as the kubelet counts it at admission: with the claims that the pod's status names
    (cluster-integration A.7, gate DRANodeAllocatableResources)."""
    return _not_negative(pod_requests(pod, pod_level=gates["PodLevelResources"], claims=gates[CLAIMS_COUNT]))


def _not_negative(requests: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: max(0, amount) for name, amount in amounts(requests).items()}


def accounted_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """What a pod on the node takes away from others: specification, allocation and what is in force
    (pod-level-resources 7.3)."""
    return amounts(_accounted(pod, gates))


def non_zero_requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, int]:
    """CPU (milli) and memory (bytes) of a pod on the node, with defaults for containers that request neither.

    With pod-level requests a default only stands for a resource that is missing from the whole
    (pod-level-resources 13.2).
    """
    missing = NON_ZERO_REQUESTS
    if gates["PodLevelResources"] and is_pod_level_requests_set(pod):
        known = _accounted(pod, gates)
        missing = {name: amount for name, amount in NON_ZERO_REQUESTS.items() if name not in known}
    total = _accounted(pod, gates, missing)
    return {CPU: total.get(CPU, ZERO).milli_value(), MEMORY: total.get(MEMORY, ZERO).value()}


def _accounted(pod: Pod, gates: Mapping[str, bool], missing: ResourceList | None = None) -> dict[str, Quantity]:
    resizable = gates["InPlacePodLevelResourcesVerticalScaling"]
    return pod_requests(
        pod,
        pod_level=gates["PodLevelResources"],
        missing=missing,
        status=StatusUse.POD_LEVEL if resizable else StatusUse.CONTAINERS,
        claims=gates[CLAIMS_COUNT],
    )


def insufficient_resources(
    requests: Mapping[str, int], used: Mapping[str, int], allocatable: Mapping[str, int], *, pods: int
) -> list[InsufficientResource]:
    """What the pod lacks, as the scheduler's filter lists it: pods, cpu, memory, ephemeral-storage, then hugepages and
    extended resources in byte order (pod-level-resources 13.1; memory-device 3.4, step 7). Missing amounts count as 0.
    `used` is what the `pods` on the node request together."""
    lacking = []
    if pods + 1 > allocatable.get(PODS, 0):
        lacking.append(InsufficientResource(PODS, 1, pods, allocatable.get(PODS, 0)))
    for name, wanted in requests.items():
        taken, capacity = used.get(name, 0), allocatable.get(name, 0)
        if wanted > 0 and wanted > capacity - taken and name != PODS:
            lacking.append(InsufficientResource(name, wanted, taken, capacity))
    return sorted(lacking, key=_place) if len(lacking) > 1 else lacking


def _place(lack: InsufficientResource) -> tuple[int, str]:
    return _FIRST.index(lack.resource) if lack.resource in _FIRST else len(_FIRST), lack.resource


def filter_code(lacking: Sequence[InsufficientResource]) -> str:
    """The filter's answer: whether the pod fits, might fit after preemption, or never will."""
    if not lacking:
        return SUCCESS
    return UNRESOLVABLE if any(lack.unresolvable for lack in lacking) else UNSCHEDULABLE


def no_node_message(nodes: Sequence[Sequence[InsufficientResource]]) -> str:
    """The `FailedScheduling` event of a pod that fits none of the nodes, from what it lacks on each
    (pod-level-resources 13.4)."""
    reasons = Counter(lack.reason for lacking in nodes for lack in lacking)
    shown = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{len(nodes)} nodes are available: {', '.join(shown)}."


def amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Resource amounts as the scheduler counts them: milli CPUs, whole units of what can be counted at all."""
    return {
        name: quantity.milli_value() if name == CPU else quantity.value()
        for name, quantity in quantities.items()
        if name in BASIC_RESOURCES or name == PODS or _is_scalar(name)
    }


def _is_scalar(name: str) -> bool:
    """Names the scheduler counts in addition to the basic ones; others in a pod are not looked at."""
    return name.startswith((HUGEPAGES_PREFIX, "attachable-volumes-")) or (
        "kubernetes.io/" in name or is_extended_resource_name(name)
    )
