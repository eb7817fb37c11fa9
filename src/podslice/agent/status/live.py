"""The node as it is now, as one document: enough to decide elsewhere what the agent would decide here.

Of a pod it holds only the input of decisions: names, amounts, restart policies, priority, and the annotations under
podslice.io that a policy reads. No environment, image, label or other annotation leaves the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.owner import Owner
from podslice.api.pod.spec import Container, Pod, map_containers
from podslice.config.annotations import MOVABLE, annotation_problems, policy_annotations
from podslice.machine.devices import Device
from podslice.machine.model import Machine
from podslice.machine.readers.form import to_data
from podslice.node.node import Node
from podslice.service.identity import Identity
from podslice.values.document import with_header
from podslice.values.errors import InputError
from podslice.values.quirks import PROFILE_RELEASES

KIND = "LiveNode"


class LiveNodeSource:
    """Makes the document of the node with this name. `devices`: returns those of plugins, by resource; `kubelet`: the
    version of the kubelet beside the agent; `observed`: that kubelet, where it decides and the agent reports what it
    did."""

    def __init__(
        self,
        owner: Owner,
        name: str,
        devices: Callable[[], Mapping[str, tuple[Device, ...]]],
        find: Callable[[Identity], Pod | None],
        kubelet: Callable[[], str] = str,
        observed: ObservedKubelet | None = None,
    ) -> None:
        self._observed = observed
        self._owner = owner
        self._kubelet = kubelet
        self._name = name
        self._devices = devices
        self._find = find
        self._machine: tuple[Machine, dict[str, Any]] | None = None

    def tell(self) -> dict[str, Any]:
        """Return the document of the node as it is now."""
        if self._machine is None or self._machine[0] is not self._owner.machine:
            self._machine = self._owner.machine, to_data(self._owner.machine)
        facts = {"node": self._name, "kubelet": self._kubelet(), "machine": self._machine[1]}
        seen = self._observed
        if seen is not None and seen.node is not None:
            return live_node(self._owner, facts, seen.devices, self._find, seen.node)
        return live_node(self._owner, facts, self._devices(), self._find)


def live_node(
    owner: Owner,
    known: Mapping[str, Any],
    devices: Mapping[str, tuple[Device, ...]],
    find: Callable[[Identity], Pod | None],
    observed: Node | None = None,
) -> dict[str, Any]:
    """Return the document: machine, configuration, pods, state files and plugin devices.

    `known`: the node's name, its kubelet's version, and the owner's machine as plain data, since making that takes tens
    of milliseconds and it seldom changes.
    `find`: returns the present specification of a pod. `observed`: the node as its kubelet's files have it, in place of
    the owner's.
    The field `problem` holds why nothing can be decided, as in safe mode; pods and files are then missing.
    """
    node = observed or owner.node
    facts: dict[str, Any] = {
        **known,
        "profile": owner.admitting.profile,
        "kubernetes": str(PROFILE_RELEASES[owner.admitting.profile]),
        "problem": "" if node is not None else owner.safe_mode or "the runtime has not reported what runs yet",
        "configuration": owner.config.document(),
        "policy": msgspec.to_builtins(owner.admitting.policy),
        "pods": []
        if node is None
        else [_pod(pod.spec, _annotations(owner, pod.spec, find)) for pod in node.view.pods.values()],
        "files": {} if node is None else {name: data.decode() for name, data in node.manager_files.items()},
        "devices": [_resource(resource, listed) for resource, listed in devices.items()],
    }
    return with_header(KIND, facts)


def _resource(name: str, devices: tuple[Device, ...]) -> dict[str, Any]:
    listed = [{"id": one.id, "numa": list(one.numa or ()), "health": one.health} for one in devices]
    return {"resource": name, "devices": listed}


def movable_now(owner: Owner, pod: Pod, find: Callable[[Identity], Pod | None]) -> Pod:
    """Return a pod with its present annotation about moves, unchanged where its present specification is not known."""
    # The annotation may be changed while the pod runs; everything else stays as it was admitted.
    record = owner.pods.get(pod.metadata.uid)
    try:
        found = None if record is None else find(record.identity)
    except InputError:
        found = None
    if found is None:
        return pod
    kept = {key: value for key, value in (pod.metadata.annotations or {}).items() if key != MOVABLE}
    said = (found.metadata.annotations or {}).get(MOVABLE)
    kept |= {} if said is None else {MOVABLE: said}
    now = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept))
    wrong = any(problem.key == MOVABLE for problem in annotation_problems(owner.admitting.policy, now))
    kept = {key: value for key, value in kept.items() if key != MOVABLE} if wrong else kept
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept))


def _annotations(owner: Owner, pod: Pod, find: Callable[[Identity], Pod | None]) -> dict[str, str]:
    return policy_annotations(movable_now(owner, pod, find).metadata.annotations or {})


def _pod(pod: Pod, annotations: dict[str, str]) -> dict[str, Any]:
    """Return the names of a pod and the fields that decide."""
    spec = msgspec.structs.replace(map_containers(pod.spec, _bare), node_selector=None, ephemeral_containers=())
    names = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    return {"metadata": names, "spec": _short(msgspec.to_builtins(spec, enc_hook=str)), "annotations": annotations}


def _bare(container: Container) -> Container:
    return msgspec.structs.replace(container, image="", image_pull_policy="")


def _short(data: Any) -> Any:
    """Return the data without empty fields, which mean the same as missing ones. Empty maps stay: theirs differs."""
    if isinstance(data, list):
        return [_short(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {name: _short(value) for name, value in data.items() if value is not None and value not in ("", [])}
