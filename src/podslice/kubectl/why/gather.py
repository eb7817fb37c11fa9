"""Gather what the API server has of a node into a bundle.

Only the pod and its node are needed. Everything else that cannot be had is named in the bundle, with the reason and,
where a right is missing, with the command that grants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import msgspec

from podslice.api.manifests.fields import part_of
from podslice.api.pod.names import check_namespace_name, check_node_name, check_pod_name
from podslice.config.policy import API_VERSION as POLICY_VERSION
from podslice.config.policy import KIND as POLICY_KIND
from podslice.config.policy import NO_POLICY
from podslice.host.bundle.layout import (
    CLAIMS,
    CLASSES,
    CONFIGZ,
    DEVICES,
    EVENTS,
    KUBELET,
    MACHINE,
    NODE,
    PODS,
    POLICY,
    SLICES,
    TOPOLOGY,
    Missing,
)
from podslice.host.bundle.redact import (
    redact_claim,
    redact_class,
    redact_config,
    redact_event,
    redact_node,
    redact_pod,
    redact_slice,
)
from podslice.host.bundle.written import BundleParts
from podslice.kubectl.agents import Agents, NoAgentError
from podslice.kubectl.client import Cluster, list_events
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.why.rights import Right, grant_text, missing_right
from podslice.machine.devices import DeviceInventory
from podslice.machine.readers.form import from_data, to_data
from podslice.node.checkpoints.names import place_of
from podslice.node.node import Node
from podslice.node_objects.read_nrt import from_node_resource_topology
from podslice.replica.events import WholeState
from podslice.replica.nodestate import NODE_STATES, read_node_state
from podslice.replica.state_message import build_state
from podslice.service.podlist import find_mirrored_uid
from podslice.values.document import with_header, without_header
from podslice.values.errors import InputError, PodsliceError

_MOST_EVENTS = 1000
_DEVICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
_TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
_NOT_FOUND = 404

Json = dict[str, Any]


class _Part(NamedTuple):
    """A part of the bundle: its file, the right that it needs, and how it is read. None means that there is none."""

    name: str
    right: Right
    read: Callable[[], Any]
    absent: str


def read_pod(cluster: Cluster, namespace: str, name: str) -> Json:
    """Return a v1 Pod. Raises `InputError` where there is none, and `ClusterError` with the right that is missing."""
    namespace, name = check_namespace_name(namespace, "-n"), check_pod_name(name)
    try:
        found: Json = cluster.read(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ClusterError as error:
        if error.status == _NOT_FOUND:
            remedy = f"kubectl get pods -n {namespace} lists them; -n names another namespace"
            raise InputError(f"there is no pod {namespace}/{name}", remedy=remedy) from None
        raise missing_right(Right("get", "pods", namespace), error) if error.status == 403 else error from None
    return found


def gather(agents: Agents, node: str, events_of: tuple[str, str] | None = None) -> BundleParts:
    """Return what the API server and the node's agent know of a node, without secrets. `events_of`: namespace and name
    of the pod whose events are read. Raises `InputError` where there is no such node."""
    cluster = agents.cluster
    parts = BundleParts()
    parts.put(NODE, redact_node(_read_node(cluster, node)))
    wanted = list(_parts(cluster, node, events_of))
    with ThreadPoolExecutor(len(wanted) + 1) as pool:
        agent = pool.submit(_from_agent, agents, node)
        results = list(pool.map(_attempt, wanted))
    found = {part.name: result for part, result in zip(wanted, results, strict=True)}
    if isinstance(found[CLAIMS], dict):
        found[CLAIMS] = claims_of_node(found[CLAIMS], found[PODS], found[SLICES])
    if found[SLICES] is None and found[CLAIMS] is None:
        found[CLASSES] = None  # they are about devices of other nodes
    for part in wanted:
        _put(parts, part, found[part.name])
    # An agent that decides does so by its own configuration, and its state files are the ones that count.
    files = agent.result()
    if isinstance(files, str):
        parts.missing.append(Missing("agent", files))
    else:
        parts.files |= files
        parts.missing = [one for one in parts.missing if one.part not in files]
    return parts


def _read_node(cluster: Cluster, node: str) -> Json:
    try:
        found: Json = cluster.read(f"/api/v1/nodes/{check_node_name(node)}")
    except ClusterError as error:
        if error.status == _NOT_FOUND:
            raise InputError(f"there is no node {node}", remedy="kubectl get nodes lists them") from None
        raise missing_right(Right("get", "nodes"), error) if error.status == 403 else error from None
    return found


def _parts(cluster: Cluster, node: str, events_of: tuple[str, str] | None) -> list[_Part]:
    on_node, as_known = {"fieldSelector": f"spec.nodeName={node}"}, partial(node_pod, node)
    parts = [
        _Part(CONFIGZ, Right("get", "nodes/proxy"), lambda: _configz(cluster, node), "the kubelet does not answer"),
        _Part(PODS, Right("list", "pods"), lambda: _list(cluster, "/api/v1/pods", on_node, as_known), ""),
        _Part(
            SLICES,
            Right("list", "resourceslices.resource.k8s.io"),
            lambda: _device_objects(cluster, "ResourceSlice", on_node, redact_slice),
            "",
        ),
        _Part(
            CLAIMS,
            Right("list", "resourceclaims.resource.k8s.io"),
            lambda: _device_objects(cluster, "ResourceClaim", {}, redact_claim),
            "",
        ),
        _Part(
            CLASSES,
            Right("list", "deviceclasses.resource.k8s.io"),
            lambda: _device_objects(cluster, "DeviceClass", {}, redact_class),
            "",
        ),
        _Part(
            TOPOLOGY,
            Right("get", "noderesourcetopologies.topology.node.k8s.io"),
            lambda: _topology(cluster, node),
            "",
        ),
    ]
    return [*parts, _events(cluster, *events_of)] if events_of is not None else parts


def _events(cluster: Cluster, namespace: str, name: str) -> _Part:
    right, read = Right("list", "events", namespace), partial(list_events, cluster, namespace, name, most=_MOST_EVENTS)
    return _Part(EVENTS, right, lambda: _redacted(read(), redact_event), "")


def gather_events(cluster: Cluster, events_of: tuple[str, str]) -> BundleParts:
    """Return what is known of a pod that has no node: its events."""
    parts = BundleParts()
    parts.put(PODS, {"apiVersion": "v1", "kind": "List", "items": []})
    part = _events(cluster, *events_of)
    _put(parts, part, _attempt(part))
    return parts


def _put(parts: BundleParts, part: _Part, result: Any) -> None:
    if isinstance(result, str):
        parts.missing.append(Missing(part.name, result))
    elif result is not None:
        parts.put(part.name, result)


def _attempt(part: _Part) -> Any:
    """Return what a part reads, None where the cluster has no such thing, or why it cannot be had."""
    try:
        return part.read()
    except ClusterError as error:
        if error.status == _NOT_FOUND:
            return part.absent or None
        if error.status == 403:
            return f"you may not {part.right} ({grant_text(part.right, error)})"
        return error.problem
    except InputError as error:
        return str(error)


def _list(cluster: Cluster, path: str, query: dict[str, str], redact: Callable[[Mapping[str, Any]], Json]) -> Json:
    return _redacted(cluster.items(path, query), redact)


def _redacted(items: Iterable[Any], redact: Callable[[Mapping[str, Any]], Json]) -> Json:
    kept = [redact(one) for one in items if isinstance(one, dict)]
    return {"apiVersion": "v1", "kind": "List", "items": kept}


def node_pod(node: str, pod: Mapping[str, Any]) -> Json:
    """Return a pod of the node under the UID by which its kubelet knows it: a static pod has another one in the API."""
    kept = redact_pod(pod)
    metadata = kept["metadata"]
    owners = msgspec.Raw(msgspec.json.encode(metadata.get("ownerReferences")))
    own = find_mirrored_uid(metadata.get("annotations") or {}, owners, node)
    return {**kept, "metadata": {**metadata, "uid": own}} if own else kept


def _configz(cluster: Cluster, node: str) -> Json:
    fields = cluster.read(f"/api/v1/nodes/{node}/proxy/configz").get("kubeletconfig")
    if not isinstance(fields, dict):
        raise InputError("what answers is not a kubelet's configz")
    return {"kubeletconfig": redact_config(fields)}


def _topology(cluster: Cluster, node: str) -> Json:
    """Return a NodeResourceTopology. Raises `InputError` for one that describes no machine."""
    found = cluster.read(f"{_TOPOLOGIES}/{node}")
    from_node_resource_topology(found)
    return redact_slice(found)


def _device_objects(
    cluster: Cluster, kind: str, query: dict[str, str], redact: Callable[[Mapping[str, Any]], Json]
) -> Json | None:
    """Return the slices, claims or classes in the newest version that the API server has, None for none."""
    for version in _DEVICE_VERSIONS:
        path = f"/apis/resource.k8s.io/{version}/{_plural(kind)}"
        try:
            items = [one for one in cluster.items(path, query) if isinstance(one, dict)]
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                continue
            raise
        listed = [{"apiVersion": f"resource.k8s.io/{version}", "kind": kind, **redact(one)} for one in items]
        return {"apiVersion": "v1", "kind": "List", "items": listed} if listed else None
    return None


def _plural(kind: str) -> str:
    return f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"


def claims_of_node(claims: Json, pods: Any, slices: Any) -> Json | None:
    """Return the allocated claims that pods of the node use, or that hold its devices; None for none. `pods` and
    `slices` are lists of the API; where one could not be had, the other decides."""
    uids = {one["metadata"].get("uid") for one in _items(pods)}
    pools = {(spec.get("driver"), part_of(spec, "pool").get("name"))
             for spec in (part_of(one, "spec") for one in _items(slices))}  # fmt: skip
    kept = []
    for one in _items(claims):
        status = one["status"]
        users, results = status.get("reservedFor"), part_of(status, "allocation", "devices")
        devices = results.get("results")
        if "allocation" in status and (
            any(part_of(user).get("uid") in uids for user in _each(users))
            or any((part_of(device).get("driver"), part_of(device).get("pool")) in pools for device in _each(devices))
        ):
            kept.append(one)
    return {**claims, "items": kept} if kept else None


def _items(listed: Any) -> list[Json]:
    return listed["items"] if isinstance(listed, dict) else []


def _each(data: Any) -> list[Any]:
    return data if isinstance(data, list) else []


# The node's agent


def _from_agent(agents: Agents, node: str) -> dict[str, bytes] | str:
    """Return the files that an agent's knowledge of its node makes, none where no agent runs there, or why there are
    none."""
    try:
        return _live_files(without_header("LiveNode", agents.ask(agents.on(node), "/node")))
    except NoAgentError:
        return {}
    except (KeyError, TypeError, AttributeError) as error:
        why = f"its answer is not understood: {type(error).__name__} {error}"
    except PodsliceError as error:
        why = error.problem if isinstance(error, InputError) else str(error)
    try:
        stored = agents.cluster.read(f"{NODE_STATES}/{node}")
        return _stored_files(stored)
    except (PodsliceError, KeyError, TypeError) as error:
        # Most clusters have no such objects: the reason why the agent did not answer says more.
        absent = isinstance(error, ClusterError) and error.status in (_NOT_FOUND, 403)
        return why if absent else f"{why}; its NodeState cannot be used: {error}"


def _live_files(facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a `LiveNode`. Raises `InputError` where the agent cannot say what it decides by."""
    if facts["problem"]:
        raise InputError(str(facts["problem"]))
    policy = None
    if facts.get("policy") and facts["policy"] != msgspec.to_builtins(NO_POLICY):
        policy = {"apiVersion": POLICY_VERSION, "kind": POLICY_KIND, "spec": facts["policy"]}
    state = {str(name): str(text).encode() for name, text in facts["files"].items()}
    return _files(to_data(from_data(facts["machine"])), facts["configuration"], state, facts["devices"], policy)


def _stored_files(stored: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a NodeState object. Raises `PodsliceError`."""
    found = read_node_state(msgspec.json.encode(stored))
    if found.state is None:
        raise InputError(found.problem)
    event = found.state.event
    assert isinstance(event, WholeState)
    setup = event.setup
    machine = from_data(setup.changed or setup.machine, "setup.machine")
    node = Node(
        machine, setup.config, profile=setup.profile, devices=DeviceInventory(setup.inventory), policy=setup.policy,
        predicates=False,
    )  # fmt: skip
    node.state = build_state(event.state, node.rules)
    policy = None
    if setup.policy != NO_POLICY:
        policy = {"apiVersion": POLICY_VERSION, "kind": POLICY_KIND, "spec": msgspec.to_builtins(setup.policy)}
    return _files(to_data(machine), setup.config.document(), node.manager_files, (), policy)


def _files(
    machine: Json, configuration: Json, state: Mapping[str, bytes], devices: Any, policy: Json | None
) -> dict[str, bytes]:
    parts = BundleParts()
    parts.put(MACHINE, with_header("Machine", machine))
    parts.put(CONFIGZ, {"kubeletconfig": redact_config(configuration)})
    if devices:
        parts.put(DEVICES, {"devices": devices})
    if policy is not None:
        parts.put(POLICY, _with_whole_numbers(policy))
    return {**parts.files, **{f"{KUBELET}/{place_of(name)}": data for name, data in state.items()}}


def _with_whole_numbers(data: Any) -> Any:
    """Return plain data with 0 in place of 0.0: a PodslicePolicy in a file has numbers as people write them."""
    if isinstance(data, dict):
        return {key: _with_whole_numbers(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_with_whole_numbers(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data
