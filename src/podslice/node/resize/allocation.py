"""Grant an in-place resize, or refuse it before any manager is asked (KEP-1287, KEP-5419; pod-level-resources 15.4).

A kubelet works with the *allocated* pod: the pod's specification with the resources that were granted last. A changed
specification is a request; it becomes the allocation when the checks here and the admission chain agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from podslice.api.pod.critical import is_static
from podslice.api.pod.demand import GUARANTEED, is_pod_level_resources_set, pod_qos, pod_requests
from podslice.api.pod.resizable import needs_restart, resizable_containers
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements, allocation_of
from podslice.api.server.resize_admission import node_capacity_error
from podslice.node.effects.container_cgroup import SWAP_MAX, container_resources
from podslice.node.effects.settings import CgroupSettings
from podslice.values.errors import Refusal
from podslice.values.quantity import ZERO, Quantity
from podslice.values.quirks import PODSLICE, Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

replace = msgspec.structs.replace

INFEASIBLE: Final = "Infeasible"
DEFERRED: Final = "Deferred"
_CPU, _MEMORY = "cpu", "memory"
_PLATFORMS = {
    "linux": None,
    "windows": ("In-place pod resize is not supported on Windows", "windows"),
}
_OTHER_PLATFORM = ("In-place pod resize is not supported on this node", "unsupported_platform")


class ResizeNode(msgspec.Struct, frozen=True):
    """Facts of a node that decide about resizes. `cpu_policy`, `memory_policy` are the managers' policy names;
    `pod_scope`: the Topology Manager aligns whole pods, so static managers hold what a pod has as one. `cgroups`:
    settings that decide which containers swap (None: none does). `exclusive_cpus`, `exclusive_memory`: exclusive CPUs
    and memory of containers can be resized."""

    gates: Mapping[str, bool]
    cpu_policy: str = "none"
    memory_policy: str = "None"
    pod_scope: bool = False
    cgroups: CgroupSettings | None = None
    exclusive_cpus: bool = False
    exclusive_memory: bool = False
    os: str = "linux"
    quirks: Quirks = PODSLICE
    release: Release = DEFAULT
    allocatable: Mapping[str, Quantity] | None = None
    """Amounts that pods may request of the node in all; None: not checked here."""


class ResizeVerdict(NamedTuple):
    """The answer to one attempt. `outcome`: `Unchanged` (the request is allocated already), `Allocated`, `Deferred`
    (retried later) or `Infeasible` (not before the specification changes). `detail` is the label `reason_detail` of the
    metric of infeasible resizes, `reason` that of the refusal behind a deferred one."""

    outcome: Literal["Unchanged", "Allocated", "Deferred", "Infeasible"]
    message: str = ""
    detail: str = ""
    reason: str = ""


_STATIC_CPUS = ResizeVerdict(
    INFEASIBLE,
    'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
    "guaranteed_pod_cpu_manager_static_policy",
)
_STATIC_MEMORY = ResizeVerdict(
    INFEASIBLE,
    'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"',
    "guaranteed_pod_memory_manager_static_policy",
)
_ANY_UNDER_STATIC_CPUS, _ANY_UNDER_STATIC_MEMORY = (
    verdict._replace(message=f"Resize is infeasible for Guaranteed Pods alongside {manager} Manager static policy")
    for verdict, manager in ((_STATIC_CPUS, "CPU"), (_STATIC_MEMORY, "Memory"))
)


# The resize check: first handler of the admission chain


def check_resize(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    """Return why a resize can never be granted on this node; None to go on with the admission chain."""
    platform = _PLATFORMS.get(node.os, _OTHER_PLATFORM)
    if platform is not None:
        return _infeasible(*platform)
    # The order is upstream's: the first check that fails gives the message.
    for check in (
        _check_gate,
        _check_static_pod,
        _check_node_capacity,
        _check_swap,
        _check_pod_level_gate,
        _check_static_cpus,
        _check_static_memory,
        _check_pod_budget,
    ):
        verdict = check(desired, allocated, node)
        if verdict is not None:
            return verdict
    return None


def _infeasible(message: str, detail: str) -> ResizeVerdict:
    return ResizeVerdict(INFEASIBLE, message, detail)


def _check_gate(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    if node.gates["InPlacePodVerticalScaling"]:
        return None
    return _infeasible("InPlacePodVerticalScaling is disabled", "feature_gate_off")


def _check_static_pod(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    del allocated
    if node.release.resizes_static_pods or not is_static(desired):
        return None
    return _infeasible("In-place resize of static-pods is not supported", "")


def _check_node_capacity(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    """Refuse a request beyond the node. Since 1.36 the API server refuses such a resize; a kubelet that gets it all the
    same can only wait."""
    del allocated
    if node.allocatable is None:
        return None
    if node.release.refuses_resizes_beyond_node:
        return _check_capacity(pod_requests(desired), node.allocatable)
    problem = node_capacity_error(desired, node.allocatable)
    return _infeasible(problem, "node_allocatable") if problem else None


def _check_capacity(requests: ResourceList, capacity: Mapping[str, Quantity]) -> ResizeVerdict | None:
    """Refuse a request beyond the node as a kubelet up to 1.35 does, which names one resource."""
    for resource, shown in ((_MEMORY, Quantity.value), (_CPU, Quantity.milli_value)):
        wanted, available = requests.get(resource, ZERO), capacity.get(resource, ZERO)
        if wanted > available:
            amounts = f"{resource}, requested: {shown(wanted)}, capacity: {shown(available)}"
            return _infeasible(f"Node didn't have enough capacity: {amounts}", "node_allocatable")
    return None


def _check_swap(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    """Refuse to change the memory request of a container that can swap, before or after, unless it restarts."""
    cgroups = node.cgroups
    if cgroups is None or node.release.resizes_swapping_containers:
        return None
    before = {container.name: container for container in resizable_containers(allocated, node.gates)}
    for container in resizable_containers(desired, node.gates):
        old = before.get(container.name)
        if old is None or _request(container, _MEMORY) == _request(old, _MEMORY) or needs_restart(container, _MEMORY):
            continue
        if _can_swap(desired, container, node, cgroups) or _can_swap(allocated, old, node, cgroups):
            return _infeasible("In-place resize of containers with swap is not supported.", "swap_limitation")
    return None


def _check_pod_level_gate(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    if node.gates["InPlacePodLevelResourcesVerticalScaling"] or _stanza(desired) == _stanza(allocated):
        return None
    return _infeasible("InPlacePodLevelResourcesVerticalScaling is disabled", "plr_feature_gate_off")


def _check_static_cpus(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    if not _has_fixed_cpus(node):
        return None
    if not node.release.resizes_beside_static_managers:
        return _ANY_UNDER_STATIC_CPUS if pod_qos(desired, node.gates) == GUARANTEED else None
    return _STATIC_CPUS if _changes_guaranteed(desired, allocated, node, _CPU) else None


def _check_static_memory(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    if not node.release.resizes_beside_static_managers:
        # One gate is for both managers there.
        fixed = node.memory_policy == "Static" and not _may_resize_exclusive_cpus(node)
        return _ANY_UNDER_STATIC_MEMORY if fixed and pod_qos(desired, node.gates) == GUARANTEED else None
    fixed = _has_fixed_memory(node) and _changes_guaranteed(desired, allocated, node, _MEMORY)
    return _STATIC_MEMORY if fixed else None


def _may_resize_exclusive_cpus(node: ResizeNode) -> bool:
    return node.exclusive_cpus or node.gates["InPlacePodVerticalScalingExclusiveCPUs"]


def _has_fixed_cpus(node: ResizeNode) -> bool:
    return node.cpu_policy == "static" and not _may_resize_exclusive_cpus(node)


def _has_fixed_memory(node: ResizeNode) -> bool:
    allowed = node.exclusive_memory or node.gates["InPlacePodVerticalScalingExclusiveMemory"]
    return node.memory_policy == "Static" and not allowed


def _changes_guaranteed(desired: Pod, allocated: Pod, node: ResizeNode, resource: str) -> bool:
    """Whether a resize changes a request of a Guaranteed pod's container."""
    if pod_qos(desired, node.gates) != GUARANTEED:
        return False
    before = {one.name: _request(one, resource) for one in resizable_containers(allocated, node.gates)}
    return any(
        one.name in before and _request(one, resource) != before[one.name]
        for one in resizable_containers(desired, node.gates)
    )


def _check_pod_budget(desired: Pod, allocated: Pod, node: ResizeNode) -> ResizeVerdict | None:
    """Refuse to resize under a static manager what it holds for a whole pod (profile podslice)."""
    gates = node.gates
    managed = node.pod_scope and gates["PodLevelResourceManagers"] and is_pod_level_resources_set(allocated)
    if node.quirks.pod_level_resize_outgrows_managers or not managed or pod_qos(desired, gates) != GUARANTEED:
        return None
    was, wants = pod_requests(allocated), pod_requests(desired)
    for resource, fixed, refusal in (
        (_CPU, _has_fixed_cpus(node), _STATIC_CPUS),
        (_MEMORY, _has_fixed_memory(node), _STATIC_MEMORY),
    ):
        if fixed and was.get(resource, ZERO) != wants.get(resource, ZERO):
            return refusal
    return None


def _request(container: Container, resource: str) -> Quantity:
    return (container.resources.requests or {}).get(resource, ZERO)


def _stanza(pod: Pod) -> tuple[ResourceList, ResourceList]:
    resources = pod.spec.resources or ResourceRequirements()
    return resources.requests or {}, resources.limits or {}


def _can_swap(pod: Pod, container: Container, node: ResizeNode, cgroups: CgroupSettings) -> bool:
    resources = container_resources(pod, container, node.gates, cgroups, node.quirks, oom_score_adj=0)
    return resources.unified.get(SWAP_MAX, 0) > 0


# One attempt


def try_resize(
    desired: Pod,
    allocated: Pod,
    node: ResizeNode,
    admission_chain: Callable[[Pod], Refusal | ResizeVerdict | None],
) -> ResizeVerdict:
    """Decide about one resize. `admission_chain` are the handlers after the resize check (memory-device 3.2); it is
    called at most once, with the desired pod, and may take resources only where it returns None. A refusal by it may
    pass later, a verdict of its own is final."""
    # The record has the pod level only with its gate, so the stanza is compared besides (pod-level-resources 15.4).
    if allocation_of(desired, node.gates) == allocation_of(allocated, node.gates) and (
        _stanza(desired) == _stanza(allocated)
    ):
        return ResizeVerdict("Unchanged")
    verdict = check_resize(desired, allocated, node)
    if verdict is not None:
        return verdict
    refusal = admission_chain(desired)
    if isinstance(refusal, ResizeVerdict):
        return refusal
    if refusal is None:
        return ResizeVerdict("Allocated")
    return ResizeVerdict(DEFERRED, refusal.message, reason=refusal.reason)


def shrinks(desired: Pod, allocated: Pod, gates: Mapping[str, bool]) -> bool:
    """Whether a resize frees cpu or memory, so that another pod's resize may fit now."""
    was, wants = _requests(allocated, gates), _requests(desired, gates)
    return any(wants.get(name, ZERO) < was.get(name, ZERO) for name in (_CPU, _MEMORY))


def grows(desired: Pod, allocated: Pod, gates: Mapping[str, bool]) -> bool:
    """Whether a resize raises the pod's cpu or memory request."""
    was, wants = _requests(allocated, gates), _requests(desired, gates)
    return any(wants.get(name, ZERO) > was.get(name, ZERO) for name in (_CPU, _MEMORY))


def _requests(pod: Pod, gates: Mapping[str, bool]) -> dict[str, Quantity]:
    return pod_requests(pod, pod_level=gates["PodLevelResources"])
