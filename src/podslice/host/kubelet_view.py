"""Discover a machine as a kubelet does, with cAdvisor's rules over sysfs and procfs (cpu-topology 1.3).

Some of the rules look odd: byte order of directory names, caches that stop at the first unreadable file, pseudo-nodes
made of packages. They decide which CPUs a kubelet hands out, so they are kept exactly. The facts of the hardware are
read separately, in `podslice.host.hardware`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from podslice.host.filesystem import FileSystem
from podslice.host.kernel_text import (
    MalformedError,
    kilobytes,
    parse_mask,
    read_cpus,
    read_number,
    read_optional_number,
    read_optional_text,
    read_text,
)
from podslice.machine.model import Core, HugePages, NUMANode
from podslice.values.cpuset import Bits, CPUSetError, iter_bits, parse_bits

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GLOBAL_HUGEPAGES = "sys/kernel/mm/hugepages"

# More digits than any kernel gives out: such a name would make a set of absurd size.
_CPU_NAME = re.compile(r"cpu(\d{1,6})")
_NODE_NAME = re.compile(r"node(\d{1,6})")
_HUGEPAGES_NAME = re.compile(r"hugepages-(\d+)kB")
_NO_KUBELET = "a kubelet sees no CPUs here and does not start"
_PHYSICAL_ID = re.compile(r"^physical id\s*:\s*(\d+)", re.MULTILINE)
_SYSTEM_Z_LEVELS = ("book_id", "drawer_id")
_CACHE_SIZE = re.compile(r"\d+K")


@dataclass
class KubeletView:
    """The parts of cAdvisor's MachineInfo that sysfs and procfs give. After a failure `nodes` is empty and `num_cores`
    0."""

    nodes: tuple[NUMANode, ...] = ()
    num_cores: int = 0
    num_sockets: int = 0
    memory_capacity: int | None = None
    hugepages: tuple[HugePages, ...] = ()
    warnings: list[str] = field(default_factory=list)


def read_kubelet_view(fs: FileSystem, *, system_z: bool = False) -> KubeletView:
    """Discover a machine as a kubelet does when it starts. Does not raise for the content of files: where the kubelet's
    discovery fails, there are no nodes, and the reason is in `warnings`. `system_z`: the kubelet runs on s390x."""
    view = KubeletView()
    view.memory_capacity = kilobytes(read_optional_text(fs, "proc/meminfo"), "MemTotal")
    view.hugepages = read_hugepages(fs, GLOBAL_HUGEPAGES)
    online = _OnlineCPUs(fs)
    view.num_sockets = _count_sockets(fs, online)
    discovery = _Discovery(fs, online, view.warnings, system_z=system_z)
    try:
        if names := list_numbered(fs, NODE, _NODE_NAME):
            nodes = [discovery.node(number, f"{NODE}/{name}") for name, number in names]
            view.num_cores = sum(len(core.threads) for node in nodes for core in node.cores)
        else:
            nodes = discovery.pseudo_nodes()
            # Upstream counts offline CPUs here, though its pseudo-nodes do not have them.
            view.num_cores = len(list_numbered(fs, CPU, _CPU_NAME))
        view.nodes = tuple(nodes)
        if view.num_cores == 0:
            view.warnings.append(f"{_NO_KUBELET}: no node lists a CPU it can describe")
    except (MalformedError, OSError) as error:
        view.warnings.append(f"{_NO_KUBELET}: {_reason(error)}")
    return view


def list_numbered(fs: FileSystem, directory: str, pattern: re.Pattern[str]) -> list[tuple[str, int]]:
    """Return entries named like `cpu12` with their number, in byte order of the names (cpu1, cpu10, cpu2)."""
    found = []
    for name in fs.entries(directory):
        match = pattern.fullmatch(name)
        if match:
            found.append((name, int(match[1])))
    return found


def cpu_directories(fs: FileSystem) -> list[int]:
    """Return the ids of all `cpuN` directories in byte order of the names."""
    return [number for _, number in list_numbered(fs, CPU, _CPU_NAME)]


def node_directories(fs: FileSystem) -> list[int]:
    """Return the ids of all `nodeN` directories in byte order of the names."""
    return [number for _, number in list_numbered(fs, NODE, _NODE_NAME)]


def cpus_of_node(fs: FileSystem, path: str) -> list[int]:
    """Return the CPUs of a node in byte order of `cpuN`. A kernel lists them as links; captured trees often have lost
    those, and then the node's CPU map or list, which has the same CPUs, is read instead."""
    links = [number for _, number in list_numbered(fs, path, _CPU_NAME)]
    if links:
        return links
    return sorted(iter_bits(read_cpus(fs, f"{path}/cpumap", f"{path}/cpulist") or 0), key=str)


def read_hugepages(fs: FileSystem, path: str) -> tuple[HugePages, ...]:
    """Return huge page pools below `path` in byte order of their directories; empty when one cannot be read."""
    pools = []
    for name, size in list_numbered(fs, path, _HUGEPAGES_NAME):
        try:
            pools.append(HugePages(size, read_number(fs, f"{path}/{name}/nr_hugepages")))
        except (OSError, MalformedError):
            return ()
    return tuple(pools)


class _OnlineCPUs:
    """The online CPUs as cAdvisor tests them: all without the file, none when it cannot be parsed."""

    def __init__(self, fs: FileSystem) -> None:
        self._bits: Bits | None = None
        try:
            self._bits = parse_bits(read_text(fs, f"{CPU}/online"))
        except FileNotFoundError:
            pass
        except (OSError, CPUSetError):
            self._bits = 0

    def __contains__(self, cpu: int) -> bool:
        return self._bits is None or self._bits >> cpu & 1 == 1


def _count_sockets(fs: FileSystem, online: _OnlineCPUs) -> int:
    """Count sockets as upstream: distinct `physical id` lines of cpuinfo, else distinct package ids of online CPUs."""
    # `physical id` is x86's; without such lines (arm64) upstream counts package ids, and an unreadable one as "0".
    listed = {int(number) for number in _PHYSICAL_ID.findall(read_optional_text(fs, "proc/cpuinfo"))}
    if listed:
        return len(listed)
    return len(
        {
            read_optional_text(fs, f"{CPU}/cpu{cpu}/topology/physical_package_id") or "0"
            for cpu in cpu_directories(fs)
            if cpu in online
        }
    )


class _Discovery:
    """Upstream's discovery of NUMA nodes, cores and caches; what it skips is noted in `warnings`."""

    def __init__(self, fs: FileSystem, online: _OnlineCPUs, warnings: list[str], *, system_z: bool) -> None:
        self.fs = fs
        self.online = online
        self.system_z = system_z
        self.warnings = warnings

    def node(self, number: int, path: str) -> NUMANode:
        cpus = cpus_of_node(self.fs, path)
        return NUMANode(
            id=number,
            memory=kilobytes(read_optional_text(self.fs, f"{path}/meminfo"), "MemTotal") or 0,
            hugepages=read_hugepages(self.fs, f"{path}/hugepages"),
            distances=self.distances(f"{path}/distance"),
            cores=self.cores(cpus),
        )

    def pseudo_nodes(self) -> list[NUMANode]:
        """Return one node for each package, by id. Upstream's order is that of a Go map, which is random."""
        cpus = cpu_directories(self.fs)
        if not cpus:
            raise MalformedError(f"no CPU is available, cpusPath: /{CPU}")
        packages: dict[int, list[int]] = {}
        for cpu in cpus:
            package = self._topology(cpu, "physical_package_id")
            if package is not None:
                packages.setdefault(package, []).append(cpu)
        return [NUMANode(id=package, cores=self.cores(members)) for package, members in sorted(packages.items())]

    def distances(self, path: str) -> tuple[int, ...] | None:
        try:
            text = read_text(self.fs, path)
        except FileNotFoundError:
            return None
        # Single blanks, unsigned decimals: upstream ends its discovery at anything else.
        words = text.split(" ")
        if not all(word.isascii() and word.isdigit() for word in words):
            raise MalformedError(f"{path}: {text[:40]!r} is not a list of distances")
        return tuple(map(int, words))

    def cores(self, cpus: list[int]) -> tuple[Core, ...]:
        threads: dict[tuple[int, ...], list[int]] = {}
        for cpu in cpus:
            identity = self._core_identity(cpu) if cpu in self.online else None
            if identity is not None:
                threads.setdefault(identity, []).append(cpu)
        uncore = self._uncore_caches([tuple(group) for group in threads.values()])
        return tuple(
            Core(socket=identity[1], core=identity[0], threads=tuple(group), uncore_caches=uncore.get(group[0], ()))
            for identity, group in threads.items()
        )

    def _core_identity(self, cpu: int) -> tuple[int, ...] | None:
        # Without the node: cores are collected per node, so no core spans two of them.
        core = self._topology(cpu, "core_id")
        package = self._topology(cpu, "physical_package_id")
        if core is None or package is None:
            return None
        if not self.system_z:
            return core, package
        base = f"{CPU}/cpu{cpu}/topology"
        return core, package, *(read_optional_number(self.fs, f"{base}/{name}") or 0 for name in _SYSTEM_Z_LEVELS)

    def _topology(self, cpu: int, name: str) -> int | None:
        path = f"{CPU}/cpu{cpu}/topology/{name}"
        try:
            return read_number(self.fs, path)
        except FileNotFoundError:
            self.warnings.append(f"a kubelet skips CPU {cpu}: /{path} is missing")
            return None

    def _uncore_caches(self, cores: list[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """Return cache ids by first thread of a core; cores after the first unreadable cache file have none."""
        found: dict[int, tuple[int, ...]] = {}
        for threads in cores:
            try:
                found[threads[0]] = self._uncore_caches_of(threads, len(cores))
            except (OSError, ValueError):
                break
        return found

    def _uncore_caches_of(self, threads: tuple[int, ...], cores_in_node: int) -> tuple[int, ...]:
        base = f"{CPU}/cpu{threads[0]}/cache"
        ids: list[int] = []
        for name in self.fs.entries(base):
            if not name.startswith("index"):
                continue
            path = f"{base}/{name}"
            # Every file is read even where its value is not used: an unreadable one ends the caches of the node.
            cache_id = 0 if self.system_z else read_number(self.fs, f"{path}/id")
            if not _CACHE_SIZE.match(read_text(self.fs, f"{path}/size")):
                raise MalformedError(f"{path}/size")
            level = read_number(self.fs, f"{path}/level")
            read_text(self.fs, f"{path}/type")
            sharing = parse_mask(read_text(self.fs, f"{path}/shared_cpu_map")).bit_count()
            # A cache that the whole node shares is the node's, so one L3 per NUMA node gives no uncore caches. Upstream
            # compares with this core's threads, which differs from the node's count on hybrid machines.
            if level > 2 and sharing != cores_in_node * len(threads) and cache_id not in ids:
                ids.append(cache_id)
        return tuple(ids)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error)
