"""Placement of reservations: CPUs as whole cores, away from devices, fast cores or CPUs that the kernel isolates, and
memory divided among the NUMA nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from podslice.advise.reserve.formulas import MIB
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import CPUTopology, Machine, cpu_topology, whole_objects
from podslice.node.cpu.picking.picker import Picker
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, bits_of, format_bits, union
from podslice.values.errors import InputError, did_you_mean
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
    """The CPUs to reserve, the rule that chose them, the reason for that rule, and notes about them."""

    cpus: Bits
    rule: str
    reason: str
    notes: tuple[str, ...]


class Site(NamedTuple):
    """A machine with what decides about places: the number of devices of each NUMA node, and CPUs to avoid."""

    machine: Machine
    topology: CPUTopology
    devices: Mapping[int, int]
    isolated: Bits


def site_of(machine: Machine, devices: DeviceInventory | None) -> Site:
    """Return the machine with its devices counted by NUMA node. Raises `TopologyError`."""
    topology = cpu_topology(machine)
    counts = dict.fromkeys(topology.numa_nodes, 0)
    for resource in devices.resources if devices else ():
        for device in resource.devices:
            for node in device.numa or ():
                if node in counts:
                    counts[node] += 1
    return Site(machine, topology, counts, machine.isolated.bits & topology.all_cpus)


def place(site: Site, count: int, rule: str | None = None, *, housekeeping: bool = False) -> PlacedReservation:
    """Choose whole cores with at least `count` CPUs, by the rule or else by the one that suits the machine.
    `housekeeping`: one core more on every NUMA node that has devices, for interrupts that only its own CPUs can take.
    Raises `InputError`."""
    chosen = rule or _suitable(site)
    if chosen not in PLACEMENTS:
        raise InputError(f"{rule!r} is not a placement", path="--placement", remedy=did_you_mean(chosen, PLACEMENTS))
    cpus = _ORDERS[chosen](site, count)
    if housekeeping:
        cpus |= union(_first_core(site, node, cpus) for node, devices in site.devices.items() if devices)
    reason = _reason(site, chosen, cpus) if rule is None else "as requested"
    return PlacedReservation(cpus, chosen, reason, tuple(_notes(site, chosen, count, cpus)))


def _suitable(site: Site) -> str:
    if len(site.machine.core_types) > 1:
        return EFFICIENCY
    if len(site.topology.numa_nodes) == 1:
        return FIRST
    # A reserved CPU beside a device could never serve a pod that is aligned with the device.
    return DEVICE_FREE


def _reason(site: Site, rule: str, cpus: Bits) -> str:
    """Return the reason why a rule suits the machine, true of the CPUs that it chose."""
    if rule == EFFICIENCY:
        return "the machine has cores of several kinds; the system can do with the least capable"
    if rule == FIRST:
        return "there is one NUMA node; these are the CPUs that a kubelet would choose"
    counts = site.devices.values()
    used = [node for node, mine in site.topology.numa_nodes.items() if mine & cpus]
    where = f"NUMA node{'s' if len(used) > 1 else ''} {format_bits(bits_of(used))}"
    if not any(counts):
        return f"no device is known, so any NUMA node is as good as {where}"
    if len(set(counts)) == 1:
        return f"every NUMA node has {_devices(max(counts))}, so any is as good as {where}"
    most, fewest = max(site.devices[node] for node in used), min(counts)
    verb = "has" if len(used) == 1 else "have"
    if most == fewest:
        return f"{where} {verb} {_devices(fewest)}{' each' if len(used) > 1 else ''}; no other has fewer"
    return f"{where} {verb} the fewest devices: {', '.join(str(site.devices[node]) for node in used)}"


def _devices(count: int) -> str:
    return "no device" if count == 0 else f"{count} device{'s' if count > 1 else ''}"


def _cores(site: Site, within: Bits) -> list[Bits]:
    """Return the whole cores inside a set, by their lowest CPU."""
    return [cpus for cpus in site.topology.cores.values() if not cpus & ~within]


def _take(order: Iterator[Bits] | list[Bits], count: int) -> Bits:
    taken = 0
    for core in order:
        if taken.bit_count() >= count:
            break
        taken |= core
    return taken


def _first(site: Site, count: int) -> Bits:
    """Return a kubelet's own choice by number (cpu-topology 2.3), completed to whole cores."""
    topology = site.topology
    count = min(-(-count // topology.cpus_per_core) * topology.cpus_per_core, topology.num_cpus)
    # Rounded up first: the picker then takes whole cores wherever it can.
    picked = Picker(topology, CPUPolicyOptions(), PODSLICE).take(topology.all_cpus, count)
    return whole_objects(topology.cores, picked.cpus)


def _device_free(site: Site, count: int) -> Bits:
    nodes = sorted(site.topology.numa_nodes, key=lambda node: (site.devices[node], -node))
    return _take([core for node in nodes for core in _cores(site, site.topology.numa_nodes[node])], count)


def _per_node(site: Site, count: int) -> Bits:
    rows = [_cores(site, cpus) for cpus in site.topology.numa_nodes.values()]
    longest = max(map(len, rows))
    rounds = [[row[at] for row in rows if at < len(row)] for at in range(longest)]
    # At least one core of every node, whatever the amount.
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
        yield "no device is known: --devices FILE, or --sysfs, gives the devices of each NUMA node"


def divide_memory(total: int, cpus: Mapping[int, int], sizes: Mapping[int, int]) -> dict[int, int]:
    """Divide `total` bytes (whole MiB) among the NUMA nodes: half by the number of reserved CPUs of a node (`cpus`),
    half by its size in bytes (`sizes`), in whole MiB, the rest to the node with the most reserved CPUs.

    No node gives more than half of its memory while another has room. The Memory Manager requires that the shares add
    up exactly. Raises `ValueError` where the nodes have less memory in all.
    """
    if total > sum(size // MIB * MIB for size in sizes.values()):
        raise ValueError("more than there is")
    all_cpus, all_memory = sum(cpus.values()), sum(sizes.values())
    shares = {
        node: int(total * (cpus.get(node, 0) / (2 * all_cpus) + size / (2 * all_memory))) // MIB * MIB
        for node, size in sizes.items()
    }
    order = sorted(sizes, key=lambda node: (-cpus.get(node, 0), -sizes[node], node))
    shares[order[0]] += total - sum(shares.values())
    # First no node exceeds half of its memory; what then finds no room may take up to all of it.
    for part in (2, 1):
        caps = {node: size // part // MIB * MIB for node, size in sizes.items()}
        rest = sum(max(0, shares[node] - caps[node]) for node in order)
        shares = {node: min(shares[node], caps[node]) for node in order}
        for node in order:
            more = min(rest, caps[node] - shares[node])
            shares[node] += more
            rest -= more
        shares[order[0]] += rest
    return dict(sorted(shares.items()))
