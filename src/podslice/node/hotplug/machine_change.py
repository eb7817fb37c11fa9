"""Change the machine of a running node: rules for the new machine, and ledgers that follow it (docs/hotplug.md).

A v1.36.2 kubelet reads the machine once per start. KEP-3953 (hotplug) and KEP-5578 (unplug) are not merged; this
behaviour is ours. Ledgers change first and owners last, so that no CPU ever has two owners.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.config.policy import Hotplug
from podslice.machine.delta import (
    ConsequenceKind,
    MachineConsequence,
    copy_memory,
    machine_delta,
    without_cpus,
)
from podslice.machine.model import CPUTopology, Machine, TopologyError, cpu_topology
from podslice.node.container import ContainerManager, make_merger, topology_options
from podslice.node.context import EXCLUSIVE, SHARED_POOL
from podslice.node.cpu.resize import ResizePicker
from podslice.node.cpu.state import CPUState, OwnCPUs
from podslice.node.hotplug.lost_cpus import LostCPUs
from podslice.node.hotplug.offline_ledger import ledger_on
from podslice.node.rules import CPURules, NodeRules
from podslice.values.cpuset import Bits, CPUSet, format_bits
from podslice.values.errors import StartError, StartKind
from podslice.values.quantity import hugepage_resource

_NO_TOPOLOGY = StartKind("no-topology", "{error}")


def visible_machine(rules: NodeRules, known: Bits, machine: Machine, policy: Hotplug) -> Machine:
    """Return the part of a machine that the node works on. `known` are the CPUs it has or had."""
    if policy.new_cpus == "ignore":
        machine = without_cpus(machine, machine.cpus.bits & ~known)
    return copy_memory(machine, rules.machine) if policy.memory == "fixed" else machine


def rules_on(rules: NodeRules, machine: Machine) -> NodeRules:
    """Return the same rules on another machine. Reserved CPUs stay reserved. Raises `StartError` for a machine on which
    nothing can run."""
    try:
        topology = cpu_topology(machine)
    except TopologyError as error:
        raise StartError("machine", _NO_TOPOLOGY, error=str(error)) from None
    return replace(
        rules,
        machine=machine,
        cpu=_cpu_rules(rules, machine, topology),
        memory=replace(rules.memory, machine=machine),
        machine_nodes=tuple(node.id for node in machine.nodes),
        merger=make_merger(
            machine,
            rules.config,
            topology_options(rules.config, rules.gates, rules.release),
            rules.quirks,
            rules.policy,
        ),
    )


def _cpu_rules(rules: NodeRules, machine: Machine, topology: CPUTopology) -> CPURules:
    """Return the CPU rules on another machine. Raises `StartError`."""
    old = rules.cpu
    made = CPURules.of(
        topology,
        old.policy,
        options=old.options,
        reserved=old.reserved,
        pod_level=old.pod_level,
        elastic=old.resizer is not None,
        aligned=old.resizer is not None and old.resizer.aligned,
        quirks=rules.quirks,
    )
    # With SMT siblings offline the average falls; whole cores stay as large as they were when the node began.
    made = replace(made, core_size=max(old.core_size, made.core_size))
    return made.with_policy(rules.policy, machine)


class MachineChange:
    """Moves the managers of a node, made with the new rules, from the machine `before` to theirs."""

    def __init__(self, manager: ContainerManager, before: Machine, policy: Hotplug) -> None:
        self._manager = manager
        self._policy = policy
        self._before = before
        self._topology_before = cpu_topology(before)
        self._delta = machine_delta(before, manager.machine)
        self._lost = LostCPUs(manager, self._resizer(), self._topology_before)

    def _resizer(self) -> ResizePicker:
        rules = self._manager.cpu.rules
        return rules.resizer or ResizePicker(rules.topology, rules.options, self._manager.quirks)

    def carry_out(self) -> tuple[MachineConsequence, ...]:
        """Change the managers' states; return the consequences in the order in which they happened."""
        self._manager.remove_stale()
        found = list(self._follow_memory())
        if self._manager.cpu.static:
            before = self._manager.cpu.state
            found += self._follow_pools()
            found += self._follow_owners(before)
            cpu, metrics = self._manager.cpu, self._manager.context.metrics
            metrics[SHARED_POOL] = 1000 * cpu.assignable.bit_count()
            metrics[EXCLUSIVE] = cpu.state.assigned().bit_count()
        return tuple(found)

    # Memory and NUMA nodes

    def _follow_memory(self) -> Iterator[MachineConsequence]:
        """Move devices and memory ledgers to the new machine, and yield the consequences."""
        manager, delta = self._manager, self._delta
        for node in delta.nodes_added:
            yield MachineConsequence("node-added", f"NUMA node {node} was added")
        for node in delta.nodes_gone:
            yield MachineConsequence("node-gone", f"NUMA node {node} was removed")
        if delta.nodes_added or delta.nodes_gone:
            nodes = tuple(node.id for node in manager.machine.nodes)
            pools = {name: pool.on_machine(nodes) for name, pool in manager.device.state.pools.items()}
            manager.device.state = replace(manager.device.state, pools=pools)
        if not manager.memory.static:
            return
        old = manager.memory.state
        manager.memory.follow_machine()
        for node, (was, now) in sorted(delta.memory.items()):
            yield MachineConsequence("memory-changed", f"NUMA node {node} has {now} bytes of memory, {was} before")
        for (node, size), (had, has) in sorted(delta.hugepages.items()):
            text = f"NUMA node {node} has {has} pages of {hugepage_resource(size)}, {had} before"
            yield MachineConsequence("hugepages-changed", text)
        for node, short in sorted(manager.memory.state.short.items()):
            if short != old.short.get(node, 0):
                text = f"pods hold {short} bytes on NUMA node {node} more than it has: nothing new goes there"
                yield MachineConsequence("memory-overcommitted", text)

    # Shared and reserved CPUs

    def _follow_pools(self) -> Iterator[MachineConsequence]:
        """Move the shared and reserved CPUs to the new machine, and yield the consequences."""
        cpu = self._manager.cpu
        before, gone = cpu.state, self._delta.offline.bits
        cpu.state = ledger_on(before, cpu.rules, self._topology_before.all_cpus)
        grown, shrunk = cpu.state.default & ~before.default, before.default & ~cpu.state.default
        shared = CPUSet.from_bits(cpu.state.default)
        if shrunk:
            yield self._pool("shared-shrunk", f"CPUs {format_bits(shrunk)} are shared no more", shrunk)
        if grown:
            yield self._pool("shared-grown", f"CPUs {format_bits(grown)} are shared", grown)
        reserved = cpu.reserved & gone
        if reserved:
            yield self._pool("reserved-offline", f"CPUs {format_bits(reserved)} are reserved and offline", reserved)
        if (shrunk or grown) and not cpu.assignable:
            if cpu.options.strict_cpu_reservation or not cpu.state.default:
                text = f"no shared CPU is left; containers that share run on {shared or 'none'}"
                yield self._pool("no-shared-cpus", text, shrunk)
            else:
                yield self._pool("only-reserved", f"only the reserved CPUs {shared} are shared", shrunk)

    def _pool(self, kind: ConsequenceKind, text: str, changed: Bits) -> MachineConsequence:
        shared = CPUSet.from_bits(self._manager.cpu.state.default)
        return MachineConsequence(kind, text, lost=CPUSet.from_bits(changed), cpus=shared)

    # Owners

    def _follow_owners(self, before: CPUState) -> Iterator[MachineConsequence]:
        """Replace lost CPUs as the policy says, and yield what happened to each container."""
        for pod in self._lost.owners():
            # Urgent owners get others under every policy: their containers would run on the shared CPUs.
            if self._policy.lost_cpus == "replace" or self._lost.is_urgent(pod):
                self._lost.replace(pod)
        for pod in self._manager.context.active.values():
            for container in pod.containers:
                yield from self._describe(pod, container.name, before)

    def _describe(self, pod: AdmissionPod, name: str, before: CPUState) -> Iterator[MachineConsequence]:
        """Yield what happened to one container, if anything did."""
        state = self._manager.cpu.state
        had, has = before.assignment(pod.uid, name) or 0, state.assignment(pod.uid, name) or 0
        missed, misses = had & before.offline, has & state.offline
        if had == has and missed == misses:
            return
        own = state.online(pod.uid, name)
        left = state.default if own.cpus is None else own.cpus
        kind: ConsequenceKind
        if had != has:
            kind, changed = "replaced", had & ~has
            text = f"has {format_bits(has & ~had)} for {format_bits(changed)}"
            text += f" and misses {format_bits(misses)}" if misses else ""
        elif misses & ~missed:
            changed = misses & ~missed
            kind, where = self._describe_cpus(own, left)
            text = f"lost {format_bits(changed)} and runs on {where}"
        else:
            kind, changed = "returned", missed & ~misses
            text = f"has {format_bits(changed)} again"
        text = f"container {name} {text}"
        yield MachineConsequence(kind, text, pod.uid, name, CPUSet.from_bits(changed), CPUSet.from_bits(left))

    def _describe_cpus(self, own: OwnCPUs, left: Bits) -> tuple[ConsequenceKind, str]:
        if own.cpus is None:
            return "shares", f"the shared CPUs, {format_bits(left)}: it has none of its own left"
        if own.borrowed:
            return "shares-in-pod", f"those of its pod, {format_bits(left)}: it has none of its own left"
        return "drain" if self._policy.lost_cpus == "drain" else "degraded", format_bits(left)
