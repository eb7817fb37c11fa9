"""Leave everything out of objects that podslice does not read: secrets hide in environment, arguments and annotations.

Fields are kept by name, so a field that is unknown here is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from podslice.config.annotations import PREFIX
from podslice.config.schema import field_names
from podslice.node.devices import checkpoint as device_file
from podslice.values.go.gojson import CheckpointError

_ANNOTATIONS: Final = (
    PREFIX,
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.source",
    "kubernetes.io/config.seen",
)
"""Annotations that are kept: ours, and those that mark a static pod."""
_METADATA = ("name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp", "labels")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_CONTAINER = ("name", "image", "imagePullPolicy", "resources", "resizePolicy", "restartPolicy", "ports")
_SPEC = (
    "activeDeadlineSeconds", "affinity", "hostNetwork", "nodeName", "nodeSelector", "os", "overhead",
    "preemptionPolicy", "priority", "priorityClassName", "resourceClaims", "resources", "restartPolicy",
    "runtimeClassName", "schedulerName", "schedulingGates", "terminationGracePeriodSeconds", "tolerations",
    "topologySpreadConstraints",
)  # fmt: skip
_STATUS = (
    "allocatedResources", "conditions", "extendedResourceClaimStatus", "message", "nominatedNodeName",
    "nodeAllocatableResourceClaimStatuses", "phase", "qosClass", "reason", "resize", "resourceClaimStatuses",
    "resources", "startTime",
)  # fmt: skip
_CONTAINER_STATUS = ("name", "ready", "restartCount", "started", "containerID", "resources", "allocatedResources",
                     "allocatedResourcesStatus")  # fmt: skip
# The message of an ended container is what its program wrote.
_STATES = {
    "running": ("startedAt",),
    "waiting": ("reason", "message"),
    "terminated": ("reason", "exitCode", "signal", "startedAt", "finishedAt", "containerID"),
}
_NODE_STATUS = ("capacity", "allocatable", "conditions", "nodeInfo", "features")
_NODE_INFO = ("architecture", "operatingSystem", "kubeletVersion", "kernelVersion", "containerRuntimeVersion",
              "osImage")  # fmt: skip
_EVENT = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime", "series", "source",
          "reportingComponent", "reportingInstance", "involvedObject", "action")  # fmt: skip
_QUOTING = frozenset(("Unhealthy", "ProbeWarning", "FailedPostStartHook", "FailedPreStopHook"))
"""Reasons of events whose message quotes the output of a program of the pod."""
_SECRET_SETTINGS = frozenset(("staticPodURLHeader", "staticPodURL"))


def _keep(data: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: data[name] for name in names if name in data} if isinstance(data, Mapping) else {}


def _each(data: Any) -> list[Any]:
    return data if isinstance(data, list) else []


def _metadata(data: Any) -> dict[str, Any]:
    kept = _keep(data, _METADATA)
    owners = [_keep(one, _OWNER) for one in _each(data.get("ownerReferences"))] if isinstance(data, Mapping) else []
    annotations = data.get("annotations") if isinstance(data, Mapping) else None
    ours = {
        key: value
        for key, value in (annotations.items() if isinstance(annotations, Mapping) else ())
        if str(key).startswith(_ANNOTATIONS)
    }
    return {**kept, **({"ownerReferences": owners} if owners else {}), **({"annotations": ours} if ours else {})}


def redact_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Pod without environment, commands, arguments, volumes, probes, and annotations of others."""
    spec, status = pod.get("spec"), pod.get("status")
    containers = {
        name: [_keep(one, _CONTAINER) for one in _each(spec.get(name))]
        for name in ("initContainers", "containers", "ephemeralContainers")
        if isinstance(spec, Mapping) and name in spec
    }
    statuses = {
        name: [_container_status(one) for one in _each(status.get(name))]
        for name in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        if isinstance(status, Mapping) and name in status
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(pod.get("metadata")),
        "spec": {**_keep(spec, _SPEC), **containers},
        "status": {**_keep(status, _STATUS), **statuses},
    }


def _container_status(data: Any) -> dict[str, Any]:
    kept = _keep(data, _CONTAINER_STATUS)
    for name in ("state", "lastState"):
        if isinstance(data, Mapping) and isinstance(data.get(name), Mapping):
            kept[name] = {state: _keep(data[name][state], fields) for state, fields in _STATES.items()
                          if state in data[name]}  # fmt: skip
    return kept


def redact_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Node without addresses, images, volumes, and annotations of others."""
    status = node.get("status")
    kept = _keep(status, _NODE_STATUS)
    if "nodeInfo" in kept:
        kept["nodeInfo"] = _keep(kept["nodeInfo"], _NODE_INFO)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(node.get("metadata")),
        "spec": _keep(node.get("spec"), ("taints", "unschedulable")),
        "status": kept,
    }


def redact_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an Event without the output of programs that some quote."""
    kept = _keep(event, _EVENT)
    if kept.get("reason") in _QUOTING:
        kept.pop("message", None)
    return {"apiVersion": "v1", "kind": "Event", "metadata": _metadata(event.get("metadata")), **kept}


def redact_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a KubeletConfiguration that Kubernetes knows, without the headers of static pods' URLs,
    which may authenticate."""
    return _keep(fields, ("apiVersion", "kind", *(name for name in field_names() if name not in _SECRET_SETTINGS)))


def redact_slice(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ResourceSlice or NodeResourceTopology without annotations of others."""
    return {**found, "metadata": _metadata(found.get("metadata"))}


def redact_class(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a DeviceClass without the parameters of drivers."""
    spec = _keep(found.get("spec"), ("selectors", "extendedResourceName"))
    return {"metadata": _metadata(found.get("metadata")), "spec": spec}


def redact_claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ResourceClaim without the parameters of drivers, and what these report of devices."""
    spec, status = claim.get("spec"), claim.get("status")
    kept = _keep(status, ("reservedFor",))
    if isinstance(status, Mapping) and isinstance(status.get("allocation"), Mapping):
        allocation = status["allocation"]
        devices = _keep(allocation.get("devices"), ("results",))
        kept["allocation"] = {**_keep(allocation, ("nodeSelector", "allocationTimestamp")), "devices": devices}
    wanted = spec.get("devices") if isinstance(spec, Mapping) else None
    return {
        "metadata": _metadata(claim.get("metadata")),
        "spec": {"devices": _keep(wanted, ("requests", "constraints"))},
        "status": kept,
    }


def redact_device_file(data: bytes) -> bytes:
    """Return a Device Manager's file without the plugins' answers, which have environment variables, and with the
    checksum of what remains. A file that cannot be read stays as it is."""
    try:
        found = device_file.load(data)
    except CheckpointError:
        return data
    if any(isinstance(entry.by_node, list) for entry in found.entries or ()):
        return data
    entries = None if found.entries is None else [entry._replace(response=None) for entry in found.entries]
    return device_file.encode(entries, found.registered)


def restore_device_sum(data: bytes) -> bytes:
    """Return a Device Manager's file with the checksum of its content where `capture.sh` cut the plugins' answers out
    of it, and as it is otherwise."""
    try:
        found = device_file.decode(data)
    except CheckpointError:
        return data
    entries = found.entries or []
    if not entries or any(entry.response is not None or isinstance(entry.by_node, list) for entry in entries):
        return data
    return device_file.encode(found.entries, found.registered)
