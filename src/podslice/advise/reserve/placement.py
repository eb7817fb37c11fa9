"""Which CPUs to reserve: whole cores, away from devices, from fast cores or from CPUs that the kernel isolates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from podslice.machine.devices import DeviceInventory
from podslice.machine.model import CPUTopology, Machine, cpu_topology, whole_objects
from podslice.node.cpu.picking.picker import Picker
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, format_bits, union
from podslice.values.errors import InputError
from podslice.values.nearest import did_you_mean
from podslice.values.quirks import PODSLICE

FIRST, DEVICE_FREE, PER_NODE, EFFICIENCY, ISOLATE_AWARE = (
    "first",
    "device-free",
    "per-node",
    "efficiency",
    "isolate-aware",
)
PLACEMENTS = (FIRST, DEVICE_FREE, PER_NODE, EFFICIENCY, ISOLATE_AWARE)


class PlacedReservation(NamedTuple):
    """The CPUs to reserve, by which rule, why that one, and what is worth knowing about them."""

    cpus: Bits
    rule: str
    reason: str
    notes: tuple[str, ...]


class Site(NamedTuple):
    """A machine with what decides about places: how many devices each NUMA node has; CPUs to stay away from."""

    machine: Machine
    topology: CPUTopology
    devices: Mapping[int, int]
    isolated: Bits


def site_of(machine: Machine, devices: DeviceInventory | None) -> Site:
    """The machine with its devices counted by NUMA node. Raises `TopologyError`."""
    topology = cpu_topology(machine)
    counts = dict.fromkeys(topology.numa_nodes, 0)
    for resource in devices.resources if devices else ():
        for device in resource.devices:
            for node in device.numa or ():
                if node in counts:
                    counts[node] += 1
    return Site(machine, topology, counts, machine.isolated.bits & topology.all_cpus)


def place(site: Site, count: int, rule: str | None = None, *, housekeeping: bool = False) -> PlacedReservation:
    """Whole cores with at least `count` CPUs; without a rule the one that suits the machine. `housekeeping`: one core
    more on every NUMA node that has devices, for interrupts that only its own CPUs can take. Raises `InputError`."""
    chosen, reason = _suitable(site) if rule is None else (rule, "as asked for")
    if chosen not in PLACEMENTS:
        raise InputError(f"{rule!r} is not a placement", path="--placement", remedy=did_you_mean(chosen, PLACEMENTS))
    cpus = _ORDERS[chosen](site, count)
    if housekeeping:
        cpus |= union(_first_core(site, node, cpus) for node, devices in site.devices.items() if devices)
    return PlacedReservation(cpus, chosen, reason, tuple(_notes(site, chosen, count, cpus)))


def _suitable(site: Site) -> tuple[str, str]:
    if len(site.machine.core_types) > 1:
        return EFFICIENCY, "the machine has cores of several kinds; the system can do with the least capable"
    if len(site.topology.numa_nodes) == 1:
        return FIRST, "there is one NUMA node; these are the CPUs that a kubelet would choose"
    return DEVICE_FREE, "the NUMA nodes with the most devices are left to the pods that use them"


def _cores(site: Site, within: Bits) -> list[Bits]:
    """Whole cores inside a set, by their lowest CPU."""
    return [cpus for cpus in site.topology.cores.values() if not cpus & ~within]


def _take(order: Iterator[Bits] | list[Bits], count: int) -> Bits:
    taken = 0
    for core in order:
        if taken.bit_count() >= count:
            break
        taken |= core
    return taken


def _first(site: Site, count: int) -> Bits:
    """A kubelet's own choice by number (cpu-topology 2.3), and the rest of its cores."""
    topology = site.topology
    count = min(-(-count // topology.cpus_per_core) * topology.cpus_per_core, topology.num_cpus)
    picked = Picker(topology, CPUPolicyOptions(), PODSLICE).take(topology.all_cpus, count)
    return whole_objects(topology.cores, picked.cpus)


def _device_free(site: Site, count: int) -> Bits:
    nodes = sorted(site.topology.numa_nodes, key=lambda node: (site.devices[node], -node))
    return _take([core for node in nodes for core in _cores(site, site.topology.numa_nodes[node])], count)


def _per_node(site: Site, count: int) -> Bits:
    rows = [_cores(site, cpus) for cpus in site.topology.numa_nodes.values()]
    longest = max(map(len, rows))
    rounds = [[row[at] for row in rows if at < len(row)] for at in range(longest)]
    return union(rounds[0]) | _take([core for one in rounds for core in one], count)


def _efficiency(site: Site, count: int) -> Bits:
    kinds = sorted(site.machine.core_types, key=lambda kind: (kind.capacity, kind.name))
    ordered = [core for kind in kinds for core in _cores(site, kind.cpus.bits)]
    return _take(list(dict.fromkeys([*ordered, *_cores(site, site.topology.all_cpus)])), count)


def _isolate_aware(site: Site, count: int) -> Bits:
    return _take(_cores(site, site.topology.all_cpus & ~site.isolated), count)


_ORDERS: dict[str, Callable[[Site, int], Bits]] = {
    FIRST: _first,
    DEVICE_FREE: _device_free,
    PER_NODE: _per_node,
    EFFICIENCY: _efficiency,
    ISOLATE_AWARE: _isolate_aware,
}


def _first_core(site: Site, node: int, taken: Bits) -> Bits:
    free = [core for core in _cores(site, site.topology.numa_nodes[node]) if not core & taken]
    return free[0] if free else 0


def _notes(site: Site, rule: str, count: int, cpus: Bits) -> Iterator[str]:
    if cpus.bit_count() < count:
        which = "that the kernel does not isolate " if rule == ISOLATE_AWARE else ""
        yield f"there are only {cpus.bit_count()} CPUs {which}for the {count} that are needed"
    if isolated := cpus & site.isolated:
        yield (
            f"the kernel isolates CPUs {format_bits(isolated)} (isolcpus): it places no daemon there by itself; "
            f"--placement {ISOLATE_AWARE} stays away from them"
        )
    if not any(site.devices.values()) and rule == DEVICE_FREE:
        yield "no device is known: --devices FILE, or --sysfs, says which NUMA nodes have some"
