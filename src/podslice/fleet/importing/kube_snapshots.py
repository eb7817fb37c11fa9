"""Snapshots by podslice's agents of their nodes: machine, configuration, exact state and pods, as a dump has them.

A `LiveNode` is printed by `kubectl podslice node NAME --live -o json`; a `NodeState` object is kept by each agent in
the API server (`kubectl get nodestates -o json`). Either becomes the files that its node would have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.config.kubelet_file import config_from_fields
from podslice.config.policy import NO_POLICY
from podslice.fleet.importing.kube_devices import LISTED_DEVICES
from podslice.fleet.importing.kube_objects import part, read_documents
from podslice.fleet.importing.kube_reduce import Names, reduce_file
from podslice.host.machine_files import dump_machine
from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.model import Machine
from podslice.machine.readers.form import from_data
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.node.holding import digest
from podslice.node.node import Node
from podslice.replica.events import Stamped, WholeState
from podslice.replica.nodestate import read_node_state
from podslice.replica.state_message import PoolMessage, build_state
from podslice.values.errors import InputError, PodsliceError
from podslice.values.quirks import PROFILE_RELEASES

LIVE_NODE, NODE_STATE = "LiveNode", "NodeState"
SNAPSHOTS = (LIVE_NODE, NODE_STATE)
_REMEDY = "import with the version of podslice that the agent has"


class AgentSnapshot(NamedTuple):
    """A snapshot of a node by its agent.

    - `fields`: of a KubeletConfiguration; `files`: state files by name.
    - `devices`: as plugins listed them, in the form of a file of devices.
    - `policy`: of its PodslicePolicy, as plain data.
    - `pods`: objects. Without a state there are no files and no pods.
    - `problems`: a line each.
    - `kubelet`: the version of the kubelet beside the agent, empty where it is not known.
    """

    node: str
    machine: Machine
    fields: Mapping[str, Any]
    files: Mapping[str, bytes]
    devices: tuple[dict[str, Any], ...]
    policy: Mapping[str, Any]
    profile: str
    pods: tuple[dict[str, Any], ...]
    problems: tuple[str, ...] = ()
    kubelet: str = ""


def read_snapshot(data: Mapping[str, Any], path: Path) -> AgentSnapshot | str:
    """Return the snapshot in an object, or in a line why it has none. Raises `InputError` for a malformed
    `LiveNode`."""
    return _read_node_state(data, path) if data["kind"] == NODE_STATE else _read_live_node(data, path)


# LiveNode


def _read_live_node(data: Mapping[str, Any], path: Path) -> AgentSnapshot:
    """Return the snapshot in a `LiveNode`. Raises `InputError`."""
    try:
        name, problem = str(data["node"]), str(data["problem"])
        files = {str(key): str(text).encode() for key, text in data["files"].items()}
        pods = tuple(_pod(one["metadata"], one["spec"], one.get("annotations") or {}, name) for one in data["pods"])
        devices = tuple(dict(one) for one in data["devices"])
        inventory_from_data({"devices": [*devices]})
        machine = from_data(data["machine"])
        fields = dict(data["configuration"])
        config_from_fields(fields)
        profile, policy = str(data.get("profile", "")), dict(data.get("policy") or {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"is a LiveNode that is not understood: {type(error).__name__} {error}"
        raise InputError(why, source=str(path), remedy=_REMEDY) from None
    except InputError as error:
        raise error.at(source=str(path)) from None
    lines = (f"node {name}: its agent reported no state: {problem}",) if problem else ()
    empty = policy == msgspec.to_builtins(NO_POLICY)
    kept, kubelet = {} if empty else policy, str(data.get("kubelet") or "")
    return AgentSnapshot(name, machine, fields, files, devices, kept, profile, pods, lines, kubelet)


def _pod(
    metadata: Mapping[str, Any], spec: Mapping[str, Any], annotations: Mapping[str, str], node: str
) -> dict[str, Any]:
    """Return a Pod object with the parts that an import needs."""
    kept = ("name", "namespace", "uid", "creationTimestamp", "labels")
    own = {key: metadata[key] for key in kept if metadata.get(key)}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {**own, "annotations": dict(annotations)},
        "spec": {**spec, "nodeName": node},
        "status": {"phase": "Running"},
    }


# NodeState


def _read_node_state(data: Mapping[str, Any], path: Path) -> AgentSnapshot | str:
    """Return the snapshot in a `NodeState`, or in a line why it cannot be used."""
    found = read_node_state(json.dumps(data).encode())
    if found.state is None:
        return f"node {found.node or 'without a name'}: its NodeState cannot be used: {found.problem}"
    try:
        return _restore_node(found.node, found.state)
    except PodsliceError as error:
        return f"node {found.node}: its NodeState cannot be used: {error}"


def _restore_node(name: str, stamped: Stamped) -> AgentSnapshot:
    """Return the snapshot of a node restored from its `NodeState`. Raises `PodsliceError`."""
    event = stamped.event
    assert isinstance(event, WholeState)
    setup = event.setup
    machine = from_data(setup.changed or setup.machine, "setup.machine")
    node = Node(
        machine,
        setup.config,
        profile=setup.profile,
        devices=DeviceInventory(setup.inventory),
        policy=setup.policy,
        predicates=False,
        cgroup_version=setup.cgroup_version,
    )
    node.state = build_state(event.state, node.rules)
    problems = []
    if digest(node.state) != stamped.digest:
        problems.append(f"node {name}: its state is not what the agent's digests say; it is used as it was written")
    pods = tuple(_pod_object(one, name) for one in event.state.pods)
    pools = tuple(_device_list(resource, pool) for resource, pool in sorted(event.state.pools.items()))
    return AgentSnapshot(
        name,
        machine,
        setup.config.document(),
        node.manager_files,
        pools,
        {} if setup.policy == NO_POLICY else msgspec.to_builtins(setup.policy),
        setup.profile,
        pods,
        tuple(problems),
    )


def _pod_object(pod: Pod, node: str) -> dict[str, Any]:
    data = msgspec.json.decode(msgspec.json.encode(pod, enc_hook=str))
    metadata = part(data, "metadata")
    spec = {name: value for name, value in part(data, "spec").items() if value not in (None, "", [])}
    return _pod(metadata, spec, metadata.get("annotations") or {}, node)


def _device_list(resource: str, pool: PoolMessage) -> dict[str, Any]:
    """Return the devices of a pool in the form of a file of devices."""
    devices = [
        {
            "id": name,
            "numa": list(pool.numa.get(place, ())),
            "health": "Healthy" if pool.healthy >> place & 1 else "Unhealthy",
        }
        for place, name in enumerate(pool.ids)
    ]
    return {"resource": resource, "devices": devices}


# As files of a dump


def snapshot_files(snapshot: AgentSnapshot, names: Names) -> dict[str, bytes]:
    """Return the files of a snapshot's node, by their path in a dump. Anonymised, podslice's own record of containers
    is left out. Raises `InputError` for a state file that cannot be read."""
    new, machine = names.of(snapshot.node), snapshot.machine
    found = {
        f"configz/{new}.json": _json({"kubeletconfig": {**snapshot.fields}}),
        f"machines/{new}.yaml": dump_machine(replace(machine, name=new, source=""), "yaml").encode(),
    }
    for name, data in snapshot.files.items():
        if name != POLICY_STATE_FILE or not names.hidden:
            source = f"state of node {snapshot.node}: {name}"
            found[f"state/{new}/{name}"] = reduce_file(data, names, source)
    if snapshot.files and snapshot.devices:
        listed = [
            {**one, "devices": [{**device, "id": names.of(str(device["id"]))} for device in one["devices"]]}
            for one in snapshot.devices
        ]
        found[f"state/{new}/{LISTED_DEVICES}"] = _json({"devices": listed})
    return found


def _json(data: Any) -> bytes:
    return json.dumps(data, indent=1).encode()


def pods_of_agent(folder: Path, node: str) -> list[dict[str, Any]]:
    """Return the pods that an agent keeps beside the state files of its node (`pods/UID.json`). Raises `InputError`."""
    found = []
    for path in sorted((folder / "pods").glob("*.json")):
        (data,) = read_documents(path)
        if isinstance(data, dict):
            found.append(_pod(part(data, "metadata"), part(data, "spec"), {}, node))
    return found


def make_node(snapshot: AgentSnapshot) -> dict[str, Any]:
    """Return a Node object where there is none: capacity of the machine, and allocatable of its kubelet. Raises
    `PodsliceError` for a configuration with which no node starts."""
    config = config_from_fields(snapshot.fields).config
    devices = inventory_from_data({"devices": [*snapshot.devices]})
    profile = snapshot.profile or "podslice"
    resources = Node(snapshot.machine, config, profile=profile, devices=devices).kubelet.node_resources()
    status: dict[str, Any] = {field: _amounts(getattr(resources, field)) for field in ("capacity", "allocatable")}
    status["nodeInfo"] = {"kubeletVersion": snapshot.kubelet or f"v{PROFILE_RELEASES[profile]}"}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": snapshot.node}, "status": status}


def _amounts(quantities: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in quantities.items()}
