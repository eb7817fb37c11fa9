"""Place the pods of a node so that what is in use of each NUMA node equals NodeResourceTopology.

The object has sums, not names: one of the ways to distribute pods over NUMA nodes is searched, largest pods first. CPUs
within a NUMA node are taken from whole cores first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.mixed import make_admission_pod
from podslice.machine.cores import free_cores
from podslice.machine.memory import Block
from podslice.node.cpu.state import assignable
from podslice.node.devices.plugin import AllocateResponse
from podslice.node.devices.records import HeldDevices
from podslice.node.node import with_default_uid
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.scheduling.predicates import CPU, MEMORY
from podslice.values.cpuset import Bits, bits_of, iter_bits

Zones = Mapping[int, Mapping[str, int]]
"""Amounts in use on each NUMA node, by resource: CPUs, bytes, devices."""
_MOST_STEPS = 20_000
"""Limit of the search, which could try every assignment of units to NUMA nodes."""
_SHARED_PAGE = 1 << 20


class _Unit(NamedTuple):
    """A container with resources of its own, and their amounts."""

    uid: str
    container: str
    asked: Mapping[str, int]


def place_in_zones(rules: NodeRules, empty: NodeState, zones: Zones, pods: Sequence[Pod]) -> NodeState | None:
    """Return the state of a node with these pods, None where no placement was found."""
    units = [unit for pod in pods for unit in _units(rules, empty, pod)]
    if not units:
        return empty
    compared = {name for unit in units for name in unit.asked} & {name for zone in zones.values() for name in zone}
    left = {node: {name: amounts.get(name, 0) for name in compared} for node, amounts in zones.items()}
    order = sorted(range(len(units)), key=lambda place: _size(units[place]), reverse=True)
    found = _ZoneSearch(left, [units[place] for place in order]).search()
    if found is None:
        return None
    state = empty
    # In the pods' own order, as a kubelet would have admitted them.
    for place, node in sorted(zip(order, found, strict=True)):
        taken = _take(rules, state, units[place], node)
        if taken is None:
            return None
        state = taken
    return state


def _units(rules: NodeRules, state: NodeState, pod: Pod) -> Iterator[_Unit]:
    """Yield the containers of a pod that own resources."""
    given = default_pod(with_default_uid(pod), rules.gates)
    admission = make_admission_pod(rules.policy, given, rules.gates, release=rules.release)
    if admission.managed:
        return
    for container in admission.containers:
        asked = _exclusive_amounts(rules, state, admission, container)
        if asked and not container.plain_init:
            yield _Unit(admission.uid, container.name, asked)


def _exclusive_amounts(
    rules: NodeRules, state: NodeState, pod: AdmissionPod, container: AdmissionContainer
) -> dict[str, int]:
    """Return the amounts of a container that the managers allocate to it alone."""
    asked = {CPU: container.exclusive_cpus} if rules.cpu.static and container.exclusive_cpus else {}
    if rules.memory.policy == "Static" and pod.guaranteed:
        asked |= container.memory or {}
    return asked | {name: amount for name, amount in container.limits.items() if name in state.device.pools and amount}


def _size(unit: _Unit) -> tuple[int, ...]:
    devices = sum(amount for name, amount in unit.asked.items() if "/" in name)
    return devices, unit.asked.get(CPU, 0), unit.asked.get(MEMORY, 0)


class _ZoneSearch:
    """Searches a NUMA node for each unit, so that nothing remains of any zone: depth first, with a limit of steps."""

    def __init__(self, left: dict[int, dict[str, int]], units: Sequence[_Unit]) -> None:
        self._left = left
        self._units = units
        self._steps = 0
        self._chosen: list[int] = []

    def search(self) -> list[int] | None:
        """Return the NUMA node of each unit, None where no assignment was found."""
        return self._chosen if self._place(0) else None

    def _place(self, number: int) -> bool:
        """Whether this unit and all later ones can be placed; the choices are kept where they can."""
        if number == len(self._units):
            # Memory may remain: exporters round it.
            return all(name == MEMORY or amount == 0 for zone in self._left.values() for name, amount in zone.items())
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return False
        asked = self._units[number].asked
        for node, zone in self._left.items():
            if all(zone[name] + _slack(name) >= amount for name, amount in asked.items() if name in zone):
                self._change(zone, asked, -1)
                self._chosen.append(node)
                if self._place(number + 1):
                    return True
                self._chosen.pop()
                self._change(zone, asked, 1)
        return False

    def _change(self, zone: dict[str, int], asked: Mapping[str, int], sign: int) -> None:
        for name in asked.keys() & zone.keys():
            zone[name] += sign * asked[name]


def _slack(name: str) -> int:
    """Return the tolerated difference: exporters round memory."""
    return _SHARED_PAGE if name == MEMORY else 0


def _take(rules: NodeRules, state: NodeState, unit: _Unit, node: int) -> NodeState | None:
    """Return the state after a unit took its amounts from one NUMA node; None where there is too little."""
    cpus = _cpus(rules, state.cpu.default, node, unit.asked.get(CPU, 0))
    memory, device = state.memory, state.device
    blocks = tuple(
        Block((node,), name, amount)
        for name, amount in sorted(unit.asked.items())
        if amount and name != CPU and name not in device.pools
    )
    if blocks:
        memory = memory.resize(unit.uid, unit.container, blocks)
    for name, amount in unit.asked.items():
        if name in device.pools:
            pool = device.pools[name]
            near = [one for one in iter_bits(device.free(name)) if node in (pool.numa.get(one) or (node,))]
            if len(near) < amount:
                return None
            taken = bits_of(near[:amount])
            names = pool.names(taken)
            device = device.take(name, taken).add(
                unit.uid, unit.container, name, HeldDevices(taken, pool.by_node(names), AllocateResponse())
            )
    if cpus is None:
        return None
    cpu = state.cpu.give(unit.uid, unit.container, cpus) if cpus else state.cpu
    return replace(state, cpu=cpu, memory=memory, device=device)


def _cpus(rules: NodeRules, default: Bits, node: int, count: int) -> Bits | None:
    """Return `count` assignable CPUs of a NUMA node, of whole cores first; None where there are fewer."""
    topology = rules.cpu.topology
    free = assignable(default, rules.cpu.reserved) & topology.numa_nodes.get(node, 0)
    whole = free_cores(topology, free)
    others = [core for core in topology.cores.values() if core & free and core & free != core]
    found = [cpu for core in _ascending(whole) + _ascending(others) for cpu in iter_bits(core & free)][:count]
    return bits_of(found) if len(found) == count else None


def _ascending(cores: Iterable[Bits]) -> list[Bits]:
    return sorted(cores, key=lambda core: core & -core)
