"""Trials in which something is otherwise than it is: more is free, a rule does not hold.

They prove causes: a pod that is admitted with three more free CPUs on NUMA node 1, and not with two, is short of three
CPUs there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.memory import MachineState, NUMANodeState
from podslice.node.container import ContainerManager
from podslice.node.devices.state import DeviceState
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet, ProviderHints, ResourceHints
from podslice.node.topology.manager import HintProvider
from podslice.values.cpuset import Bits

Place = tuple[str | None, str]
"""A container (None: the pod as a whole) and a resource."""


class Relaxation(msgspec.Struct, frozen=True):
    """What is otherwise in a trial. `cpus` and `devices` (ids by resource) are free, though they are owned, reserved or
    unhealthy; `memory` are bytes more that are free by NUMA node and resource. `ungrouped`: no NUMA node belongs to a
    group. `widths`: sets of so many NUMA nodes are preferred; None: the resource has no preference. `split_cores`:
    full-pcpus-only does not hold. `absent`: the pod does not have these containers, which the caller sees to."""

    cpus: Bits = 0
    memory: Mapping[tuple[int, str], int] = {}
    devices: Mapping[str, frozenset[str]] = {}
    ungrouped: bool = False
    widths: Mapping[Place, int | None] = {}
    split_cores: bool = False
    absent: frozenset[str] = frozenset()

    def __or__(self, other: Relaxation) -> Relaxation:
        memory = dict(self.memory)
        for key, amount in other.memory.items():
            memory[key] = memory.get(key, 0) + amount
        devices = dict(self.devices)
        for resource, ids in other.devices.items():
            devices[resource] = devices.get(resource, frozenset()) | ids
        return Relaxation(
            self.cpus | other.cpus,
            memory,
            devices,
            self.ungrouped or other.ungrouped,
            {**self.widths, **other.widths},
            self.split_cores or other.split_cores,
            self.absent | other.absent,
        )


class _Widened:
    """A provider whose preferred sets have other numbers of NUMA nodes."""

    def __init__(self, inner: HintProvider, widths: Mapping[Place, int | None]) -> None:
        self._inner = inner
        self._widths = widths
        self.name = inner.name
        self.remove_stale = inner.remove_stale
        self.holds = inner.holds
        self.allocate = inner.allocate
        self.allocate_pod = inner.allocate_pod

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        return self._widen(self._inner.container_hints(pod, container), container.name)

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        return self._widen(self._inner.pod_hints(pod), None)

    def _widen(self, hints: ProviderHints, container: str | None) -> ProviderHints:
        return hints and {name: self._prefer(answer, (container, name)) for name, answer in hints.items()}

    def _prefer(self, hints: ResourceHints, place: Place) -> ResourceHints:
        if place not in self._widths or hints is None:
            return hints
        width = self._widths[place]
        if width is None:
            return None
        if isinstance(hints, HintSet):
            return replace(hints, smallest=width, alignment=None)
        return [Hint(hint.mask, (hint.mask or 0).bit_count() == width) for hint in hints]


@contextmanager
def relaxed(manager: ContainerManager, relaxation: Relaxation) -> Iterator[None]:
    """Relax the constraints of a node inside the block. The rules are restored after it; the caller restores the
    state."""
    rules, topology = manager.cpu.rules, manager.topology
    providers: Any = topology.providers
    if relaxation.cpus:
        manager.cpu.state = manager.cpu.state.with_default(manager.cpu.state.default | relaxation.cpus)
        if relaxation.cpus & rules.withheld:
            fewer = rules.with_reserved(rules.reserved & ~relaxation.cpus)
            manager.cpu.rules = replace(fewer, withheld=rules.withheld & ~relaxation.cpus)
    if relaxation.split_cores:
        options = replace(rules.options, full_pcpus_only=False)
        manager.cpu.rules = replace(manager.cpu.rules, options=options)
    if relaxation.memory or relaxation.ungrouped:
        memory = manager.memory
        memory.state = memory.state.with_machine(_relaxed_ledger(memory.machine_state, relaxation))
    for resource, ids in relaxation.devices.items():
        manager.device.state = _with_free(manager.device.state, resource, ids)
    if relaxation.widths:
        topology.providers = [_Widened(provider, relaxation.widths) for provider in providers]
    try:
        yield
    finally:
        manager.cpu.rules, topology.providers = rules, providers


def _relaxed_ledger(machine: MachineState, relaxation: Relaxation) -> MachineState:
    """Return the ledger with more free memory, and without groups."""
    return {node: _relaxed_node(node, state, relaxation) for node, state in machine.items()}


def _relaxed_node(node: int, state: NUMANodeState, relaxation: Relaxation) -> NUMANodeState:
    tables = dict(state.memory_map or {})
    for name, table in tables.items():
        more = relaxation.memory.get((node, name), 0)
        if more:
            allocatable = max(table.allocatable, table.free + more)
            reserved = max(0, table.reserved - more)
            tables[name] = replace(table, free=table.free + more, reserved=reserved, allocatable=allocatable)
    if relaxation.ungrouped:
        return replace(state, memory_map=tables, cells=[node], number_of_assignments=0)
    return replace(state, memory_map=tables)


def _with_free(state: DeviceState, resource: str, ids: frozenset[str]) -> DeviceState:
    """Return a state in which these devices are healthy and not in use."""
    pool = state.pools[resource]
    bits = pool.bits(ids)
    healthy = replace(pool, healthy=pool.healthy | bits, unhealthy=pool.unhealthy & ~bits)
    used = {**state.used, resource: state.used.get(resource, 0) & ~bits}
    return replace(state.with_pool(resource, healthy), used=used)
