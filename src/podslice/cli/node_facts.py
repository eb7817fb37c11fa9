"""`--node`: facts about a node without its machine, from an object of the cluster or as KEY=VALUE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from podslice.advise.inspect.facts import KnownNode
from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.api.pod.spec import ResourceList
from podslice.config.kubelet import KubeletConfig
from podslice.config.reservation import node_resources
from podslice.machine.model import Machine
from podslice.node.effects.huge_pages import page_size_of, page_sizes
from podslice.node.node import Node
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

_REMEDY = "--node node.yaml, or --node memory=64Gi --node cpu=16"


def view_of_machine(machine: Machine, config: KubeletConfig, node: Node) -> KnownNode:
    """Return what a kubelet on this machine reports, with the node's healthy devices."""
    resources = node_resources(machine, config, node.view.reservation)
    sizes = page_sizes(machine)
    devices = {
        own.resource: Quantity.of(sum(device.healthy for device in own.devices)) for own in node.view.devices.resources
    }
    view = KnownNode(config, memory_capacity=machine.memory, allocatable={**resources.allocatable, **devices})
    return msgspec.structs.replace(view, page_sizes=sizes) if sizes else view


def apply_facts(view: KnownNode, facts: tuple[str, ...]) -> KnownNode:
    """Apply facts to the view, in order. Raises `InputError`."""
    for fact in facts:
        key, equals, value = fact.partition("=")
        view = _with_fact(view, key, value) if equals and not Path(fact).exists() else _with_node(view, fact)
    return view


def _with_fact(view: KnownNode, key: str, value: str) -> KnownNode:
    if key == "cgroup":
        if value not in ("1", "2"):
            raise InputError(f"{value!r} is not a cgroup version", path="--node cgroup", remedy="1 or 2")
        return msgspec.structs.replace(view, cgroup_version=int(value))
    amounts = {**(view.allocatable or {}), key: _quantity(key, value)}
    if key == "memory":
        view = msgspec.structs.replace(view, memory_capacity=amounts[key].value())
    return _with_amounts(view, amounts)


def _with_node(view: KnownNode, path: str) -> KnownNode:
    from podslice.reading.files import read_text
    from podslice.reading.lists import flatten_lists
    from podslice.reading.yaml import load_documents

    objects = [one for document in load_documents(read_text(path), path) for one in flatten_lists(document)]
    node: Any = objects[0] if len(objects) == 1 else None
    if isinstance(node, dict) and node.get("kind") == "NodeResourceTopology":
        return _with_zones(view, node, path)
    if not isinstance(node, dict) or node.get("kind") != "Node" or not isinstance(node.get("status"), dict):
        raise InputError("is not a Node object", source=path, remedy=_REMEDY)
    capacity = _list(node["status"].get("capacity"), path)
    # The API server fills in a missing allocatable with the capacity, and so do we.
    allocatable = _list(node["status"].get("allocatable"), path) or capacity
    if "memory" in capacity:
        view = msgspec.structs.replace(view, memory_capacity=capacity["memory"].value())
    view = msgspec.structs.replace(view, complete=True, os=_operating_system(node))
    return _with_amounts(view, allocatable, {*capacity, *allocatable})


def _with_zones(view: KnownNode, topology: dict[str, Any], path: str) -> KnownNode:
    """Apply the sums over the zones of a NodeResourceTopology; resources that it does not name stay as they are."""
    from podslice.node_objects.read_nrt import total_amounts

    try:
        capacity, allocatable = total_amounts(topology)
    except InputError as error:
        raise error.at(source=path) from None
    if "memory" in capacity:
        view = msgspec.structs.replace(view, memory_capacity=capacity["memory"].value())
    return _with_amounts(view, {**(view.allocatable or {}), **allocatable}, {*capacity})


def _operating_system(node: dict[str, Any]) -> str:
    """Return the operating system that the kubelet reports, else that of the node's label."""
    info, metadata = node["status"].get("nodeInfo"), node.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    reported = info.get("operatingSystem") if isinstance(info, dict) else None
    labelled = labels.get("kubernetes.io/os") if isinstance(labels, dict) else None
    return str(reported or labelled or "linux")


def _with_amounts(view: KnownNode, allocatable: ResourceList, names: set[str] | None = None) -> KnownNode:
    sizes = sorted(page_size_of(name) for name in names or allocatable if name.startswith(HUGEPAGES_PREFIX))
    view = msgspec.structs.replace(view, allocatable=allocatable)
    return msgspec.structs.replace(view, page_sizes=tuple(sizes)) if sizes else view


def _list(data: Any, source: str) -> ResourceList:
    if data is not None and not isinstance(data, dict):
        raise InputError("amounts of the node are not a map", source=source, remedy=_REMEDY)
    try:
        return {str(name): _quantity(name, str(text)) for name, text in (data or {}).items()}
    except InputError as error:
        raise error.at(source=source) from None


def _quantity(name: str, text: str) -> Quantity:
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        raise InputError(f"{text!r} is not a quantity: {error}", path=f"--node {name}", remedy=_REMEDY) from None
    if quantity.sign() < 0:
        raise InputError(f"{text} is negative", path=f"--node {name}", remedy=_REMEDY)
    return quantity
