"""A machine as plain facts, and the CPU topology that the CPU Manager derives from them.

Two views share one model. What a kubelet sees (cAdvisor's MachineInfo: NUMA nodes, their cores, threads, uncore caches,
memory, huge pages, distances) decides where pods land, so exactly those facts are the required fields. Further facts of
sysfs (offline and isolated CPUs, caches, core types) are kept beside them for people and for validation; they never
change a decision. Readers live in `podslice.host` and the sibling modules; this module does no I/O.

A `CPUTopology` (cpu-topology 1.2) is built once per machine and shared by every simulated node: for each NUMA node,
socket, core and uncore cache the bits of its CPUs, and for each CPU the ids it belongs to. Ids are never renumbered: a
core's id is its lowest thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, TypeAlias

import msgspec

from podslice.values.assumption import Assumption
from podslice.values.cpuset import Bits, CPUSet, bits_of, iter_bits, union
from podslice.values.document import with_header
from podslice.values.errors import PodsliceError
from podslice.values.quantity import plural
from podslice.values.shown import Shown, show


class HugePages(msgspec.Struct, frozen=True, rename="camel"):
    """Pre-allocated huge pages of one size on one NUMA node."""

    page_size_ki: int
    num_pages: int

    @property
    def bytes(self) -> int:
        """Their total size in bytes."""
        return self.page_size_ki * 1024 * self.num_pages


Size: TypeAlias = Annotated[int, msgspec.Meta(extra_json_schema={"type": "string"})]
"""Bytes; a document has a quantity."""
_COUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}
Pools: TypeAlias = Annotated[
    tuple[HugePages, ...],
    msgspec.Meta(extra_json_schema={"anyOf": [_COUNTS, {"type": "array", "items": _COUNTS}]}),
]
"""Pools of huge pages; a document has their numbers by page size, or a list where a size is there twice."""


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
    memory: Size = 0
    hugepages: Pools = ()
    distances: tuple[int, ...] | None = None
    cores: tuple[Core, ...] = ()


class Cache(msgspec.Struct, frozen=True, rename="camel"):
    """A cache shared by `cpus`; `size` in bytes, 0 where unknown."""

    level: int
    type: str
    size: Size
    cpus: CPUSet


class CoreType(msgspec.Struct, frozen=True, rename="camel"):
    """A kind of core on a hybrid machine, e.g. `performance` and `efficiency`; `capacity` 0 where unknown."""

    name: str
    cpus: CPUSet
    capacity: int = 0


class MaxFrequency(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs with the same maximum frequency, in kHz."""

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
    memory: Size = 0
    hugepages: Pools = ()
    distances: tuple[int, ...] | None = None


class PCIDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A PCI function whose NUMA node the kernel knows; `interfaces` are its network interfaces."""

    address: str
    numa_node: int
    interfaces: tuple[str, ...] = ()


class Machine(Shown, msgspec.Struct, frozen=True, rename="camel"):
    """A machine. Only `nodes` is required; counters left at None are derived from it (see the properties).

    Fields from `name` to `assumptions` never change a decision. `groups` and `kernel_nodes` describe the hardware where
    the kubelet's discovery sees less or something else; they are empty for machines from files.
    """

    nodes: tuple[NUMANode, ...]
    num_cores: int | None = None
    """cAdvisor's NumCores: despite the name, logical CPUs."""
    num_sockets: int | None = None
    memory_capacity: int | None = None
    hugepages: Pools | None = None
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
    assumptions: tuple[Assumption, ...] = ()
    """What its description does not say."""
    operating_system: str = "linux"
    """As in a Node's nodeInfo; it decides about pod-level resources and resizes."""

    def __repr__(self) -> str:
        name, nodes = self.name or "machine", plural(len(self.nodes), "NUMA node")
        return f"<Machine {name}: {plural(self.cpu_count, 'CPU')}, {nodes}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the machine as a document of kind Machine, which `load_machine` reads."""
        from podslice.machine.readers.form import to_data  # imports this module

        return with_header("Machine", to_data(self))

    def _repr_svg_(self) -> str | None:
        return show(self, "svg_of")

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
        """Return the groups of one kind, by lowest CPU."""
        return tuple(group for group in self.groups if group.kind == kind)

    @property
    def cpus(self) -> CPUSet:
        """Every CPU listed under a node."""
        return CPUSet(cpu for node in self.nodes for core in node.cores for cpu in core.threads)


# The CPU Manager's topology


class TopologyError(PodsliceError):
    """Raised where discovery fails; the text is upstream's."""


class CPUTopology:
    """CPUs grouped by NUMA node, socket, core and uncore cache. Immutable after construction. All `dict[int, Bits]` map
    an object id to the bits of its CPUs, ids ascending.

    - `cores_nest`: every core lies within one NUMA node and one socket
    - `packages_nest`: every socket lies within one NUMA node, or on machines with more NUMA nodes than sockets every
      NUMA node within one socket
    - `smallest_numa_node`, `smallest_socket`: their number of CPUs
    - `core_size`: number of CPUs of every core, 0 where they differ
    - `first_threads`: the lowest CPU of every core
    - `sibling_step`: distance from it to the other CPU of its core (0: it has none), -1 where that differs between
      cores
    - `numa_mask`: a bit for every NUMA node with CPUs
    - `sockets_of_numa_nodes`: for each NUMA node the sockets it touches, by position
    - `numa_of`, `socket_of`, `core_of`, `uncore_of`: by CPU id, the id of the object it belongs to
    """

    __slots__ = (
        "_children",
        "all_cpus",
        "all_sums",
        "core_of",
        "core_size",
        "cores",
        "cores_nest",
        "first_threads",
        "num_cores",
        "num_cpus",
        "num_sockets",
        "numa_mask",
        "numa_nodes",
        "numa_of",
        "packages_nest",
        "sibling_step",
        "smallest_numa_node",
        "smallest_socket",
        "socket_of",
        "sockets",
        "sockets_of_numa_nodes",
        "uncore_caches",
        "uncore_of",
    )

    def __init__(self, machine: Machine) -> None:
        """Derive the sets of sockets, cores and caches. Raises `TopologyError` as upstream's discovery does."""
        # Upstream's own checks, in its order and words (cpu-topology 1.2).
        if machine.cpu_count == 0:
            raise TopologyError("could not detect number of cpus")
        self.num_cpus = machine.cpu_count
        # As reported, not recounted from the cores: the two can differ (cpu-topology 1.2).
        self.num_sockets = machine.socket_count
        # Counted with repetitions, as upstream does: a core that spans two NUMA nodes counts twice.
        self.num_cores = sum(len(node.cores) for node in machine.nodes)
        self.numa_of: dict[int, int] = {}
        self.socket_of: dict[int, int] = {}
        self.core_of: dict[int, int] = {}
        self.uncore_of: dict[int, int] = {}
        for node in machine.nodes:
            for core in node.cores:
                if not core.threads:
                    raise TopologyError("no cpus provided")
                if len(set(core.threads)) != len(core.threads):
                    raise TopologyError("cpus provided are not unique")
                # The kernel's core ids repeat between packages, so upstream names a core by its lowest CPU.
                core_id = min(core.threads)
                # Without an uncore cache upstream uses the socket's id, which may equal the id of a cache.
                uncore = core.uncore_caches[0] if core.uncore_caches else core.socket
                for cpu in core.threads:
                    self.numa_of[cpu] = node.id
                    self.socket_of[cpu] = core.socket
                    self.core_of[cpu] = core_id
                    self.uncore_of[cpu] = uncore
        self.numa_nodes = group_cpus(self.numa_of)
        self.sockets = group_cpus(self.socket_of)
        self.cores = group_cpus(self.core_of)
        self.uncore_caches = group_cpus(self.uncore_of)
        self.smallest_numa_node = min((cpus.bit_count() for cpus in self.numa_nodes.values()), default=0)
        self.smallest_socket = min((cpus.bit_count() for cpus in self.sockets.values()), default=0)
        sizes = {cpus.bit_count() for cpus in self.cores.values()}
        self.core_size = sizes.pop() if len(sizes) == 1 else 0
        self.first_threads: Bits = bits_of(self.cores)
        steps = {cpus.bit_length() - 1 - core for core, cpus in self.cores.items()}
        self.sibling_step = steps.pop() if len(steps) == 1 and self.core_size in (1, 2) else -1
        self.cores_nest = _nest(self.cores, self.numa_nodes) and _nest(self.cores, self.sockets)
        outer, inner = self.numa_nodes, self.sockets
        self.packages_nest = _nest(inner, outer) if self.num_sockets >= len(self.numa_nodes) else _nest(outer, inner)
        self._children: dict[tuple[str, str], dict[int, tuple[tuple[int, Bits], ...]]] = {}
        # A NUMA id of -1 has no bit in a mask.
        self.numa_mask: Bits = bits_of(node for node in self.numa_nodes if node >= 0)
        self.sockets_of_numa_nodes = {
            node: bits_of(i for i, socket in enumerate(self.sockets.values()) if socket & cpus)
            for node, cpus in self.numa_nodes.items()
        }
        self.all_cpus: Bits = union(self.numa_nodes.values())
        self.all_sums = self.largest_sums(self.all_cpus)
        """How many CPUs one NUMA node has at most, two nodes have at most, and so on."""

    @property
    def cpus_per_core(self) -> int:
        """Machine-wide average, integer division; 0 on a machine without cores."""
        return self.num_cpus // self.num_cores if self.num_cores else 0

    @property
    def cpus_per_socket(self) -> int:
        """Machine-wide average, integer division; 0 without sockets."""
        return self.num_cpus // self.num_sockets if self.num_sockets else 0

    @property
    def cpus_per_uncore(self) -> int:
        """Machine-wide average, integer division; 0 without uncore caches."""
        return self.num_cpus // len(self.uncore_caches) if self.uncore_caches else 0

    def children(self, parent: str, child: str) -> dict[int, tuple[tuple[int, Bits], ...]]:
        """Return for each object of one level the (id, CPUs) of the objects of another that share CPUs with it, ids
        ascending.

        Levels are the attribute names: `numa_nodes`, `sockets`, `cores`, `uncore_caches`.
        """
        table = self._children.get((parent, child))
        if table is None:
            inner: dict[int, Bits] = getattr(self, child)
            outer: dict[int, Bits] = getattr(self, parent)
            table = {
                key: tuple((other, cpus) for other, cpus in inner.items() if cpus & mine) for key, mine in outer.items()
            }
            # Filled on demand: which pairs of levels are needed depends on the policy options.
            self._children[parent, child] = table
        return table

    def fewest_numa_nodes(self, count: int, cpus: Bits) -> int:
        """Return the fewest NUMA nodes that have `count` of `cpus`; the number of all nodes if even they have fewer."""
        return bisect_sums(self.largest_sums(cpus), count)

    def largest_sums(self, cpus: Bits) -> tuple[int, ...]:
        """Return how many of `cpus` one NUMA node has at most, two nodes have at most, and so on."""
        return tuple(accumulate(sorted(((own & cpus).bit_count() for own in self.numa_nodes.values()), reverse=True)))

    def numa_nodes_of(self, cpus: Bits) -> Bits:
        """Return the NUMA mask of the nodes that have a CPU in `cpus`; CPUs without a node (id −1) set no bit."""
        mask = 0
        for node, bits in self.numa_nodes.items():
            if bits & cpus and node >= 0:
                mask |= 1 << node
        return mask

    def cpus_in_numa_nodes(self, mask: Bits) -> Bits:
        """Return the bits of all CPUs of the nodes in a NUMA mask."""
        # A mask of one node is by far the most frequent.
        if mask > 0 and not mask & (mask - 1):
            return self.numa_nodes.get(mask.bit_length() - 1, 0)
        cpus = 0
        for node, bits in self.numa_nodes.items():
            if node >= 0 and mask >> node & 1:
                cpus |= bits
        return cpus

    def is_uncore_aligned(self, cpus: Bits) -> bool:
        """Whether the CPUs are at most one, or all known and in one uncore cache (cpu-topology 1.2)."""
        if cpus & (cpus - 1) == 0:
            return True
        first = self.uncore_of.get((cpus & -cpus).bit_length() - 1)
        return first is not None and cpus & ~self.uncore_caches[first] == 0


# A fleet has few kinds of machines, which all its nodes share.
@lru_cache(maxsize=16)
def cpu_topology(machine: Machine) -> CPUTopology:
    """Return the topology of a machine; equal machines share one. Raises `TopologyError`."""
    return CPUTopology(machine)


def whole_objects(objects: Mapping[int, Bits], cpus: Bits) -> Bits:
    """Return all CPUs of the objects (cores, sockets; bits by id) that have a CPU in `cpus`."""
    return union(bits for bits in objects.values() if bits & cpus)


def _nest(inner: Mapping[int, Bits], outer: Mapping[int, Bits]) -> bool:
    """Whether every inner object lies within one outer object. No two outer objects share a CPU."""
    owner = {cpu: cpus for cpus in outer.values() for cpu in iter_bits(cpus)}
    return all(not cpus & ~owner.get((cpus & -cpus).bit_length() - 1, 0) for cpus in inner.values())


def group_cpus(object_of: Mapping[int, int]) -> dict[int, Bits]:
    """Return the CPUs of each object, ids ascending, from the object id of each CPU."""
    groups: dict[int, Bits] = {}
    for cpu, owner in object_of.items():
        groups[owner] = groups.get(owner, 0) | 1 << cpu
    return dict(sorted(groups.items()))


def bisect_sums(sums: Sequence[int], count: int) -> int:
    """Return how many NUMA nodes have `count` CPUs, given how many one, two, three … of them have; all of them if even
    they have fewer."""
    return min(bisect_left(sums, count) + 1, len(sums))
