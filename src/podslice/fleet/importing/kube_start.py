"""Where the nodes of a live cluster really are: the states with which they begin.

State files tell it exactly. NodeResourceTopology tells how much of each NUMA node is in use: pods are put so that these
sums agree, which is one of many ways (`kube_zones`). Where neither is there, or neither fits the configuration, pods
are admitted again in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.fleet.engine.nodes import Fleet, FleetClass
from podslice.fleet.importing.kube_zones import Zones, in_zones
from podslice.node.devices.pool import DevicePool
from podslice.node.devices.records import Held, every
from podslice.node.devices.state import DeviceState
from podslice.node.node import Node
from podslice.node.state import NodeState
from podslice.values.errors import PodsliceError

Start = Literal["exact", "zones"]


class KnownStart(NamedTuple):
    """What a cluster tells of one node: its state files by name, and what of its NUMA nodes is in use."""

    files: Mapping[str, bytes]
    zones: Zones


NOTHING_TOLD = KnownStart({}, {})


class BegunNode(NamedTuple):
    """The state of a node with pods on it, how it is known, and lines about what does not fit."""

    state: NodeState
    how: Start
    problems: tuple[str, ...] = ()


class InitialFleet(NamedTuple):
    """Nodes with the pods that are on them from the beginning. `counts`: nodes by how that is known, "again" where pods
    are admitted again. `problems`: what does not fit, a line each."""

    fleet: Fleet
    counts: Mapping[Start | Literal["again"], int]
    problems: tuple[str, ...]


def place_initial_pods(
    fleet: Fleet, told: Mapping[int, KnownStart], pods: Mapping[str, Sequence[Pod]], *, profile: str, same: bool
) -> InitialFleet:
    """The nodes with the pods on them, as far as it is told where these are; `pods` by node, `told` by its number."""
    nodes = list(fleet.nodes)
    counts: dict[Start | Literal["again"], int] = {}
    problems: list[str] = []
    for number, node in enumerate(nodes):
        own = pods.get(node.name, ())
        if not own:
            continue
        found = begun_node(
            fleet.classes[node.kind], node.name, told.get(number, NOTHING_TOLD), own, profile=profile, same=same
        )
        how: Start | Literal["again"] = "again" if isinstance(found, str) else found.how
        counts[how] = counts.get(how, 0) + 1
        if isinstance(found, str):
            problems += [found] if found else []
        else:
            problems += found.problems
            nodes[number] = node._replace(start=found.state)
    return InitialFleet(Fleet(fleet.classes, tuple(nodes)), counts, tuple(problems))


def begun_node(
    kind: FleetClass, name: str, told: KnownStart, pods: Sequence[Pod], *, profile: str, same: bool
) -> BegunNode | str:
    """The node with these pods on it, or in a line why they have to be admitted again; empty where nothing tells.
    `same`: it runs with the configuration with which they came, and does not restart."""
    why = ""
    if told.files:
        try:
            node = _node(kind, told.files, profile)
            return _with(node, kind, name, pods, "exact", same=same)
        except PodsliceError as error:
            why = f"node {name}: its state files do not fit: {error}"
    if told.zones and pods:
        node = _node(kind, {}, profile)
        placed = in_zones(node.rules, node.state, told.zones, pods)
        if placed is None:
            return why or f"node {name}: no placement of its pods agrees with its NodeResourceTopology"
        node.state = placed
        return _with(node, kind, name, pods, "zones", same=same)
    return why


def _node(kind: FleetClass, files: Mapping[str, bytes], profile: str) -> Node:
    rules = kind.rules
    return Node(rules.machine, rules.config, profile=profile, devices=rules.inventory, files=files, policy=rules.policy)


def _with(node: Node, kind: FleetClass, name: str, pods: Sequence[Pod], how: Start, *, same: bool) -> BegunNode:
    refused = node.resume(pods) if same else node.readmit(pods)
    problems = [f"node {name}: pod {one.namespace}/{one.name} would be refused: {one.reason}" for one in refused]
    state = node.state
    return BegunNode(replace(state, device=_on_pools(state.device, kind.state.device.pools)), how, tuple(problems))


def _on_pools(state: DeviceState, pools: dict[str, DevicePool]) -> DeviceState:
    """The same devices by the positions that they have in other pools."""
    records: dict[str, dict[str, dict[str, Held]]] = {}
    for uid, container, resource, held in every(state.records):
        if resource in pools:
            names = state.pools[resource].names(held.devices)
            there = pools[resource].bits(id for id in names if id in pools[resource].position)
            records.setdefault(uid, {}).setdefault(container, {})[resource] = replace(held, devices=there)
    moved = DeviceState(pools, {}, records, records).recounted()
    return replace(moved, used={resource: moved.used.get(resource, 0) for resource in pools})
