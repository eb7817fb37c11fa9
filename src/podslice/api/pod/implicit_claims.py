"""Claims that the scheduler makes for pods that ask for devices by the name of a class (KEP-5004).

Such a pod asks for `deviceclass.resource.kubernetes.io/CLASS`, which no node has an amount of. Before a kubelet sees
the pod, the scheduler makes a claim and writes it into the pod's status; a manifest has no status yet.
"""

from __future__ import annotations

from msgspec.structs import replace

from podslice.api.pod.spec import ExtendedResourceClaim, ExtendedResourceRequest, Pod

PREFIX = "deviceclass.resource.kubernetes.io/"


def complete_claims(pod: Pod) -> tuple[Pod, tuple[str, ...]]:
    """Return the pod with the status that the scheduler gives it, and the resources that its claim serves; without
    such resources, and on a node already, the pod itself."""
    if pod.status.extended_resource_claim_status is not None or pod.spec.node_name:
        return pod, ()
    mappings = []
    for index, container in enumerate((*pod.spec.init_containers, *pod.spec.containers)):
        asked = {**(container.resources.limits or {}), **(container.resources.requests or {})}
        for number, resource in enumerate(name for name in asked if name.startswith(PREFIX)):
            request = f"container-{index}-request-{number}"
            mappings.append(ExtendedResourceRequest(container.name, resource, request))
    if not mappings:
        return pod, ()
    claim = ExtendedResourceClaim(f"{pod.metadata.name}-extended-resources", tuple(mappings))
    names = tuple(dict.fromkeys(one.resource_name for one in mappings))
    return replace(pod, status=replace(pod.status, extended_resource_claim_status=claim)), names
