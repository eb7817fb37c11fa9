"""The states with which the nodes of a live cluster begin.

State files have them exactly. NodeResourceTopology has how much of each NUMA node is in use: pods are placed so that
these sums agree, which is one of many ways (`kube_zones`). Where neither exists, or neither fits the configuration,
pods are admitted again in the order of their start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.fleet.engine.nodes import Fleet, FleetClass
from podslice.fleet.importing.kube_zones import Zones, place_in_zones
from podslice.node.devices.pool import DevicePool
from podslice.node.devices.records import HeldDevices, iter_records
from podslice.node.devices.state import DeviceState
from podslice.node.node import Node
from podslice.node.state import NodeState
from podslice.values.errors import PodsliceError

Start = Literal["exact", "zones"]


class KnownStart(NamedTuple):
    """Known facts of the pods on a node: its state files by name, and what is in use of its NUMA nodes."""

    files: Mapping[str, bytes]
    zones: Zones


NOTHING_KNOWN = KnownStart({}, {})


class InitialNode(NamedTuple):
    """The state of a node with pods on it, its source, and lines about what does not fit."""

    state: NodeState
    how: Start
    problems: tuple[str, ...] = ()


class InitialFleet(NamedTuple):
    """Nodes with the pods that run on them from the beginning. `counts`: nodes by source, "again" where pods are
    admitted again; `problems`: a line each."""

    fleet: Fleet
    counts: Mapping[Start | Literal["again"], int]
    problems: tuple[str, ...]


def place_initial_pods(
    fleet: Fleet, starts: Mapping[int, KnownStart], pods: Mapping[str, Sequence[Pod]], *, same: bool
) -> InitialFleet:
    """Return the nodes with their pods, where the placement is known. `starts`: by node number; `pods`: by node name;
    `same` as of `place_on_node`."""
    nodes = list(fleet.nodes)
    counts: dict[Start | Literal["again"], int] = {}
    problems: list[str] = []
    for number, node in enumerate(nodes):
        own = pods.get(node.name, ())
        if not own:
            continue
        found = place_on_node(fleet.classes[node.kind], node.name, starts.get(number, NOTHING_KNOWN), own, same=same)
        how: Start | Literal["again"] = "again" if isinstance(found, str) else found.how
        counts[how] = counts.get(how, 0) + 1
        if isinstance(found, str):
            problems += [found] if found else []
        else:
            problems += found.problems
            nodes[number] = node._replace(start=found.state)
    return InitialFleet(Fleet(fleet.classes, tuple(nodes)), counts, tuple(problems))


def place_on_node(
    kind: FleetClass, name: str, start: KnownStart, pods: Sequence[Pod], *, same: bool
) -> InitialNode | str:
    """Return the node with these pods, or in a line why they must be admitted again ("" where nothing is known).

    `same`: the node runs with the configuration under which the pods were admitted, and does not restart.
    """
    why = ""
    if start.files:
        try:
            node = _node(kind, start.files)
            return _finish(node, kind, name, pods, "exact", same=same)
        except PodsliceError as error:
            why = f"node {name}: its state files do not fit: {error}"
    if start.zones and pods:
        node = _node(kind, {})
        # The kubelet has started without files; the placement becomes its state.
        placed = place_in_zones(node.rules, node.state, start.zones, pods)
        if placed is None:
            return why or f"node {name}: no placement of its pods agrees with its NodeResourceTopology"
        node.state = placed
        return _finish(node, kind, name, pods, "zones", same=same)
    return why


def _node(kind: FleetClass, files: Mapping[str, bytes]) -> Node:
    rules = kind.rules
    return Node.like(rules, config=rules.config, quirks=rules.quirks, release=rules.release, files=files)


def _finish(node: Node, kind: FleetClass, name: str, pods: Sequence[Pod], how: Start, *, same: bool) -> InitialNode:
    """Resume or readmit the pods, and return the node's state with devices numbered as in its class."""
    refused = node.resume(pods) if same else node.readmit(pods)
    problems = [f"node {name}: pod {one.namespace}/{one.name} would be refused: {one.reason}" for one in refused]
    state = node.state
    return InitialNode(
        replace(state, device=_renumber_devices(state.device, kind.state.device.pools)), how, tuple(problems)
    )


def _renumber_devices(state: DeviceState, pools: dict[str, DevicePool]) -> DeviceState:
    """Return the same devices by their positions in other pools."""
    records: dict[str, dict[str, dict[str, HeldDevices]]] = {}
    for uid, container, resource, held in iter_records(state.records):
        if resource in pools:
            names = state.pools[resource].names(held.devices)
            places = pools[resource].bits(id for id in names if id in pools[resource].position)
            records.setdefault(uid, {}).setdefault(container, {})[resource] = replace(held, devices=places)
    moved = DeviceState(pools, {}, records, records).recount()
    return replace(moved, used={resource: moved.used.get(resource, 0) for resource in pools})
