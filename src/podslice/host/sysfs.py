"""Discovering a machine from /sys and /proc, as cAdvisor does for the kubelet (spec cpu-topology 1.3).

What a kubelet sees is decided by the rules of one library down to its fall-backs: directory order, which file a
missing value comes from, when cache reading stops. Those rules are here, for CPUs, caches, memory and huge pages;
`sysfs_facts` adds what people want to know beyond that.
"""

from __future__ import annotations

import re

from podslice.core.machine.model import Core, HugePages, Machine, NUMANode
from podslice.core.values.cpuset import iter_bits
from podslice.host.filesystem import Root
from podslice.host.sysfs_facts import CPU_DIR, NODE_DIR, cpu_ids, node_cpu_bits, online_cpus, parse_cpumap, read_facts

_CPU = re.compile(r"cpu([0-9]+)\Z")
_NODE = re.compile(r"node(.*[0-9])\Z")
_HUGEPAGES = re.compile(r"hugepages-([0-9]+)kB\Z")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


class DiscoveryError(ValueError):
    """A file that makes cAdvisor give up on the whole topology."""


class _GrowingCore:
    """A core while its threads are being collected."""

    def __init__(self, identity: tuple[int | str, ...], socket: int, core: int) -> None:
        self.identity = identity
        self.socket = socket
        self.core = core
        self.threads: list[int] = []
        self.uncore_caches: list[int] = []


def discover(root: Root) -> Machine:
    """The machine as a kubelet sees it. Never raises for broken snapshots: like the kubelet it then sees no CPUs,
    and `warnings` says why."""
    warnings: list[str] = []
    memory = _memory_total(root.read("proc/meminfo"))
    sockets = _socket_count(root)
    try:
        nodes, cpus = _discover_nodes(root, warnings)
    except DiscoveryError as error:
        warnings.append(f"the kubelet sees no CPUs on this machine: {error}")
        nodes, cpus = (), 0
    return Machine(
        nodes=nodes,
        num_cores=cpus,
        num_sockets=sockets,
        memory_capacity=memory,
        **read_facts(root),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _discover_nodes(root: Root, warnings: list[str]) -> tuple[tuple[NUMANode, ...], int]:
    s390 = _is_s390(root)
    directories = [(match[1], name) for name in root.list(NODE_DIR) if (match := _NODE.match(name))]
    if not directories:
        return _nodes_from_packages(root, s390, warnings)
    nodes = []
    for digits, name in directories:
        directory = f"{NODE_DIR}/{name}"
        cores = _collect_cores(root, node_cpus(root, directory), warnings)
        if not cores:
            warnings.append(f"NUMA node {digits} has no CPUs")
        _add_caches(root, cores, s390)
        nodes.append(
            NUMANode(
                id=_integer(digits, directory),
                memory=_node_memory(root, directory),
                hugepages=_hugepages(root, directory),
                distances=_distances(root, directory),
                cores=tuple(_finished(core) for core in cores),
            )
        )
    return tuple(nodes), sum(len(core.threads) for node in nodes for core in node.cores)


def node_cpus(root: Root, directory: str) -> list[int]:
    """CPUs of a NUMA node in byte order of their names; snapshots without the links fall back to the CPU maps."""
    names = [name for name in root.list(directory) if _CPU.match(name)]
    if not names:
        names = sorted(f"cpu{cpu}" for cpu in iter_bits(node_cpu_bits(root, directory)))
        present = set(root.list(CPU_DIR))
        names = [name for name in names if name in present]
    return [int(name[3:]) for name in names]


def _nodes_from_packages(root: Root, s390: bool, warnings: list[str]) -> tuple[tuple[NUMANode, ...], int]:
    """Without NUMA directories every physical package is a node (spec 1.3, fall-back)."""
    cpus = cpu_ids(root)
    if not cpus:
        raise DiscoveryError(f"no CPU is available, cpusPath: /{CPU_DIR}")
    packages: dict[int, list[int]] = {}
    for cpu in cpus:
        text = root.read(f"{CPU_DIR}/cpu{cpu}/topology/physical_package_id")
        if text is None:
            warnings.append(f"CPU {cpu} has no physical_package_id")
            continue
        packages.setdefault(_integer(text, f"cpu{cpu}/topology/physical_package_id"), []).append(cpu)
    nodes = []
    for package, members in sorted(packages.items()):
        cores = _collect_cores(root, members, warnings)
        _add_caches(root, cores, s390)
        nodes.append(NUMANode(id=package, cores=tuple(_finished(core) for core in cores)))
    return tuple(nodes), len(cpus)


def _collect_cores(root: Root, cpus: list[int], warnings: list[str]) -> list[_GrowingCore]:
    online = online_cpus(root)
    cores: list[_GrowingCore] = []
    by_identity: dict[tuple[int | str, ...], _GrowingCore] = {}
    for cpu in cpus:
        if online is not None and not online >> cpu & 1:
            continue
        directory = f"{CPU_DIR}/cpu{cpu}/topology"
        core_text = root.read(f"{directory}/core_id")
        package_text = root.read(f"{directory}/physical_package_id")
        if core_text is None or package_text is None:
            warnings.append(f"CPU {cpu} has no core_id or physical_package_id and is left out")
            continue
        core_id = _integer(core_text, f"{directory}/core_id")
        package = _integer(package_text, f"{directory}/physical_package_id")
        identity: tuple[int | str, ...] = (core_id, package)
        book, drawer = root.read(f"{directory}/book_id"), root.read(f"{directory}/drawer_id")
        if book is not None and drawer is not None:
            identity += (book.strip(), drawer.strip())
        core = by_identity.get(identity)
        if core is None:
            core = by_identity[identity] = _GrowingCore(identity, package, core_id)
            cores.append(core)
        core.threads.append(cpu)
    return cores


def _add_caches(root: Root, cores: list[_GrowingCore], s390: bool) -> None:
    """L3 and higher caches that are neither private to nor shared by the whole node are uncore caches."""
    for core in cores:
        directory = f"{CPU_DIR}/cpu{core.threads[0]}/cache"
        for name in root.list(directory):
            if not name.startswith("index"):
                continue
            cache = _read_cache(root, f"{directory}/{name}", s390)
            if cache is None:
                return
            cache_id, level, shared = cache
            if level > 2 and shared != len(cores) * len(core.threads) and cache_id not in core.uncore_caches:
                core.uncore_caches.append(cache_id)


def _read_cache(root: Root, directory: str, s390: bool) -> tuple[int, int, int] | None:
    """(id, level, number of CPUs that share it), None if any file is missing or broken."""
    texts = {name: root.read(f"{directory}/{name}") for name in ("id", "size", "level", "type", "shared_cpu_map")}
    if s390:
        texts["id"] = "0"
    if any(text is None for text in texts.values()):
        return None
    cache_id, level = (texts["id"] or "").strip(), (texts["level"] or "").strip()
    if not _INTEGER.match(cache_id) or not _INTEGER.match(level):
        return None
    if not re.match(r"[0-9]+K?\Z", (texts["size"] or "").strip()):
        return None
    return int(cache_id), int(level), parse_cpumap(texts["shared_cpu_map"] or "").bit_count()


def _finished(core: _GrowingCore) -> Core:
    return Core(
        socket=core.socket, core=core.core, threads=tuple(core.threads), uncore_caches=tuple(core.uncore_caches)
    )


def _distances(root: Root, directory: str) -> tuple[int, ...] | None:
    text = root.read(f"{directory}/distance")
    if text is None or not text.strip():
        return None
    return tuple(_integer(part, f"{directory}/distance") for part in text.strip().split(" "))


def _node_memory(root: Root, directory: str) -> int:
    return _memory_total(root.read(f"{directory}/meminfo")) or 0


def _memory_total(text: str | None) -> int | None:
    match = re.search(r"MemTotal:\s*([0-9]+) kB", text or "")
    return int(match[1]) * 1024 if match else None


def _hugepages(root: Root, directory: str) -> tuple[HugePages, ...]:
    pools = []
    for name in root.list(f"{directory}/hugepages"):
        match = _HUGEPAGES.match(name)
        count = (root.read(f"{directory}/hugepages/{name}/nr_hugepages") or "").strip()
        if match and count.isdigit():
            pools.append(HugePages(page_size_ki=int(match[1]), num_pages=int(count)))
    return tuple(sorted(pools, key=lambda pool: pool.page_size_ki))


def _socket_count(root: Root) -> int:
    """Distinct physical ids in /proc/cpuinfo, else distinct package ids in sysfs."""
    ids = set(re.findall(r"^physical id\s*:\s*([0-9]+)", root.read("proc/cpuinfo") or "", re.MULTILINE))
    if ids:
        return len(ids)
    online = online_cpus(root)
    packages = set()
    for cpu in cpu_ids(root):
        if online is None or online >> cpu & 1:
            text = (root.read(f"{CPU_DIR}/cpu{cpu}/topology/physical_package_id") or "").strip()
            packages.add(int(text) if _INTEGER.match(text) else 0)
    return len(packages)


def _is_s390(root: Root) -> bool:
    return "IBM/S390" in (root.read("proc/cpuinfo") or "") or root.read(f"{CPU_DIR}/cpu0/topology/book_id") is not None


def _integer(text: str, where: str) -> int:
    text = text.strip()
    if not _INTEGER.match(text):
        raise DiscoveryError(f"{where} reads {text!r}, which is not a number")
    return int(text)
