"""A machine as plain facts.

Two views share one model. What a kubelet sees (cAdvisor's MachineInfo: NUMA nodes, their cores, threads, uncore
caches, memory, huge pages, distances) decides where pods land, so exactly those facts are the required fields. What
sysfs tells beyond that (offline and isolated CPUs, caches, core types) is kept beside it for people and for
validation; it never changes a decision. Readers live in `podslice.host` and the sibling modules; this module does no
I/O.
"""

from __future__ import annotations

import msgspec

from podslice.core.values.cpuset import CPUSet


class HugePages(msgspec.Struct, frozen=True, rename="camel"):
    """Pre-allocated huge pages of one size on one NUMA node."""

    page_size_ki: int
    num_pages: int

    @property
    def bytes(self) -> int:
        return self.page_size_ki * 1024 * self.num_pages


class Core(msgspec.Struct, frozen=True, rename="camel"):
    """A physical core as cAdvisor lists it: hardware socket and core id, its online threads in listing order, and the
    ids of the L3 (or higher) caches that are neither private nor shared by its whole NUMA node."""

    socket: int
    core: int
    threads: tuple[int, ...]
    uncore_caches: tuple[int, ...] = ()


class NUMANode(msgspec.Struct, frozen=True, rename="camel"):
    """A NUMA node. `memory` in bytes (MemTotal); `cores` empty on memory-only nodes; `distances` as the kernel lists
    them (one per online node), None where sysfs has no file."""

    id: int
    memory: int = 0
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] | None = None
    cores: tuple[Core, ...] = ()


class LogicalCPU(msgspec.Struct, frozen=True, rename="camel"):
    """What the hardware says about one CPU, beside the kubelet's view.

    `core`, `socket` and `l3` name a group by its lowest online CPU; `core_id` and `package_id` are the kernel's
    numbers. None where sysfs does not tell.
    """

    cpu: int
    online: bool = True
    core: int | None = None
    socket: int | None = None
    node: int | None = None
    l3: int | None = None
    core_id: int | None = None
    package_id: int | None = None


class CoreType(msgspec.Struct, frozen=True, rename="camel"):
    """A kind of core on a hybrid machine, e.g. `performance` and `efficiency`; `capacity` 0 where unknown."""

    name: str
    cpus: CPUSet
    capacity: int = 0


class Machine(msgspec.Struct, frozen=True, rename="camel"):
    """One machine. Only `nodes` is required; counters left at None are derived from it (see the properties)."""

    nodes: tuple[NUMANode, ...]
    num_cores: int | None = None
    """cAdvisor's NumCores: despite the name, logical CPUs."""
    num_sockets: int | None = None
    memory_capacity: int | None = None
    name: str = ""
    description: str = ""
    source: str = ""
    architecture: str = ""
    logical_cpus: tuple[LogicalCPU, ...] = ()
    offline: CPUSet = CPUSet()
    isolated: CPUSet = CPUSet()
    core_types: tuple[CoreType, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def cpu_count(self) -> int:
        """Logical CPUs as the kubelet counts them."""
        if self.num_cores is not None:
            return self.num_cores
        return sum(len(core.threads) for node in self.nodes for core in node.cores)

    @property
    def socket_count(self) -> int:
        if self.num_sockets is not None:
            return self.num_sockets
        return len({core.socket for node in self.nodes for core in node.cores})

    @property
    def memory(self) -> int:
        """Memory capacity in bytes."""
        if self.memory_capacity is not None:
            return self.memory_capacity
        return sum(node.memory for node in self.nodes)

    @property
    def cpus(self) -> CPUSet:
        """Every CPU listed under a node."""
        return CPUSet(cpu for node in self.nodes for core in node.cores for cpu in core.threads)
