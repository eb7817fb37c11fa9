"""Admission of a pod on the CPUs and memory of a plan: the node decides, then moves the pod to the plan.

The plan comes from an exact model, which may have had other pods on the node than there are now, because pods start in
another order than they were planned in. So the node decides by itself first. It moves the pod to the plan only if that
is free and in no respect worse than its own choice: as many CPUs for each container, on no more NUMA nodes, sockets,
caches and cores, with as much memory. Then every promise of the policies holds for the plan as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations_with_replacement
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.machine.memory import Block
from podslice.machine.model import CPUTopology
from podslice.node.cpu.state import PodMemory, numa_nodes
from podslice.node.decision import Decision
from podslice.node.holding import ContainerHolding, Holding, holding_of
from podslice.node.node import Node
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.node.topology.hint import Hint
from podslice.node.topology.manager import TopologyState
from podslice.values.cpuset import Bits, union


class PlannedAdmission(NamedTuple):
    """The node's decision, and whether the pod was moved to the plan."""

    decision: Decision
    moved: bool


def admit_as_planned(node: Node, pod: Pod, plan: Holding) -> PlannedAdmission:
    """Admit a pod as `Node.admit` does, then move it to the plan where that is as good. Raises as `Node.admit`."""
    decision = node.admit(pod)
    if not decision.admitted:
        return PlannedAdmission(decision, False)
    state, uid = node.state, decision.uid
    own = holding_of(state, uid)
    if own == plan or not is_as_good(node.rules, state, own, plan):
        return PlannedAdmission(decision, False)
    moved = _move(node.rules, state, uid, plan)
    # Memory may have found no room on the plan's NUMA nodes: then the pod keeps what the node chose.
    if holding_of(moved, uid) != plan:
        return PlannedAdmission(decision, False)
    node.state = moved
    return PlannedAdmission(node.as_held(decision), True)


def is_as_good(rules: NodeRules, state: NodeState, own: Holding, plan: Holding) -> bool:
    """Whether the plan's resources are free or the pod's own, and in no respect worse than what it has."""
    if len(own.containers) != len(plan.containers) or not rules.cpu.static:
        return False
    had, wanted = _sets(own), _sets(plan)
    if [one is None for one in had] != [one is None for one in wanted]:
        return False
    before, after = [one or 0 for one in had], [one or 0 for one in wanted]
    # Plans come over the network: a negative set would contain every CPU beyond the machine.
    if min(after) < 0 or union(after) & ~((state.cpu.default | union(before)) & ~rules.cpu.reserved):
        return False
    if not _overlap_equally(before, after) or not _are_as_narrow(rules.cpu.topology, before, after):
        return False
    pairs = zip(own.containers, plan.containers, strict=True)
    alike = all(_is_no_worse(*pair) for pair in pairs) and _has_no_worse_memory(own.blocks, plan.blocks)
    return alike and _are_as_aligned(rules.cpu.topology, own, plan)


def _sets(holding: Holding) -> list[Bits | None]:
    return [holding.pod_cpus, *(one.cpus for one in holding.containers)]


def _overlap_equally(before: list[Bits], after: list[Bits]) -> bool:
    """Whether every set, and the overlap of every two sets, has its size of before: init containers and pod-level CPUs
    then share CPUs as the node decided."""
    places = list(combinations_with_replacement(range(len(before)), 2))
    return all((before[a] & before[b]).bit_count() == (after[a] & after[b]).bit_count() for a, b in places)


def _are_as_narrow(topology: CPUTopology, before: Iterable[Bits], after: Iterable[Bits]) -> bool:
    """Whether no set touches more NUMA nodes, sockets, caches or cores than before."""
    kinds = topology.numa_nodes, topology.sockets, topology.uncore_caches, topology.cores
    return all(
        _count_touched(kind, new) <= _count_touched(kind, old)
        for old, new in zip(before, after, strict=True)
        for kind in kinds
    )


def _count_touched(parts: Mapping[int, Bits], cpus: Bits) -> int:
    return sum(1 for part in parts.values() if part & cpus)


def _is_no_worse(own: ContainerHolding, plan: ContainerHolding) -> bool:
    return own.devices == plan.devices and _has_no_worse_memory(own.blocks, plan.blocks)


def _has_no_worse_memory(own: tuple[Block, ...] | None, plan: tuple[Block, ...] | None) -> bool:
    if own is None or plan is None:
        return own is plan
    if [(one.type, one.size) for one in own] != [(one.type, one.size) for one in plan]:
        return False
    return numa_nodes(plan).bit_count() <= numa_nodes(own).bit_count()


def _are_as_aligned(topology: CPUTopology, own: Holding, plan: Holding) -> bool:
    """Whether CPUs and memory together are on no more NUMA nodes, for each container and for the pod. With devices they
    must be on the same ones, because devices do not move."""
    had, wanted = _nodes(topology, own), _nodes(topology, plan)
    if any(one.devices for one in own.containers) and had != wanted:
        return False
    counts = [(old.bit_count(), new.bit_count()) for old, new in zip(had, wanted, strict=True)]
    return all(new <= old for old, new in counts) and union(wanted).bit_count() <= union(had).bit_count()


def _nodes(topology: CPUTopology, holding: Holding) -> list[Bits]:
    whole = topology.numa_nodes_of(holding.pod_cpus or 0) | numa_nodes(holding.blocks or ())
    return [
        whole,
        *(topology.numa_nodes_of(one.cpus or 0) | numa_nodes(one.blocks or ()) for one in holding.containers),
    ]


def _move(rules: NodeRules, state: NodeState, uid: str, plan: Holding) -> NodeState:
    """Return the state in which the pod has the plan's resources, in all ledgers. Memory moves only where there is
    room; the caller compares."""
    names = [container.name for container in state.pods[uid].containers]
    containers = dict(zip(names, plan.containers, strict=True))
    cpus = {name: one.cpus for name, one in containers.items() if one.cpus is not None}
    memory = PodMemory(
        {name: one.blocks for name, one in containers.items() if one.blocks is not None}, plan.blocks or ()
    )
    return replace(
        state,
        cpu=state.cpu.relocate(uid, cpus, plan.pod_cpus),
        memory=state.memory.restore_pods({uid: memory}, pod_level=rules.memory.pod_level),
        topology=_realign(rules, state.topology, uid, containers),
    )


def _realign(
    rules: NodeRules, topology: TopologyState, uid: str, containers: Mapping[str, ContainerHolding]
) -> TopologyState:
    """Return the topology state with the affinity of each container on the NUMA nodes of its plan."""
    for name, held in containers.items():
        hint = topology.affinities.get(uid, {}).get(name)
        nodes = rules.cpu.topology.numa_nodes_of(held.cpus or 0) | numa_nodes(held.blocks or ())
        if hint is not None and hint.mask is not None and nodes:
            topology = topology.store(uid, name, Hint(nodes, hint.preferred))
    return topology
