"""Machines as files of `/sys` and `/proc`, for a kubelet that reads them and for `--sysfs`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from podslice.values.cpuset import bits_of, format_bits

_KIB_OF_MIB = 1024
_HUGE_PAGE_KIB = 2048


class Shape(msgspec.Struct, frozen=True):
    """A machine of even NUMA nodes. CPUs are counted as firmware does: the first threads of all cores, then all
    second ones. `huge_pages` are pages of 2 MiB on each node."""

    name: str
    sockets: int
    nodes: int
    cores: int
    threads: int = 2
    mib: int = 4096
    huge_pages: int = 0
    caches: int = 1

    @property
    def cpus(self) -> int:
        return self.nodes * self.cores * self.threads

    def cpus_of_core(self, core: int) -> list[int]:
        return [core + thread * self.nodes * self.cores for thread in range(self.threads)]

    def cpus_of_node(self, node: int) -> list[int]:
        first = node * self.cores
        return sorted(cpu for core in range(first, first + self.cores) for cpu in self.cpus_of_core(core))

    def cpus_of_socket(self, socket: int) -> list[int]:
        return sorted(
            cpu for node in range(self.nodes) if self.socket(node) == socket for cpu in self.cpus_of_node(node)
        )

    def cpus_of_cache(self, core: int) -> list[int]:
        size = self.cores // self.caches
        first = core // size * size
        return sorted(cpu for own in range(first, first + size) for cpu in self.cpus_of_core(own))

    def socket(self, node: int) -> int:
        return node * self.sockets // self.nodes


def write(shape: Shape, root: Path) -> None:
    """Write `sys/devices/system` and `proc` of a machine below `root`."""
    system = root / "sys/devices/system"
    for node in range(shape.nodes):
        _write_node(shape, node, system / f"node/node{node}")
    for core in range(shape.nodes * shape.cores):
        for cpu in shape.cpus_of_core(core):
            _write_cpu(shape, core, cpu, system / f"cpu/cpu{cpu}")
    everything = _list(list(range(shape.cpus)))
    for name in ("online", "possible", "present"):
        _put(system / "cpu" / name, everything)
    nodes = _list(list(range(shape.nodes)))
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        _put(system / "node" / name, nodes)
    _put(root / "proc/cpuinfo", "\n".join(_cpuinfo(shape)))
    pages = shape.nodes * shape.huge_pages
    total = shape.nodes * shape.mib * _KIB_OF_MIB
    _put(root / "proc/meminfo", "\n".join([
        f"MemTotal:       {total} kB", f"MemFree:        {total} kB", f"MemAvailable:   {total} kB",
        "SwapTotal:      0 kB", "SwapFree:       0 kB", f"HugePages_Total: {pages}", f"HugePages_Free: {pages}",
        f"Hugepagesize:   {_HUGE_PAGE_KIB} kB",
    ]))  # fmt: skip
    pool = root / f"sys/kernel/mm/hugepages/hugepages-{_HUGE_PAGE_KIB}kB"
    _put(pool / "nr_hugepages", str(pages))
    _put(pool / "free_hugepages", str(pages))


def _write_node(shape: Shape, node: int, folder: Path) -> None:
    kib = shape.mib * _KIB_OF_MIB
    _put(folder / "cpulist", _list(shape.cpus_of_node(node)))
    _put(folder / "cpumap", _mask(shape.cpus_of_node(node)))
    _put(folder / "meminfo", f"Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:        {kib} kB")
    _put(folder / "distance", " ".join(str(_distance(shape, node, other)) for other in range(shape.nodes)))
    pool = folder / f"hugepages/hugepages-{_HUGE_PAGE_KIB}kB"
    for name in ("nr_hugepages", "free_hugepages"):
        _put(pool / name, str(shape.huge_pages))
    for cpu in shape.cpus_of_node(node):
        (folder / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")


def _distance(shape: Shape, node: int, other: int) -> int:
    return 10 if node == other else 12 if shape.socket(node) == shape.socket(other) else 21


def _write_cpu(shape: Shape, core: int, cpu: int, folder: Path) -> None:
    node = core // shape.cores
    socket = shape.socket(node)
    topology = folder / "topology"
    for names, members in (
        (("thread_siblings", "core_cpus"), shape.cpus_of_core(core)),
        (("core_siblings", "package_cpus"), shape.cpus_of_socket(socket)),
    ):
        for name in names:
            _put(topology / name, _mask(members))
            _put(topology / f"{name}_list", _list(members))
    _put(topology / "core_id", str(core))
    _put(topology / "physical_package_id", str(socket))
    (folder / f"node{node}").symlink_to(f"../../node/node{node}")
    levels = (("Data", 1, 32, shape.cpus_of_core(core)), ("Unified", 2, 1024, shape.cpus_of_core(core)),
              ("Unified", 3, 16384, shape.cpus_of_cache(core)))  # fmt: skip
    for index, (kind, level, kib, shared) in enumerate(levels):
        cache = folder / f"cache/index{index}"
        _put(cache / "type", kind)
        _put(cache / "level", str(level))
        _put(cache / "size", f"{kib}K")
        _put(cache / "id", str(shared[0]))
        _put(cache / "shared_cpu_list", _list(shared))
        _put(cache / "shared_cpu_map", _mask(shared))


def _cpuinfo(shape: Shape) -> list[str]:
    lines = []
    for cpu in range(shape.cpus):
        core = cpu % (shape.nodes * shape.cores)
        socket = shape.socket(core // shape.cores)
        lines += [
            f"processor\t: {cpu}", "vendor_id\t: GenuineIntel", f"model name\t: {shape.name}", "cpu MHz\t\t: 2000.000",
            f"physical id\t: {socket}", f"core id\t\t: {core}", "",
        ]  # fmt: skip
    return lines


def _list(numbers: list[int]) -> str:
    return format_bits(bits_of(numbers))


def _mask(numbers: list[int]) -> str:
    """Groups of 32 bits in hexadecimal, the highest first."""
    bits = bits_of(numbers)
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(groups))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
