"""The API server's admission plugins for a resize, once it is valid (pod-level-resources 15.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from podslice.api.pod.demand import pod_requests
from podslice.api.pod.resizable import Stanza, normalize_requirements
from podslice.api.pod.spec import Container, Pod, ResourceRequirements, is_restartable_init
from podslice.values.golang import quote
from podslice.values.quantity import ZERO, Quantity

PLR_RESIZE, INIT_RESIZE = "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"


class ResizedPodsNode(NamedTuple):
    """The pod's node as the plugins see it; `labels` None stands for an unknown node, `features` are those that its
    kubelet declares."""

    name: str
    labels: Mapping[str, str] | None
    allocatable: Mapping[str, Quantity] = MappingProxyType({})
    features: Sequence[str] = ()


def resize_refusal(new: Pod, old: Pod, node: ResizedPodsNode) -> str:
    """Return why the plugins refuse a prepared and validated resize, empty if they do not. They do not look at a pod
    without a node, nor at one whose resources stay as they are."""
    if not new.spec.node_name or _all_requirements(new) == _all_requirements(old):
        return ""
    needed = needed_features(new, old)
    if needed and node.labels is not None:
        # Upstream asks this plugin before the one about the node and its size (pod-level-resources 15.3).
        missing = missing_features_error(needed, node.features, node.name)
        if missing:
            return missing
    return node_platform_error(node.name, node.labels) or node_capacity_error(new, node.allocatable)


def _all_requirements(pod: Pod) -> list[Stanza]:
    containers: tuple[Container, ...] = (*pod.spec.init_containers, *pod.spec.containers)
    return [_pod_level_requirements(pod), *(normalize_requirements(one.resources) for one in containers)]


def _pod_level_requirements(pod: Pod) -> Stanza:
    return normalize_requirements(pod.spec.resources or ResourceRequirements())


def node_capacity_error(pod: Pod, allocatable: Mapping[str, Quantity]) -> str:
    """Return the error for a resize beyond the node's allocatable, empty if it fits (plugin PodResizeValidator).

    The pod-level request counts whatever its gate says. Amounts beyond 64 bits print as the bits that are left of them.
    """
    requests = pod_requests(pod)
    exceeded = []
    for resource, shown in (("cpu", Quantity.milli_value), ("memory", Quantity.value)):
        requested, available = requests.get(resource, ZERO), allocatable.get(resource, ZERO)
        if requested > available:
            exceeded.append(f"{resource}, requested: {shown(requested)}, allocatable: {shown(available)}")
    return f"node didn't have enough allocatable resources: {'; '.join(exceeded)}" if exceeded else ""


def node_platform_error(node: str, labels: Mapping[str, str] | None) -> str:
    """Return why the pod's node cannot resize at all, empty if it can; `labels` None stands for an unknown node."""
    if labels is None:
        return f"node {quote(node)} not found"
    os = labels.get("kubernetes.io/os", "linux")
    return f"pod resize is only supported on linux nodes, node {quote(node)} is {quote(os)}" if os != "linux" else ""


def needed_features(new: Pod, old: Pod) -> tuple[str, ...]:
    """Return the features a node must declare for this resize (plugin NodeDeclaredFeatureValidator)."""
    needed = []
    if _pod_level_requirements(new) != _pod_level_requirements(old):
        needed.append(PLR_RESIZE)
    before = {one.name: normalize_requirements(one.resources) for one in old.spec.init_containers}
    if any(
        not is_restartable_init(one)
        and normalize_requirements(one.resources) != before.get(one.name, normalize_requirements(one.resources))
        for one in new.spec.init_containers
    ):
        needed.append(INIT_RESIZE)
    return tuple(needed)


def missing_features_error(needed: Sequence[str], declared: Sequence[str], node: str) -> str:
    """Return the plugin's error where the node lacks needed features, empty when it has them all."""
    missing = [feature for feature in needed if feature not in declared]
    if not missing:
        return ""
    return f"pod update requires features {', '.join(missing)} which are not available on node {quote(node)}"
