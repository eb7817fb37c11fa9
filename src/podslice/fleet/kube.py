"""Nodes and pods of a live cluster, from what kubectl prints: `kubectl get nodes -o json` and the like.

Objects come from many versions and from whoever may write them: unknown fields are passed over, what is needed and
missing is named with the object it is missing in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from podslice.core.errors import InputError
from podslice.core.fleet.nodes import FleetNode
from podslice.core.fleet.shapes import NodeTaint, Owner
from podslice.core.pod.spec import Pod, pod_from_dict
from podslice.core.values.quantity import Quantity, QuantityError
from podslice.fleet.inputs import canonical
from podslice.fleet.machines import NodeClass
from podslice.fleet.scenario import AS_WRITTEN
from podslice.k8s.described import DescribedNode
from podslice.k8s.files import read_bytes
from podslice.k8s.nodes import described_node
from podslice.k8s.yaml import load_documents

MAX_DUMP = 1 << 30
_ENDED = ("Succeeded", "Failed")
_OWNERS: dict[str, Owner] = {"Job": "job", "DaemonSet": "daemonset", "Node": "bare"}
_GPU_MODEL = "nvidia.com/gpu.product"


class ClusterNode(NamedTuple):
    """A node of a dump and its class."""

    node: FleetNode
    kind: NodeClass


class ClusterPod(NamedTuple):
    """A pod of a dump: where it is (empty: nowhere yet), since when (text, as its status says), and who owns it."""

    name: str
    pod: Pod
    node: str
    since: str
    owner: Owner


def read_objects(path: Path, kind: str) -> list[dict[str, Any]]:
    """The objects of a kind in a file: a List, a typed list, or one object; JSON or YAML. Raises `InputError`."""
    source = str(path)
    data = read_bytes(source, MAX_DUMP)
    try:
        documents = [json.loads(data)]
    except ValueError:
        if data.lstrip()[:1] in (b"{", b"["):
            raise InputError("breaks off, or is no JSON", source=source, remedy="make the dump again") from None
        documents = load_documents(data.decode("utf-8", "replace"), source)
    return [one for document in documents for one in _objects(document, kind)]


def _objects(document: Any, kind: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if isinstance(items, list):
        implied = str(document.get("kind", "")).removesuffix("List")
        for item in items:
            if isinstance(item, dict) and item.get("kind", implied) == kind:
                yield {"kind": kind, **item}
    elif document.get("kind") == kind:
        yield document


def kinds_in(path: Path) -> set[str]:
    """The kinds of objects in a file; empty for other files. Raises `InputError` for one that cannot be read."""
    try:
        documents = [json.loads(read_bytes(str(path), MAX_DUMP))]
    except ValueError:
        try:
            documents = load_documents(path.read_text(encoding="utf-8", errors="replace"), str(path))
        except InputError:
            return set()
    found: set[str] = set()
    for document in documents:
        if isinstance(document, dict):
            if isinstance(document.get("kubeletconfig"), dict):
                found.add("KubeletConfiguration")
            items = document.get("items")
            implied = str(document.get("kind", "")).removesuffix("List")
            found |= {str(item.get("kind", implied)) for item in items or () if isinstance(item, dict)}
            found |= {implied} if items is None else set()
    return found - {""}


def part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of an object, such as its status; empty where there is none."""
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def name_of(data: Mapping[str, Any]) -> str:
    """The name of an object; empty where it has none."""
    return str(part(data, "metadata").get("name") or "")


def cluster_nodes(nodes: Path, topology: Path | None, configurations: Path | None) -> list[ClusterNode]:
    """The nodes of a cluster, with their machines from NodeResourceTopology objects where they are. `configurations`: a
    folder with the answer of each kubelet's configz, named by node. Raises `InputError`."""
    zones = {name_of(one): one for one in read_objects(topology, "NodeResourceTopology")} if topology else {}
    classes: dict[bytes, NodeClass] = {}
    found = []
    for data in read_objects(nodes, "Node"):
        name = name_of(data)
        if not name:
            raise InputError("a node has no name", source=str(nodes))
        made = _class(data, zones.get(name), _configz(configurations, name), str(nodes))
        key = canonical([_shown(made)])
        if key not in classes:
            same = sum(one.name.startswith(made.name) for one in classes.values())
            classes[key] = made._replace(name=f"{made.name}-{same}" if same else made.name)
        found.append(ClusterNode(_node(data, name), classes[key]))
    if not found:
        raise InputError("holds no Node", source=str(nodes), remedy="kubectl get nodes -o json")
    return found


def _shown(found: NodeClass) -> list[object]:
    machine = found.machines[AS_WRITTEN]
    nodes = [(node.id, node.memory, [core.threads for core in node.cores]) for node in machine.nodes]
    return [nodes, found.gpus, found.gpu_model, str(found.devices), dict(found.fields), dict(found.allocatable or {})]


def _configz(folder: Path | None, name: str) -> dict[str, Any]:
    """What a kubelet is configured with, as far as it was asked."""
    path = None if folder is None else folder / f"{name}.json"
    if path is None or not path.is_file():
        return {}
    try:
        data = json.loads(read_bytes(str(path), 1 << 20))
    except ValueError:
        raise InputError("is no JSON", source=str(path), remedy="make the dump again") from None
    found = data.get("kubeletconfig", data) if isinstance(data, dict) else {}
    return {key: value for key, value in found.items() if key not in ("kind", "apiVersion")}


def _class(data: dict[str, Any], zones: dict[str, Any] | None, configz: dict[str, Any], source: str) -> NodeClass:
    told: DescribedNode = described_node([data if zones is None else zones], source)
    status = part(data, "status")
    labels = part(part(data, "metadata"), "labels")
    allocatable = _allocatable(status.get("allocatable") or status.get("capacity") or {}, source, name_of(data))
    machine = told.machine
    gpus = next((value for name, value in allocatable.items() if name.endswith("/gpu")), 0)
    memory = round(machine.memory / (1 << 30))
    model = str(labels.get(_GPU_MODEL, "")) if gpus else ""
    name = f"{machine.cpu_count}c-{memory}Gi" + (f"-{gpus}x{model or 'GPU'}" if gpus else "")
    source_kind = "nrt" if zones is not None else "assumed"
    assumed = "; ".join(told.assumed) if zones is None else ""
    fields = {**told.fields, **configz}
    return NodeClass(name, {AS_WRITTEN: machine}, gpus, model, source_kind, assumed, told.devices, fields, allocatable)  # type: ignore[arg-type]  # one of the sources


def _allocatable(amounts: Mapping[str, Any], source: str, node: str) -> dict[str, int]:
    found = {}
    for name, text in amounts.items():
        try:
            amount = Quantity.parse(str(text))
        except QuantityError:
            path = f"node {node}: status.allocatable[{name}]"
            raise InputError(f"{text!r} is no quantity", source=source, path=path) from None
        found[name] = amount.milli_value() if name == "cpu" else amount.value()
    return found


def _node(data: Mapping[str, Any], name: str) -> FleetNode:
    spec = part(data, "spec")
    labels = part(part(data, "metadata"), "labels")
    taints = tuple(
        NodeTaint(str(one.get("key", "")), str(one.get("value") or ""), one["effect"])
        for one in spec.get("taints") or ()
        if isinstance(one, dict) and one.get("effect") in ("NoSchedule", "PreferNoSchedule", "NoExecute")
    )
    plain = {str(key): str(value) for key, value in labels.items()}
    return FleetNode(name, 0, plain, taints, bool(spec.get("unschedulable")))


class DumpedPods(NamedTuple):
    """Pods of a dump, those on nodes first in order of their start; and what was left out, in a line each."""

    pods: tuple[ClusterPod, ...]
    problems: tuple[str, ...]


def cluster_pods(path: Path, nodes: set[str]) -> DumpedPods:
    """The pods of a cluster that still count. Raises `InputError` for a file that cannot be read."""
    found, problems, unknown = [], [], 0
    for data in read_objects(path, "Pod"):
        status = part(data, "status")
        if status.get("phase") in _ENDED:
            continue
        name = f"{part(data, 'metadata').get('namespace') or 'default'}/{name_of(data)}"
        spec = part(data, "spec")
        node = str(spec.get("nodeName") or "")
        if node and node not in nodes:
            unknown += 1
            if unknown == 1:
                problems.append(f"pod {name} is on {node}, which is no node of the dump: the two were made apart")
            continue
        try:
            pod = pod_from_dict({"metadata": part(data, "metadata"), "spec": spec})
        except InputError as error:
            problems.append(f"pod {name} cannot be read: {error}")
            continue
        owners = part(data, "metadata").get("ownerReferences") or ()
        kind = next((str(one.get("kind")) for one in owners if isinstance(one, dict)), "")
        owner: Owner = _OWNERS.get(kind, "deployment" if kind else "bare")
        found.append(ClusterPod(name, pod, node, str(status.get("startTime") or ""), owner))
    if unknown > 1:
        problems.append(f"{unknown} pods in all are on nodes that are not in the dump")
    found.sort(key=lambda one: (not one.node, one.since))
    return DumpedPods(tuple(found), tuple(problems))
