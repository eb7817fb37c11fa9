"""Read the facts of the hardware from the kernel's sibling masks.

The kubelet's own discovery (`kubelet_view`) loses facts: it ignores dies, book levels and core types, drops caches
after the first unreadable file, and invents NUMA nodes. This module reads the facts beside it, and agrees with hwloc
and lscpu where those agree with each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from podslice.host.filesystem import FileSystem
from podslice.host.kernel_text import (
    kilobytes,
    parse_boot_list,
    read_cpus,
    read_optional_number,
    read_optional_text,
    read_text,
)
from podslice.host.kubelet_view import (
    CPU,
    NODE,
    cpu_directories,
    cpus_of_node,
    node_directories,
    read_hugepages,
)
from podslice.machine.model import Cache, CoreType, CPUGroup, KernelNode, MaxFrequency
from podslice.values.cpuset import Bits, CPUSet, CPUSetError, bits_of, iter_bits

_SIZE = re.compile(r"(\d+)([KM]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


class Hardware:
    """Facts of one machine, read once; `online` and `offline` are bits."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self._directories = bits_of(cpu_directories(fs))
        self.online = self._online()
        present = read_cpus(fs, f"{CPU}/present")
        self.offline = (self._directories if present is None else present) & ~self.online
        self.isolated = read_cpus(fs, f"{CPU}/isolated") or 0
        self.nohz_full = (read_cpus(fs, f"{CPU}/nohz_full") or 0) & (self.online | self.offline)
        # Masked: the command line may name CPUs that the machine lacks. `nohz_full` implies `rcu_nocbs`.
        self.rcu_nocbs = (self._boot_list("rcu_nocbs") | self.nohz_full) & (self.online | self.offline)

    def _online(self) -> Bits:
        listed = read_cpus(self.fs, f"{CPU}/online")
        if listed is not None:
            return listed
        # Without the list: a CPU that is off has no topology, and may say so in its own file. CPU 0 often has none.
        cpus = list(iter_bits(self._directories))
        described = bits_of(cpu for cpu in cpus if self.fs.entries(f"{CPU}/cpu{cpu}/topology"))
        switched_off = bits_of(cpu for cpu in cpus if self._number(cpu, "online") == 0)
        return (described or self._directories) & ~switched_off

    def _boot_list(self, parameter: str) -> Bits:
        last = (self.online | self.offline).bit_length() - 1
        found = re.search(rf"(?:^|\s){parameter}=(\S+)", read_optional_text(self.fs, "proc/cmdline"))
        try:
            return parse_boot_list(found[1], last) if found else 0
        except CPUSetError:
            return 0

    def _number(self, cpu: int, name: str) -> int | None:
        return read_optional_number(self.fs, f"{CPU}/cpu{cpu}/{name}")

    # Groups of CPUs

    def groups(self) -> tuple[CPUGroup, ...]:
        """Return cores, clusters, dies, packages and, of s390x, each book and drawer, with their online CPUs; each kind
        by lowest CPU."""
        return (
            *self._groups("core", "core_id", "core_cpus", "thread_siblings"),
            *self._groups("cluster", "cluster_id", "cluster_cpus"),
            *self._groups("die", "die_id", "die_cpus"),
            *self._groups("package", "physical_package_id", "package_cpus", "core_siblings"),
            *self._groups("book", "book_id", "book_siblings"),
            *self._groups("drawer", "drawer_id", "drawer_siblings"),
        )

    def _groups(self, kind: str, id_file: str, *mask_files: str) -> list[CPUGroup]:
        """Group CPUs by their masks. Every CPU that is the lowest of its mask starts a group. Where masks overlap, the
        later group keeps the CPUs. A CPU that is missing from its own mask is in no group. hwloc does the same."""
        masks = self._masks(mask_files) or self._masks_by_id(id_file)
        leader: dict[int, int] = {}
        for cpu, mask in masks.items():
            if mask & -mask == 1 << cpu:
                leader.update(dict.fromkeys(iter_bits(mask), cpu))
        members: dict[int, Bits] = {}
        for cpu, first in leader.items():
            members[first] = members.get(first, 0) | 1 << cpu
        return [
            CPUGroup(kind, self._id(first, id_file), CPUSet.from_bits(cpus)) for first, cpus in sorted(members.items())
        ]

    def _masks(self, names: tuple[str, ...]) -> dict[int, Bits]:
        """Return each online CPU's mask from the first of these files that can be read."""
        masks = {}
        for cpu in iter_bits(self.online):
            base = f"{CPU}/cpu{cpu}/topology"
            mask = read_cpus(self.fs, *(f"{base}/{name}{suffix}" for name in names for suffix in ("", "_list")))
            if mask is not None:
                masks[cpu] = mask & self.online
        return masks

    def _masks_by_id(self, id_file: str) -> dict[int, Bits]:
        """Return masks of the CPUs that have the same id in the same package, for kernels without mask files."""
        same: dict[tuple[int | None, ...], Bits] = {}
        key_of: dict[int, tuple[int | None, ...]] = {}
        for cpu in iter_bits(self.online):
            number = self._number(cpu, f"topology/{id_file}")
            if number is None:
                continue
            package = self._number(cpu, "topology/physical_package_id")
            key_of[cpu] = key = (number, package)
            same[key] = same.get(key, 0) | 1 << cpu
        return {cpu: same[key] for cpu, key in key_of.items()}

    def _id(self, cpu: int, id_file: str) -> int:
        number = self._number(cpu, f"topology/{id_file}")
        return -1 if number is None else number

    # Caches

    def caches(self) -> tuple[Cache, ...]:
        """Return every cache once, by level, then lowest CPU."""
        found: dict[tuple[int, str, Bits], Cache] = {}
        for cpu in iter_bits(self.online):
            base = f"{CPU}/cpu{cpu}/cache"
            for name in self.fs.entries(base):
                if name.startswith("index"):
                    self._add_cache(f"{base}/{name}", cpu, found)
        return tuple(sorted(found.values(), key=lambda cache: (cache.level, next(iter(cache.cpus)), cache.type)))

    def _add_cache(self, path: str, cpu: int, found: dict[tuple[int, str, Bits], Cache]) -> None:
        level = read_optional_number(self.fs, f"{path}/level")
        shared = read_cpus(self.fs, f"{path}/shared_cpu_map", f"{path}/shared_cpu_list")
        if level is None or shared is None:
            return
        cpus = (shared | 1 << cpu) & self.online
        kind = read_optional_text(self.fs, f"{path}/type")
        key = (level, kind, cpus)
        if key not in found:
            size = _SIZE.fullmatch(read_optional_text(self.fs, f"{path}/size"))
            found[key] = Cache(level, kind, int(size[1]) * _UNITS[size[2]] if size else 0, CPUSet.from_bits(cpus))

    # NUMA nodes

    def nodes(self) -> tuple[KernelNode, ...]:
        """Return NUMA nodes by id; a kernel without NUMA has one node 0 with all CPUs and memory."""
        ids = sorted(node_directories(self.fs))
        return tuple(map(self._node, ids)) if ids else (self._whole_machine(),)

    def _whole_machine(self) -> KernelNode:
        memory = kilobytes(read_optional_text(self.fs, "proc/meminfo"), "MemTotal") or 0
        return KernelNode(0, CPUSet.from_bits(self.online), memory)

    def _node(self, number: int) -> KernelNode:
        path = f"{NODE}/node{number}"
        cpus = read_cpus(self.fs, f"{path}/cpumap", f"{path}/cpulist")
        if cpus is None:
            cpus = bits_of(cpus_of_node(self.fs, path))
        return KernelNode(
            id=number,
            cpus=CPUSet.from_bits(cpus & self.online),
            memory=kilobytes(read_optional_text(self.fs, f"{path}/meminfo"), "MemTotal") or 0,
            hugepages=read_hugepages(self.fs, f"{path}/hugepages"),
            distances=self._distances(f"{path}/distance"),
        )

    def _distances(self, path: str) -> tuple[int, ...] | None:
        try:
            return tuple(map(int, read_text(self.fs, path).split()))
        except (OSError, ValueError):
            return None

    # Kinds of cores

    def core_types(self) -> tuple[CoreType, ...]:
        """Return kinds of cores, the most capable first; empty on machines with one kind. Sources in order of trust:
        the PMUs of hybrid x86, `cpu_capacity`, `cpufreq/cpuinfo_max_freq` together with the threads of a core."""
        for source in (self._types_by_pmu, self._types_by_capacity, self._types_by_threads):
            types = source()
            if len(types) > 1:
                return types
        return ()

    def max_frequencies(self) -> tuple[MaxFrequency, ...]:
        """Return CPUs by their highest clock; empty where all have the same, or where one of them does not state it."""
        by_clock: dict[int, Bits] = {}
        for cpu in iter_bits(self.online):
            khz = self._number(cpu, "cpufreq/cpuinfo_max_freq")
            if khz is None:
                return ()
            by_clock[khz] = by_clock.get(khz, 0) | 1 << cpu
        if len(by_clock) < 2:
            return ()
        return tuple(MaxFrequency(khz, CPUSet.from_bits(by_clock[khz])) for khz in sorted(by_clock, reverse=True))

    def _types_by_pmu(self) -> tuple[CoreType, ...]:
        """Return the core types of hybrid x86, where each type has a performance monitoring unit of its own."""
        found = []
        for pmu, name in (("cpu_core", "performance"), ("cpu_atom", "efficiency"), ("cpu_lowpower", "low-power")):
            cpus = (read_cpus(self.fs, f"sys/devices/{pmu}/cpus") or 0) & self.online
            if cpus:
                found.append(CoreType(name, CPUSet.from_bits(cpus)))
        return tuple(found)

    def _types_by_capacity(self) -> tuple[CoreType, ...]:
        """Return the core types by the kernel's `cpu_capacity`."""
        return self._rank(lambda cpu: self._number(cpu, "cpu_capacity"))

    def _types_by_threads(self) -> tuple[CoreType, ...]:
        """Return the core types of hybrid x86 without its PMUs: cores with and without SMT that differ in clock (or
        have no clock files)."""
        threads = {
            cpu: len(group.cpus)
            for group in self._groups("core", "core_id", "core_cpus", "thread_siblings")
            for cpu in group.cpus
        }
        clock = {cpu: self._number(cpu, "cpufreq/cpuinfo_max_freq") for cpu in threads}
        # With offline CPUs a core of one thread may be one whose other thread is off.
        if set(threads.values()) != {1, 2} or self.offline:
            return ()
        performance = bits_of(cpu for cpu, count in threads.items() if count == 2)
        efficiency = self.online & ~performance
        fastest_small = max((clock[cpu] or 0 for cpu in iter_bits(efficiency)), default=0)
        slowest_big = min((clock[cpu] or 0 for cpu in iter_bits(performance)), default=0)
        if fastest_small and slowest_big and fastest_small >= slowest_big:
            return ()
        return (
            CoreType("performance", CPUSet.from_bits(performance)),
            CoreType("efficiency", CPUSet.from_bits(efficiency)),
        )

    def _rank(self, capacity_of: Callable[[int], int | None]) -> tuple[CoreType, ...]:
        by_capacity: dict[int, Bits] = {}
        for cpu in iter_bits(self.online):
            capacity = capacity_of(cpu)
            if capacity is None:
                return ()
            by_capacity[capacity] = by_capacity.get(capacity, 0) | 1 << cpu
        names = _RANKS.get(len(by_capacity)) or [f"rank-{i}" for i in range(len(by_capacity))]
        return tuple(
            CoreType(name, CPUSet.from_bits(cpus), capacity)
            for name, (capacity, cpus) in zip(names, sorted(by_capacity.items(), reverse=True), strict=True)
        )


_RANKS = {2: ["performance", "efficiency"], 3: ["prime", "performance", "efficiency"]}
