"""Creation of a pod as the API server stores it (pod-level-resources 2, 3, 6.1). The status is new and has the QoS
class, fields of disabled features are dropped, and the stored text is what later readers see."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.demand import pod_qos
from podslice.api.pod.spec import Pod, PodStatus, ResourceList, ResourceRequirements, map_requirements
from podslice.values.quantity import Quantity

replace = msgspec.structs.replace


def is_live(pod: Pod) -> bool:
    """Whether the pod comes from a cluster (kubectl get -o yaml) rather than from a manifest to create it."""
    return bool(pod.status.phase or pod.metadata.creation_timestamp or pod.metadata.resource_version)


def prepare_for_create(pod: Pod, gates: Mapping[str, bool]) -> Pod:
    """Return the pod before validation: a new status with the QoS class (the submitted one if it names one), and no
    `spec.resources` where the gate is off."""
    # The stored class wins over the computed one for the pod's whole life (pod-level-resources 6.1).
    status = PodStatus(qos_class=pod_qos(pod, gates), phase="Pending")
    if pod.spec.resources is None or gates["PodLevelResources"]:
        return replace(pod, status=status)
    return replace(pod, status=status, spec=replace(pod.spec, resources=None))


def as_stored(pod: Pod) -> Pod:
    """Return the pod after a round trip through storage: canonical quantities, no empty maps and lists.

    An empty `spec.resources` stays, because it is an object. The status of a pod just created has nothing to normalize.
    """
    spec = pod.spec
    return replace(
        pod,
        metadata=replace(
            pod.metadata, labels=pod.metadata.labels or None, annotations=pod.metadata.annotations or None
        ),
        spec=replace(
            map_requirements(spec, _requirements_as_stored),
            overhead=_list_as_stored(spec.overhead),
            node_selector=spec.node_selector or None,
        ),
    )


def _requirements_as_stored(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(
        requests=_list_as_stored(resources.requests),
        limits=_list_as_stored(resources.limits),
        claims=[{name: value for name, value in claim.items() if value} for claim in resources.claims or ()] or None,
    )


def _list_as_stored(amounts: ResourceList | None) -> ResourceList | None:
    return {name: Quantity.parse(str(amount)) for name, amount in amounts.items()} if amounts else None
