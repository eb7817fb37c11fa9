"""The node as it is now, as one document: enough to decide elsewhere what the agent would decide here.

It says what a decision is made of, and nothing else about a pod: names, amounts, restart policies, priority. No
environment, image, label or annotation leaves the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from podslice.agent.owner import Owner
from podslice.core.document import with_header
from podslice.core.machine.devices import Device
from podslice.core.pod.spec import Container, Pod, map_containers

KIND = "LiveNode"


def live_node(
    owner: Owner, name: str, devices: Mapping[str, tuple[Device, ...]], machine: Mapping[str, Any]
) -> dict[str, Any]:
    """Machine, configuration, pods, state files and plugin devices. `machine` is the owner's as plain data: making it
    takes tens of milliseconds, and it seldom changes. `problem` says why nothing can be decided, as in safe mode; pods
    and files are then missing."""
    node = owner.node
    facts: dict[str, Any] = {
        "node": name,
        "profile": owner.admitting.profile,
        "problem": "" if node is not None else owner.safe_mode or "the runtime has not told what runs yet",
        "machine": machine,
        "configuration": msgspec.to_builtins(owner.config),
        "policy": msgspec.to_builtins(owner.admitting.policy),
        "pods": [] if node is None else [_pod(pod.spec) for pod in node.view.pods.values()],
        "files": {} if node is None else {name: data.decode() for name, data in node.manager_files.items()},
        "devices": [_resource(resource, listed) for resource, listed in devices.items()],
    }
    return with_header(KIND, facts)


def _resource(name: str, devices: tuple[Device, ...]) -> dict[str, Any]:
    listed = [{"id": one.id, "numa": list(one.numa or ()), "health": one.health} for one in devices]
    return {"resource": name, "devices": listed}


def _pod(pod: Pod) -> dict[str, Any]:
    """What decides, and the names."""
    spec = msgspec.structs.replace(map_containers(pod.spec, _bare), node_selector=None, ephemeral_containers=())
    names = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    return {"metadata": names, "spec": _short(msgspec.to_builtins(spec, enc_hook=str))}


def _bare(container: Container) -> Container:
    return msgspec.structs.replace(container, image="", image_pull_policy="")


def _short(data: Any) -> Any:
    """Without empty fields, which mean what missing ones mean; an empty map does not."""
    if isinstance(data, list):
        return [_short(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {name: _short(value) for name, value in data.items() if value is not None and value not in ("", [])}
