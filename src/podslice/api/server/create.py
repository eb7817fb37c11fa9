"""What the API server stores when a pod is created (pod-level-resources 2, 3, 6.1). The status is new and has the QoS
class, fields of disabled features are dropped, and the stored text is what later readers see."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import pod_qos
from podslice.api.pod.spec import Pod, PodStatus, ResourceList, ResourceRequirements, map_requirements
from podslice.values.quantity import Quantity

replace = msgspec.structs.replace


def is_live(pod: Pod) -> bool:
    """True for a pod as a cluster holds it (kubectl get -o yaml) rather than as somebody wrote it to create it."""
    return bool(pod.status.phase or pod.metadata.creation_timestamp or pod.metadata.resource_version)


def prepare_for_create(pod: Pod, gates: Mapping[str, bool]) -> Pod:
    """The pod before validation: a new status with the QoS class (the submitted one if it
    names one), and no `spec.resources` where the gate is off."""
    status = PodStatus(qos_class=pod_qos(pod, gates), phase="Pending")
    if pod.spec.resources is None or gates["PodLevelResources"]:
        return replace(pod, status=status)
    return replace(pod, status=status, spec=replace(pod.spec, resources=None))


def stored(pod: Pod) -> Pod:
    """The pod after a round trip through storage: canonical quantities, empty maps and lists gone.

    An empty `spec.resources` stays, because it is an object. A pod just created has nothing of this in its status.
    """
    spec = pod.spec
    return replace(
        pod,
        metadata=replace(
            pod.metadata, labels=pod.metadata.labels or None, annotations=pod.metadata.annotations or None
        ),
        spec=replace(
            map_requirements(spec, _stored_requirements),
            overhead=_stored_list(spec.overhead),
            node_selector=spec.node_selector or None,
        ),
    )


def _stored_requirements(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(
        requests=_stored_list(resources.requests),
        limits=_stored_list(resources.limits),
        claims=[{name: value for name, value in claim.items() if value} for claim in resources.claims or ()] or None,
    )


def _stored_list(amounts: ResourceList | None) -> ResourceList | None:
    return {name: Quantity.parse(str(amount)) for name, amount in amounts.items()} if amounts else None
