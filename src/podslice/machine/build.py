"""Build the machine a kubelet would see from hardware facts.

Descriptions of hardware (hwloc XML, synthetic strings, our short form) say in which core, package, NUMA node and L3
cache each CPU is. If the kernel described that hardware, cAdvisor would list it in byte order of the names and keep
only some caches (cpu-topology 1.3). `build_nodes` does the same, so a machine means the same in whatever form it was
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from podslice.machine.model import Cache, Core, HugePages, Machine, NUMANode
from podslice.values.assumption import Assumption
from podslice.values.cpuset import Bits, iter_bits
from podslice.values.errors import InputError

MAX_CPUS = 16384
"""Most CPUs a description may have; Linux supports 8192."""

MAX_NODES, MAX_SOCKETS = 1024, 4096
"""Most NUMA nodes (as many as Linux supports) and packages a description may have."""

MEMORY_PER_CPU = 4 << 30
"""Bytes of memory that are assumed for each CPU where nothing reports the memory."""

_MOST_SHARERS = 2_000_000
"""Most CPUs that all L3 caches together may have; a CPU is in one or two."""

MAX_NODE_ID = (1 << 20) - 1
"""Largest NUMA node id read. Linux has at most 1024 nodes, but without any a kubelet takes package ids for node ids."""


class ReadMachine(NamedTuple):
    """A machine, and the facts that its text does not give. Its amounts of memory are known to `memory_unit` bytes."""

    machine: Machine
    assumed: tuple[Assumption, ...]
    memory_unit: int = 1


class CPUFacts(NamedTuple):
    """Place of one online CPU. `core` is unique within `socket` and `node`."""

    cpu: int
    core: int
    socket: int
    node: int


class NUMANodeFacts(msgspec.Struct, frozen=True):
    """A NUMA node without its CPUs; fields as in `NUMANode`."""

    id: int
    memory: int = 0
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] | None = None


def build_nodes(
    cpus: Iterable[CPUFacts], nodes: Iterable[NUMANodeFacts], l3: Sequence[tuple[int, Bits]] = ()
) -> tuple[NUMANode, ...]:
    """Return the NUMA nodes as cAdvisor lists them. `l3`: the kernel's id and the CPUs of each L3 cache."""
    by_node: dict[int, list[CPUFacts]] = {}
    for facts in cpus:
        by_node.setdefault(facts.node, []).append(facts)
    caches = _caches_by_cpu(l3)
    return tuple(
        NUMANode(
            id=node.id,
            memory=node.memory,
            hugepages=node.hugepages,
            distances=node.distances,
            cores=_cores(by_node.get(node.id, []), caches),
        )
        # cAdvisor lists directories in byte order, so node 10 comes before node 2.
        for node in sorted(nodes, key=lambda node: str(node.id))
    )


_CachesByCPU = Mapping[int, Sequence[tuple[int, int]]]
"""The kernel's id and the number of CPUs of each L3 cache, by CPU."""


def _caches_by_cpu(l3: Sequence[tuple[int, Bits]]) -> _CachesByCPU:
    if sum(cpus.bit_count() for _, cpus in l3) > _MOST_SHARERS:
        raise InputError("has more L3 caches than any machine", remedy="list each cache once")
    found: dict[int, list[tuple[int, int]]] = {}
    for number, cpus in l3:
        size = cpus.bit_count()
        for cpu in iter_bits(cpus):
            found.setdefault(cpu, []).append((number, size))
    return found


def _cores(members: list[CPUFacts], caches: _CachesByCPU) -> tuple[Core, ...]:
    threads: dict[tuple[int, int], list[int]] = {}
    for facts in sorted(members, key=lambda facts: str(facts.cpu)):
        # Core ids are unique within a package only.
        threads.setdefault((facts.socket, facts.core), []).append(facts.cpu)
    return tuple(
        Core(socket, core, tuple(group), _uncore(group, len(threads), caches))
        for (socket, core), group in threads.items()
    )


def _uncore(threads: list[int], cores_in_node: int, caches: _CachesByCPU) -> tuple[int, ...]:
    node_sized = cores_in_node * len(threads)
    # cAdvisor counts a cache as the node's own, not as uncore, if it has as many CPUs as the node: cores times threads
    # of this core.
    return tuple(dict.fromkeys(number for number, size in caches.get(threads[0], ()) if size != node_sized))


def number_l3(caches: Iterable[Cache]) -> list[tuple[int, Bits]]:
    """Return the L3 caches numbered in the order given, with their CPUs."""
    return list(enumerate(cache.cpus.bits for cache in caches if cache.level == 3))


def assume_threads(amounts: Iterable[int], architecture: str) -> tuple[int, str]:
    """Return the threads per core of NUMA nodes with these numbers of CPUs, where nothing reports them, and the line
    about the assumption. `architecture` as Linux or Kubernetes spells it."""
    if architecture in ("arm64", "aarch64"):
        return 1, "one thread in each core, as on most arm64 machines"
    if all(cpus % 2 == 0 for cpus in amounts):
        return 2, "two threads in each core"
    return 1, "one thread in each core, because a number of CPUs is odd"


def check_machine(machine: Machine) -> Machine:
    """Return the machine if it is possible. Raises `InputError` with the field's path."""
    if machine.cpu_count > MAX_CPUS:
        raise InputError(f"{machine.cpu_count} CPUs are more than Linux supports", remedy=f"at most {MAX_CPUS}")
    if len(machine.nodes) > MAX_NODES:
        raise InputError(f"{len(machine.nodes)} NUMA nodes are more than Linux supports", remedy=f"at most {MAX_NODES}")
    if len({core.socket for node in machine.nodes for core in node.cores}) > MAX_SOCKETS:
        raise InputError("has more packages than any machine", remedy=f"at most {MAX_SOCKETS}")
    node_ids: set[int] = set()
    for n, node in enumerate(machine.nodes):
        path = f"nodes[{n}]"
        # -1 is what cAdvisor reports for CPUs without a NUMA node.
        if node.id > MAX_NODE_ID or node.id < -1:
            raise InputError(f"{node.id} is not a NUMA node id", path=f"{path}.id", remedy=f"0 to {MAX_NODE_ID}")
        if node.id in node_ids:
            raise InputError(f"node {node.id} is listed twice", path=f"{path}.id", remedy="give each node its own id")
        node_ids.add(node.id)
        _check_memory(node, path)
        for c, core in enumerate(node.cores):
            _check_threads(core, f"{path}.cores[{c}].threads")
    return machine


def _check_memory(node: NUMANode, path: str) -> None:
    if not 0 <= node.memory < 1 << 63:
        raise InputError(f"{node.memory} is not a memory size", path=f"{path}.memory", remedy="bytes, 0 or more")
    for h, pool in enumerate(node.hugepages):
        if pool.page_size_ki <= 0 or pool.num_pages < 0:
            raise InputError(
                f"{pool.num_pages} pages of {pool.page_size_ki} KiB", path=f"{path}.hugepages[{h}]",
                remedy="a positive page size and 0 or more pages",
            )  # fmt: skip


def _check_threads(core: Core, path: str) -> None:
    """Check a core's threads. A CPU in two cores is odd but possible: a kubelet takes the later one (cpu-topology
    1.2)."""
    if not core.threads:
        raise InputError("a core without threads", path=path, remedy="list its logical CPUs, or drop the core")
    if len(set(core.threads)) != len(core.threads):
        raise InputError("a CPU is listed twice", path=path, remedy="list each CPU once")
    for cpu in core.threads:
        if not 0 <= cpu <= MAX_CPUS:
            raise InputError(f"{cpu} is not a CPU id", path=path, remedy=f"0 to {MAX_CPUS}")
