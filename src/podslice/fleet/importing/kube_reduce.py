"""Reduced copies of a cluster's objects and state files, with what decides about resources and nothing else.

Anonymised ones have hashes in place of names, salted with a secret that is thrown away, and no labels but those that
describe the machine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from podslice.api.pod.spec import PodAllocation
from podslice.fleet.importing.kube_budgets import BUDGET
from podslice.fleet.importing.kube_objects import items_of, name_of, part
from podslice.fleet.importing.kube_pods import SEEN_LAST, kubelet_uid
from podslice.node.checkpoints import allocation as checkpoint_allocation
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints.content import AllocationCheckpoint, read_content
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.devices.checkpoint import DeviceCheckpoint, PodDevicesEntry
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError

_SPEC = (
    "containers",
    "initContainers",
    "resources",
    "overhead",
    "priority",
    "priorityClassName",
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
)
_BY_LABELS = ("nodeSelector", "affinity", "topologySpreadConstraints", "priorityClassName")
"""Fields of a pod that contain labels and names."""
_CONTAINER = ("name", "resources", "restartPolicy")
_STATUS = ("name", "resources", "allocatedResources")
_KEPT_LABELS = (
    "kubernetes.io/arch", "node.kubernetes.io/instance-type", "nvidia.com/gpu.product",
    "feature.node.kubernetes.io/cpu-hardware_multithreading", "feature.node.kubernetes.io/memory-numa",
)  # fmt: skip
V = TypeVar("V")


class Names:
    """Maps names to themselves, or to hashes. The salt of hashes is lost with this object."""

    def __init__(self, *, hidden: bool) -> None:
        self.hidden = hidden
        # Names are easily guessed; only a salt that is thrown away stops a reader from hashing guesses.
        self._salt = os.urandom(16)
        self._containers: dict[str, dict[str, str]] = {}

    def of(self, name: str) -> str:
        """Return what a name becomes."""
        return "x" + hashlib.sha256(self._salt + name.encode()).hexdigest()[:12] if self.hidden and name else name

    def container(self, uid: str, name: str) -> str:
        """Return what the name of a pod's container becomes: its position in the pod."""
        if not self.hidden:
            return name
        own = self._containers.setdefault(uid, {})
        return own.setdefault(name, f"c{len(own)}")


def reduce_object(data: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Return the reduced copy of a Node, a Pod, a NodeResourceTopology or a PodDisruptionBudget."""
    make = {"Node": _node, "Pod": _pod, "NodeResourceTopology": _zones, BUDGET: _budget}[data["kind"]]
    return make(data, names)


def _labels(metadata: Mapping[str, Any], names: Names) -> dict[str, Any]:
    labels = part(metadata, "labels")
    return {key: value for key, value in labels.items() if key in _KEPT_LABELS} if names.hidden else labels


def _node(data: Mapping[str, Any], names: Names) -> dict[str, Any]:
    metadata = {"name": names.of(name_of(data)), "labels": _labels(part(data, "metadata"), names)}
    kept = ("capacity", "allocatable")
    status = {key: value for key, value in part(data, "status").items() if key in kept}
    info = part(part(data, "status"), "nodeInfo")
    status["nodeInfo"] = {key: info[key] for key in ("architecture", "kubeletVersion") if key in info}
    spec = {key: value for key, value in part(data, "spec").items() if key in ("taints", "unschedulable")}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def _zones(data: Mapping[str, Any], names: Names) -> dict[str, Any]:
    rest = {key: value for key, value in data.items() if key not in ("metadata", "kind")}
    return {"kind": "NodeResourceTopology", **rest, "metadata": {"name": names.of(name_of(data))}}


def _budget(data: Mapping[str, Any], names: Names) -> dict[str, Any]:
    metadata = {"name": names.of(name_of(data)), "namespace": part(data, "metadata").get("namespace") or "default"}
    kept = ("selector", "minAvailable", "maxUnavailable")
    spec = {key: value for key, value in part(data, "spec").items() if key in kept}
    return {"kind": BUDGET, "apiVersion": "policy/v1", "metadata": metadata, "spec": spec}


def _pod(data: Mapping[str, Any], names: Names) -> dict[str, Any]:
    metadata, uid = part(data, "metadata"), kubelet_uid(part(data, "metadata"))
    owners = [{"kind": one.get("kind")} for one in items_of(metadata, "ownerReferences")]
    named: dict[str, Any] = {
        "name": names.of(name_of(data)),
        "namespace": names.of(str(metadata.get("namespace") or "default")),
        "uid": names.of(uid),
        "labels": _labels(metadata, names),
        # The kind of the owner decides what follows a refusal; its name and UID decide nothing.
        "ownerReferences": owners[:1],
    }
    named |= {key: metadata[key] for key in ("creationTimestamp",) if key in metadata}
    if seen := part(metadata, "annotations").get(SEEN_LAST):
        named["annotations"] = {SEEN_LAST: seen}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": named,
        "spec": _pod_spec(part(data, "spec"), uid, names),
        "status": _pod_status(part(data, "status"), uid, names),
    }


def _pod_spec(data: Mapping[str, Any], uid: str, names: Names) -> dict[str, Any]:
    spec = {key: value for key, value in data.items() if key in _SPEC}
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [_reduce_container(one, _CONTAINER, uid, names) for one in items_of(data, field)]
    if spec.get("nodeName"):
        spec["nodeName"] = names.of(str(spec["nodeName"]))
    if names.hidden:
        spec = {key: value for key, value in spec.items() if key not in _BY_LABELS}
    return spec


def _pod_status(data: Mapping[str, Any], uid: str, names: Names) -> dict[str, Any]:
    status = {key: value for key, value in data.items() if key in ("phase", "startTime")}
    for field in ("initContainerStatuses", "containerStatuses"):
        found = [_reduce_container(one, _STATUS, uid, names) | _end(one) for one in items_of(data, field)]
        # A status with names alone says nothing that the specification does not.
        status |= {field: found} if any(len(one) > 1 for one in found) else {}
    return status


def _end(data: Mapping[str, Any]) -> dict[str, Any]:
    end = part(part(data, "state"), "terminated").get("finishedAt")
    return {"state": {"terminated": {"finishedAt": end}}} if end else {}


def _reduce_container(data: Mapping[str, Any], kept: tuple[str, ...], uid: str, names: Names) -> dict[str, Any]:
    found = {key: value for key, value in data.items() if key in kept}
    return {**found, "name": names.container(uid, str(data.get("name") or ""))}


# State files


def reduce_file(data: bytes, names: Names, source: str) -> bytes:
    """Return a state file with mapped names; unchanged where names stay. Raises `InputError`."""
    if not names.hidden:
        return data
    try:
        content = read_content(data)
    except CheckpointError as error:
        raise InputError(str(error), source=source, remedy="copy the file again") from None
    match content.checkpoint:
        case CPUCheckpoint() as cpu:
            changed = replace(
                cpu, entries=_rename_entries(cpu.entries, names), pod_entries=_pods(cpu.pod_entries, names)
            )
            # Encoded in the version it had, with a new checksum: a kubelet of that version can still read it.
            if content.version == "v4":
                return checkpoint_data.CPU_V4.encode(changed)
            return checkpoint_cpu.encode(changed, content.version)
        case MemoryCheckpoint() as memory:
            ledger = replace(
                memory, entries=_rename_entries(memory.entries, names), pod_entries=_pods(memory.pod_entries, names)
            )
            if content.version == "v3":
                return checkpoint_data.MEMORY_V3.encode(ledger)
            return checkpoint_memory.encode(ledger, content.version)
        case DeviceCheckpoint() as device:
            registered = {name: [*map(names.of, ids or ())] for name, ids in (device.registered or {}).items()}
            return checkpoint_devices.encode([_entry(one, names) for one in device.entries or ()], registered)
        case AllocationCheckpoint() as granted:
            pods = {names.of(uid): _rename_allocation(uid, one, names) for uid, one in granted.pods.items()}
            return checkpoint_allocation.encode(pods)
    raise InputError("is not recognisable", source=source, remedy="copy the file again")


def _entry(one: PodDevicesEntry, names: Names) -> PodDevicesEntry:
    """Return an entry without the plugin's response, which names devices."""
    by_node: Mapping[int, list[str] | None] | list[str]
    if isinstance(one.by_node, list):
        by_node = [names.of(name) for name in one.by_node]
    else:
        by_node = {node: [names.of(name) for name in ids or ()] for node, ids in (one.by_node or {}).items()}
    return one._replace(
        pod=names.of(one.pod), container=names.container(one.pod, one.container), by_node=by_node, response=b""
    )


def _rename_allocation(uid: str, one: PodAllocation, names: Names) -> PodAllocation:
    return replace(one, containers={names.container(uid, name): own for name, own in one.containers.items()})


def _rename_entries(entries: Mapping[str, dict[str, V] | None] | None, names: Names) -> dict[str, dict[str, V] | None]:
    return {
        names.of(uid): {names.container(uid, name): own for name, own in (named or {}).items()}
        for uid, named in (entries or {}).items()
    }


def _pods(entries: Mapping[str, V] | None, names: Names) -> dict[str, V]:
    return {names.of(uid): own for uid, own in (entries or {}).items()}
