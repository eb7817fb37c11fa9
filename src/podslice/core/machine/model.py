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
        """Their size altogether, in bytes."""
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


class Cache(msgspec.Struct, frozen=True, rename="camel"):
    """A cache shared by `cpus`; `size` in bytes, 0 where unknown."""

    level: int
    type: str
    size: int
    cpus: CPUSet


class CoreType(msgspec.Struct, frozen=True, rename="camel"):
    """A kind of core on a hybrid machine, e.g. `performance` and `efficiency`; `capacity` 0 where unknown."""

    name: str
    cpus: CPUSet
    capacity: int = 0


class MaxFrequency(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs that clock as high as each other at most, in kHz."""

    khz: int
    cpus: CPUSet


class CPUGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Online CPUs that share a piece of hardware. `kind` is `core`, `cluster`, `die`, `package`, `book` or `drawer`;
    `id` is the kernel's, which need not be unique on the machine."""

    kind: str
    id: int
    cpus: CPUSet


class KernelNode(msgspec.Struct, frozen=True, rename="camel"):
    """A NUMA node as the kernel (not cAdvisor) lists it; fields as in `NUMANode`, `cpus` are the online ones."""

    id: int
    cpus: CPUSet
    memory: int = 0
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] | None = None


class PCIDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A PCI function of which the kernel knows the NUMA node; `interfaces` are its network interfaces."""

    address: str
    numa_node: int
    interfaces: tuple[str, ...] = ()


class Machine(msgspec.Struct, frozen=True, rename="camel"):
    """One machine. Only `nodes` is required; counters left at None are derived from it (see the properties).

    Fields from `name` on never change a decision. `groups` and `kernel_nodes` tell what the hardware looks like where
    the kubelet's discovery sees less or something else; they are empty for machines that were written down by hand.
    """

    nodes: tuple[NUMANode, ...]
    num_cores: int | None = None
    """cAdvisor's NumCores: despite the name, logical CPUs."""
    num_sockets: int | None = None
    memory_capacity: int | None = None
    hugepages: tuple[HugePages, ...] | None = None
    """Huge pages of the whole machine, which a kubelet reports as capacity."""
    name: str = ""
    description: str = ""
    source: str = ""
    architecture: str = ""
    offline: CPUSet = CPUSet()
    isolated: CPUSet = CPUSet()
    caches: tuple[Cache, ...] = ()
    core_types: tuple[CoreType, ...] = ()
    max_frequencies: tuple[MaxFrequency, ...] = ()
    """The highest first; none where all CPUs are alike or nothing is known."""
    nohz_full: CPUSet = CPUSet()
    """CPUs without the kernel's tick while they run one thread (`nohz_full=`)."""
    rcu_nocbs: CPUSet = CPUSet()
    """CPUs whose RCU callbacks run elsewhere (`rcu_nocbs=`, and all of `nohz_full=`)."""
    groups: tuple[CPUGroup, ...] = ()
    kernel_nodes: tuple[KernelNode, ...] = ()
    pci_devices: tuple[PCIDevice, ...] = ()
    """Disks, network cards, GPUs and accelerators, by address."""
    warnings: tuple[str, ...] = ()

    @property
    def cpu_count(self) -> int:
        """Logical CPUs as the kubelet counts them."""
        if self.num_cores is not None:
            return self.num_cores
        return sum(len(core.threads) for node in self.nodes for core in node.cores)

    @property
    def socket_count(self) -> int:
        """Sockets as the kubelet counts them."""
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
    def all_hugepages(self) -> tuple[HugePages, ...]:
        """Huge pages of the whole machine: `hugepages`, or the sums over the nodes, smallest size first."""
        if self.hugepages is not None:
            return self.hugepages
        pages: dict[int, int] = {}
        for node in self.nodes:
            for pool in node.hugepages:
                pages[pool.page_size_ki] = pages.get(pool.page_size_ki, 0) + pool.num_pages
        return tuple(HugePages(size, count) for size, count in sorted(pages.items()))

    def groups_of(self, kind: str) -> tuple[CPUGroup, ...]:
        """The groups of one kind, by lowest CPU."""
        return tuple(group for group in self.groups if group.kind == kind)

    @property
    def cpus(self) -> CPUSet:
        """Every CPU listed under a node."""
        return CPUSet(cpu for node in self.nodes for core in node.cores for cpu in core.threads)
