"""What the API server's admission plugins say about a resize, once it is valid (pod-level-resources 15.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from podslice.api.pod.demand import pod_requests
from podslice.api.pod.resizable import Stanza, stanza
from podslice.api.pod.spec import Container, Pod, ResourceRequirements, is_restartable_init
from podslice.values.golang import quote
from podslice.values.quantity import ZERO, Quantity

PLR_RESIZE, INIT_RESIZE = "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"


class ResizedPodsNode(NamedTuple):
    """The pod's node as far as the plugins look at it; `labels` None stands for an unknown node, `features` are those
    that its kubelet declares."""

    name: str
    labels: Mapping[str, str] | None
    allocatable: Mapping[str, Quantity] = MappingProxyType({})
    features: Sequence[str] = ()


def resize_refusal(new: Pod, old: Pod, node: ResizedPodsNode) -> str:
    """Why the plugins refuse a prepared and validated resize, empty if they do not. A pod without a node, and one
    whose resources stay as they are, is nobody's business."""
    if not new.spec.node_name or _stanzas(new) == _stanzas(old):
        return ""
    needed = needed_features(new, old)
    if needed and node.labels is not None:
        missing = missing_features_error(needed, node.features, node.name)
        if missing:
            return missing
    return node_platform_error(node.name, node.labels) or node_capacity_error(new, node.allocatable)


def _stanzas(pod: Pod) -> list[Stanza]:
    containers: tuple[Container, ...] = (*pod.spec.init_containers, *pod.spec.containers)
    return [_pod_level(pod), *(stanza(one.resources) for one in containers)]


def _pod_level(pod: Pod) -> Stanza:
    return stanza(pod.spec.resources or ResourceRequirements())


def node_capacity_error(pod: Pod, allocatable: Mapping[str, Quantity]) -> str:
    """Why a resize asks for more than its node could ever give, empty if it does not (plugin PodResizeValidator).

    The pod-level request counts whatever its gate says. Amounts beyond 64 bits are shown as what is left of them.
    """
    requests = pod_requests(pod)
    exceeded = []
    for resource, shown in (("cpu", Quantity.milli_value), ("memory", Quantity.value)):
        requested, available = requests.get(resource, ZERO), allocatable.get(resource, ZERO)
        if requested > available:
            exceeded.append(f"{resource}, requested: {shown(requested)}, allocatable: {shown(available)}")
    return f"node didn't have enough allocatable resources: {'; '.join(exceeded)}" if exceeded else ""


def node_platform_error(node: str, labels: Mapping[str, str] | None) -> str:
    """Why the pod's node cannot resize at all, empty if it can; `labels` None stands for an unknown node."""
    if labels is None:
        return f"node {quote(node)} not found"
    os = labels.get("kubernetes.io/os", "linux")
    return f"pod resize is only supported on linux nodes, node {quote(node)} is {quote(os)}" if os != "linux" else ""


def needed_features(new: Pod, old: Pod) -> tuple[str, ...]:
    """The features a node must declare for this resize (plugin NodeDeclaredFeatureValidator)."""
    needed = []
    if _pod_level(new) != _pod_level(old):
        needed.append(PLR_RESIZE)
    before = {one.name: stanza(one.resources) for one in old.spec.init_containers}
    if any(
        not is_restartable_init(one) and stanza(one.resources) != before.get(one.name, stanza(one.resources))
        for one in new.spec.init_containers
    ):
        needed.append(INIT_RESIZE)
    return tuple(needed)


def missing_features_error(needed: Sequence[str], declared: Sequence[str], node: str) -> str:
    """What the plugin answers when the node lacks needed features, empty when it has them all."""
    missing = [feature for feature in needed if feature not in declared]
    if not missing:
        return ""
    return f"pod update requires features {', '.join(missing)} which are not available on node {quote(node)}"
