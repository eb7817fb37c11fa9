"""The fewest container moves by trying every set of CPUs and NUMA nodes for every container, breadth first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from podslice import Node, Pod
from podslice.advise.defrag.groups import Group, find_movable_groups
from podslice.advise.defrag.space import relocate_group
from podslice.advise.explain.fixes.changes import EditPod, admits
from podslice.advise.trial.trial import Trial
from podslice.node.kubelet import Kubelet
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.node.memory.ledger import rebuild_from_blocks
from podslice.values.cpuset import Bits, bits_of, iter_bits

Layout = tuple[tuple[Bits, Bits], ...]
"""CPUs and memory nodes of every group."""


def fewest_by_force(node: Node, pod: Pod, most: int) -> int | None:
    """Return the fewest container moves that make the pod fit; None if there are more than `most`, or none."""
    kubelet = node.kubelet
    groups = find_movable_groups(node.view)
    start: Layout = tuple((group.cpus, group.nodes) for group in groups)
    valid: dict[Layout, bool] = {start: True}
    best = {start: 0}
    ring: dict[int, list[Layout]] = {0: [start]}
    for moved in range(most + 1):
        for layout in ring.get(moved, []):
            if best[layout] == moved and admits(Trial(_lay_out(kubelet, groups, layout)), pod, EditPod(pod)):
                return moved
        for layout in ring.get(moved, []):
            if best[layout] < moved:
                continue
            for index, after in _changes(kubelet, groups, layout):
                cost = moved + groups[index].weight
                if cost > most or best.get(after, most + 1) <= cost:
                    continue
                if after not in valid:
                    valid[after] = _keeps_all(kubelet, _lay_out(kubelet, groups, after))
                if valid[after]:
                    best[after] = cost
                    ring.setdefault(cost, []).append(after)
    return None


def _changes(kubelet: Kubelet, groups: list[Group], layout: Layout) -> Iterator[tuple[int, Layout]]:
    cpu, memory = kubelet.manager.cpu, kubelet.manager.memory
    free = cpu.state.default & ~cpu.reserved
    for group in groups:
        free |= group.cpus
    for cpus, _ in layout:
        free &= ~cpus
    for index, group in enumerate(groups):
        cpus, nodes = layout[index]
        width = cpu.topology.numa_nodes_of(group.cpus).bit_count()
        local = group.cpus and group.nodes and not cpu.topology.numa_nodes_of(group.cpus) & ~group.nodes
        for chosen in combinations(list(iter_bits(free | cpus)), cpus.bit_count()):
            bits = bits_of(chosen)
            there = cpu.topology.numa_nodes_of(bits)
            if there.bit_count() > width or not _whole_cores(kubelet, bits):
                continue
            for size in range(group.nodes.bit_count() + 1):
                for ids in combinations(sorted(memory.machine_state), size):
                    mask = bits_of(ids)
                    if bool(mask) != bool(group.nodes) or (local and there & ~mask) or (bits, mask) == (cpus, nodes):
                        continue
                    yield index, (*layout[:index], (bits, mask), *layout[index + 1 :])


def _whole_cores(kubelet: Kubelet, cpus: Bits) -> bool:
    cpu = kubelet.manager.cpu
    return not cpu.options.full_pcpus_only or all(
        not core & cpus or not core & ~cpus for core in cpu.topology.cores.values()
    )


def _lay_out(kubelet: Kubelet, groups: list[Group], layout: Layout) -> Kubelet:
    """Return a copy of the node with every group at its place."""
    copy = kubelet.copy()
    cpu, memory = copy.manager.cpu, copy.manager.memory
    default = cpu.state.default
    for group, (cpus, nodes) in zip(groups, layout, strict=True):
        default |= group.cpus
        relocate_group(Trial(copy), group, cpus, nodes)
    for cpus, _ in layout:
        default &= ~cpus
    cpu.state = cpu.state.with_default(default)
    if memory.static:
        held = MemoryCheckpoint(entries=memory.assignments, pod_entries=memory.pod_assignments)
        ledger = rebuild_from_blocks(memory.machine_state, held, pod_level=copy.manager.pod_level)
        memory.state = memory.state.with_machine(ledger)
    return copy


def _keeps_all(before: Kubelet, after: Kubelet) -> bool:
    """Whether memory fits where the ledger has it, and every pod, admitted again, is judged no worse than before."""
    memory = after.manager.memory
    booked = sum(t.reserved for s in memory.machine_state.values() for t in (s.memory_map or {}).values())
    asked = sum(t.reserved for s in before.manager.memory.machine_state.values() for t in (s.memory_map or {}).values())
    groups = {tuple(s.cells or ()) for s in memory.machine_state.values() if s.number_of_assignments}
    if booked != asked or sum(len(group) for group in groups) != len({node for group in groups for node in group}):
        return False
    old, new = before.copy(), after.copy()
    for uid, pod in before.active.items():
        was, now = old.admit(pod.spec), new.admit(pod.spec)
        if was is None and now is not None:
            return False
        for container in pod.containers:
            preferred = old.manager.topology.affinity(uid, container.name).preferred
            if now is None and preferred and not new.manager.topology.affinity(uid, container.name).preferred:
                return False
    return True
