"""Pods the agent has to guess from what the runtime knows: the annotation `podslice.io/resources`, and the requests
behind a container's cgroup values.

The annotation is the JSON of `spec.resources`; `containers` and `initContainers` in it, objects of name to resources,
say which containers own a part. Without them all containers share what the pod gets. A pod without annotation counts
container by container: a container of a Guaranteed pod owns its CPUs if its limit is a whole number of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.agent.identity import LARGEST_ANNOTATION, RESOURCES_ANNOTATION, Identity
from podslice.core.effects.cpu_weight import milli_cpu_to_shares
from podslice.core.errors import InputError
from podslice.core.pod.demand import aggregate, own_limits, own_requests
from podslice.core.pod.spec import Pod, pod_from_dict
from podslice.core.values.quantity import ZERO, Quantity
from podslice.wire.proto import nri_pb2 as nri

ANY_CONTAINER = "any"
"""Name of the container that stands for all containers an annotation does not name."""
MOST_CONTAINERS = 100


def annotated_resources(identity: Identity) -> dict[str, Any] | None:
    """The object in the annotation, None without one. Raises `InputError`."""
    text = identity.annotations.get(RESOURCES_ANNOTATION)
    if text is None:
        return None
    place = f"metadata.annotations[{RESOURCES_ANNOTATION}]"
    if len(text.encode()) > LARGEST_ANNOTATION:
        raise InputError(f"is longer than {LARGEST_ANNOTATION} bytes", path=place)
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise InputError("is not JSON", path=place, remedy='write {"requests": {"cpu": "4"}, ...}') from None
    if not isinstance(data, dict):
        raise InputError("is not a JSON object", path=place, remedy='write {"requests": {"cpu": "4"}, ...}')
    unknown = sorted(set(data) - {"requests", "limits", "containers", "initContainers"})
    if unknown:
        raise InputError(f"unknown field {unknown[0]!r}", path=place, remedy="use requests, limits, containers")
    return data


def pod_from_annotation(identity: Identity) -> Pod | None:
    """The pod its annotation describes, None without one. Raises `InputError`."""
    data = annotated_resources(identity)
    if data is None:
        return None
    containers = _containers(data.get("containers"), "containers")
    spec = {
        "resources": {name: data[name] for name in ("requests", "limits") if name in data},
        "initContainers": _containers(data.get("initContainers"), "initContainers"),
        "containers": containers or [{"name": ANY_CONTAINER}],
    }
    return _pod(identity, spec)


def with_annotation(pod: Pod, identity: Identity) -> Pod:
    """A pod from elsewhere with the annotation's pod-level resources, where it has none of its own: for clusters whose
    API server drops `spec.resources`. The annotation may only name as pod-level what the pod's containers ask for,
    because scheduler and quotas counted those. Raises `InputError`."""
    if pod.spec.resources is not None:
        return pod
    data = annotated_resources(identity)
    if data is None:
        return pod
    spec = {"resources": {name: data[name] for name in ("requests", "limits") if name in data}, "containers": []}
    resources = _pod(identity, spec).spec.resources
    assert resources is not None
    counted = aggregate(pod, lambda container: own_limits(container) | own_requests(container))
    for name, amount in ((resources.limits or {}) | (resources.requests or {})).items():
        known = counted.get(name, ZERO)
        if amount > known:
            raise InputError(
                f"wants {_short(amount)} where the pod's containers request {_short(known)}",
                path=f"metadata.annotations[{RESOURCES_ANNOTATION}].requests[{name[:80]}]",
                remedy="let the containers request it, or use spec.resources, so that scheduler and quotas count it",
            )
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=resources))


def _short(amount: Quantity) -> str:
    return str(amount)[:40]


def _containers(value: Any, field: str) -> list[dict[str, Any]]:
    place = f"metadata.annotations[{RESOURCES_ANNOTATION}].{field}"
    if value is None:
        return []
    if not isinstance(value, dict) or len(value) > MOST_CONTAINERS:
        raise InputError(
            "is not an object of at most 100 names", path=place, remedy='{"app": {"limits": {"cpu": "2"}}}'
        )
    containers = []
    for name, resources in value.items():
        if not isinstance(resources, dict):
            raise InputError("is not an object", path=f"{place}[{name[:80]}]")
        restart = resources.pop("restartPolicy", None)
        containers.append({"name": name, "resources": resources, "restartPolicy": restart})
    return containers


def _pod(identity: Identity, spec: dict[str, Any]) -> Pod:
    metadata = {"name": identity.name, "namespace": identity.namespace, "uid": identity.uid}
    try:
        return pod_from_dict({"metadata": metadata, "spec": spec})
    except InputError as error:
        raise error.at(source=f"metadata.annotations[{RESOURCES_ANNOTATION}]") from None


def qos_of_parent(cgroup_parent: str) -> str:
    """QoS class by the cgroup a kubelet puts the pod into; empty where the parent is not a kubelet's."""
    if "besteffort" in cgroup_parent:
        return "BestEffort"
    if "burstable" in cgroup_parent:
        return "Burstable"
    return "Guaranteed" if "kubepods" in cgroup_parent else ""


def unit_uid(uid: str, container: str) -> str:
    """Key under which a container without known pod is admitted on its own; no Kubernetes UID contains a slash."""
    return f"{uid}/{container}"


def pod_from_container(identity: Identity, container: nri.Container) -> Pod | None:
    """A pod of just this container if it may own CPUs, None if it shares.

    CPU limit and shares say the request, and only in a Guaranteed pod the memory limit is the memory request.
    """
    cpu, memory = container.linux.resources.cpu, container.linux.resources.memory
    quota, period = cpu.quota.value, cpu.period.value
    if qos_of_parent(identity.cgroup_parent) != "Guaranteed" or quota <= 0 or period <= 0 or memory.limit.value <= 0:
        return None
    milli = quota * 1000 // period
    if cpu.shares.value != milli_cpu_to_shares(milli):
        return None
    amounts = {"cpu": f"{milli}m", "memory": str(memory.limit.value)}
    for limit in container.linux.resources.hugepage_limits:
        if limit.limit and limit.page_size.endswith("B"):
            amounts[f"hugepages-{limit.page_size[:-1]}i"] = str(limit.limit)
    one = {"name": container.name, "resources": {"requests": amounts, "limits": amounts}}
    owner = identity._replace(uid=unit_uid(identity.uid, container.name))
    return _pod(owner, {"containers": [one]})
