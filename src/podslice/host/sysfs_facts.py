"""What sysfs tells about CPUs beyond the kubelet's view: siblings, packages, caches, core types, isolation.

These facts are for people and for checking the kubelet's view against the hardware; no decision reads them.
"""

from __future__ import annotations

import re
from typing import Any

from podslice.core.machine.model import CoreType, LogicalCPU
from podslice.core.values.cpuset import Bits, CPUSet, CPUSetError, bits_of, iter_bits, parse_bits
from podslice.host.filesystem import Root

CPU_DIR = "sys/devices/system/cpu"
NODE_DIR = "sys/devices/system/node"
_CPU = re.compile(r"cpu([0-9]+)\Z")
_NODE = re.compile(r"node([0-9]+)\Z")
_CORE_FILES = ("core_cpus", "thread_siblings")
_PACKAGE_FILES = ("package_cpus", "core_siblings")


def read_facts(root: Root) -> dict[str, Any]:
    """Keyword arguments for `Machine`: logical CPUs, offline and isolated sets, core types."""
    online = _alive(root)
    nodes = _nodes_of_cpus(root)
    groups = _Groups(root, online)
    cpus = []
    for cpu in sorted({*cpu_ids(root), *iter_bits(online)}):
        if not online >> cpu & 1:
            cpus.append(LogicalCPU(cpu, online=False))
        else:
            cpus.append(groups.describe(cpu, nodes.get(cpu)))
    running = [c.cpu for c in cpus if c.online]
    return {
        "logical_cpus": tuple(cpus),
        "offline": CPUSet(c.cpu for c in cpus if not c.online),
        "isolated": CPUSet.from_bits(_parse_list(root.read(f"{CPU_DIR}/isolated") or "")),
        "core_types": _core_types(root, running),
    }


def cpu_ids(root: Root) -> list[int]:
    """Ids of all CPU directories, in byte order of their names."""
    return [int(match[1]) for name in root.list(CPU_DIR) if (match := _CPU.match(name))]


def online_cpus(root: Root) -> Bits | None:
    """CPUs listed as online; None where there is no such list, and all count as online to a kubelet."""
    text = root.read(f"{CPU_DIR}/online")
    return None if text is None else _parse_list(text)


def _alive(root: Root) -> Bits:
    """Online CPUs by the list, else by each CPU's own switch."""
    online = online_cpus(root)
    if online is not None:
        return online
    return bits_of(cpu for cpu in cpu_ids(root) if (root.read(f"{CPU_DIR}/cpu{cpu}/online") or "1").strip() != "0")


def parse_cpumap(text: str) -> Bits:
    """A hexadecimal CPU mask in comma-separated words."""
    digits = "".join(word.strip().rjust(8, "0") for word in text.strip().split(","))
    try:
        return int(digits, 16) if digits else 0
    except ValueError:
        return 0


def node_cpu_bits(root: Root, directory: str) -> Bits:
    """CPUs of a NUMA node from its map, else its list."""
    cpumap = root.read(f"{directory}/cpumap")
    return parse_cpumap(cpumap) if cpumap is not None else _parse_list(root.read(f"{directory}/cpulist") or "")


def _parse_list(text: str) -> Bits:
    try:
        return parse_bits(text.strip())
    except CPUSetError:
        return 0


def _nodes_of_cpus(root: Root) -> dict[int, int]:
    owner: dict[int, int] = {}
    names = root.list(NODE_DIR)
    for name in names:
        match = _NODE.match(name)
        if match:
            directory = f"{NODE_DIR}/{name}"
            for cpu in iter_bits(node_cpu_bits(root, directory) or _linked_cpus(root, directory)):
                owner[cpu] = int(match[1])
    if not owner and not any(map(_NODE.match, names)):
        return dict.fromkeys(range(1 << 16), 0)
    return owner


def _linked_cpus(root: Root, directory: str) -> Bits:
    """CPUs linked below a NUMA node whose topology is known; for snapshots without CPU maps."""
    linked = (int(match[1]) for entry in root.list(directory) if (match := _CPU.match(entry)))
    return bits_of(cpu for cpu in linked if root.read(f"{CPU_DIR}/cpu{cpu}/topology/core_id") is not None)


class _Groups:
    """Which CPUs share a core, a package, an L3; from sibling maps, else from equal ids."""

    def __init__(self, root: Root, alive: Bits) -> None:
        self.root = root
        self.alive = alive
        self.ids = {cpu: self._ids(cpu) for cpu in iter_bits(alive)}

    def _ids(self, cpu: int) -> tuple[int | None, int | None]:
        topology = f"{CPU_DIR}/cpu{cpu}/topology"
        return (
            _number(self.root.read(f"{topology}/core_id")),
            _number(self.root.read(f"{topology}/physical_package_id")),
        )

    def describe(self, cpu: int, node: int | None) -> LogicalCPU:
        topology = f"{CPU_DIR}/cpu{cpu}/topology"
        core_id, package_id = self.ids.get(cpu, (None, None))
        core = _siblings(self.root, topology, _CORE_FILES, cpu)
        if core is None and core_id is not None:
            core = bits_of(other for other, ids in self.ids.items() if ids == (core_id, package_id))
        package = _siblings(self.root, topology, _PACKAGE_FILES, cpu)
        if package is None and package_id is not None and package_id >= 0:
            package = bits_of(other for other, ids in self.ids.items() if ids[1] == package_id)
        return LogicalCPU(
            cpu,
            core=_lowest((core or 0) & self.alive),
            socket=_lowest((package or 0) & self.alive),
            node=node,
            l3=_lowest(_l3(self.root, cpu) & self.alive),
            core_id=core_id,
            package_id=package_id,
        )


def _lowest(bits: Bits) -> int | None:
    return (bits & -bits).bit_length() - 1 if bits else None


def _siblings(root: Root, directory: str, names: tuple[str, ...], cpu: int) -> Bits | None:
    """The CPUs a sibling file lists; None without such a file, empty if it contradicts itself."""
    for name in names:
        cpumap = root.read(f"{directory}/{name}")
        bits = parse_cpumap(cpumap) if cpumap is not None else _parse_list(root.read(f"{directory}/{name}_list") or "")
        if bits:
            return bits if bits >> cpu & 1 else 0
    return None


def _l3(root: Root, cpu: int) -> Bits:
    directory = f"{CPU_DIR}/cpu{cpu}/cache"
    for name in root.list(directory):
        if name.startswith("index") and (root.read(f"{directory}/{name}/level") or "").strip() == "3":
            cpumap = root.read(f"{directory}/{name}/shared_cpu_map")
            shared = root.read(f"{directory}/{name}/shared_cpu_list")
            return (parse_cpumap(cpumap) if cpumap is not None else _parse_list(shared or "")) or 1 << cpu
    return 0


def _core_types(root: Root, cpus: list[int]) -> tuple[CoreType, ...]:
    """Kinds of cores from the PMU lists of hybrid x86, else from the capacities ARM reports."""
    named = [
        CoreType(name, CPUSet.from_bits(_parse_list(text)))
        for name, pmu in (("performance", "cpu_core"), ("efficiency", "cpu_atom"), ("low-power", "cpu_lowpower"))
        if (text := root.read(f"sys/devices/{pmu}/cpus")) is not None
    ]
    if len(named) > 1:
        return tuple(named)
    by_capacity: dict[int, list[int]] = {}
    for cpu in cpus:
        capacity = _number(root.read(f"{CPU_DIR}/cpu{cpu}/cpu_capacity"))
        if capacity is None:
            return ()
        by_capacity.setdefault(capacity, []).append(cpu)
    if len(by_capacity) < 2:
        return ()
    names = ("performance", "middle", "efficiency") if len(by_capacity) == 3 else ("performance", "efficiency")
    ranked = sorted(by_capacity, reverse=True)
    return tuple(
        CoreType(names[i] if i < len(names) else f"type-{i}", CPUSet(by_capacity[capacity]), capacity)
        for i, capacity in enumerate(ranked)
    )


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if re.match(r"[+-]?[0-9]+\Z", text) else None
