"""Changes of a machine, and their consequences for pods and node (docs/hotplug.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from podslice.machine.model import Machine, NUMANode
from podslice.values.cpuset import CPUSet


class MachineDelta(msgspec.Struct, frozen=True):
    """CPUs that came online and went offline, NUMA nodes that came and went, and where they differ the bytes of memory
    before and after by NUMA node, and the numbers of huge pages before and after by NUMA node and page size in KiB."""

    online: CPUSet = CPUSet()
    offline: CPUSet = CPUSet()
    nodes_added: tuple[int, ...] = ()
    nodes_gone: tuple[int, ...] = ()
    memory: dict[int, tuple[int, int]] = {}
    hugepages: dict[tuple[int, int], tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = MachineDelta()


def machine_delta(before: Machine, after: Machine) -> MachineDelta:
    """Return the differences of a machine from what it was before."""
    had, has = before.cpus.bits, after.cpus.bits
    old, new = ({node.id: node for node in machine.nodes} for machine in (before, after))
    return MachineDelta(
        CPUSet.from_bits(has & ~had),
        CPUSet.from_bits(had & ~has),
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
        {id: (old[id].memory, new[id].memory) for id in old if id in new and old[id].memory != new[id].memory},
        {(id, size): change for id in old if id in new for size, change in _pages(old[id], new[id])},
    )


def _pages(before: NUMANode, after: NUMANode) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the sizes in KiB of huge pages whose number on a NUMA node changed, with both numbers."""
    had, has = ({pages.page_size_ki: pages.num_pages for pages in node.hugepages} for node in (before, after))
    for size in sorted(had | has):
        was, now = had.get(size, 0), has.get(size, 0)
        if was != now:
            yield size, (was, now)


ConsequenceKind: TypeAlias = Literal[
    "shared-grown",
    "shared-shrunk",
    "only-reserved",
    "no-shared-cpus",
    "reserved-offline",
    "returned",
    "degraded",
    "drain",
    "replaced",
    "shares",
    "shares-in-pod",
    "memory-changed",
    "hugepages-changed",
    "memory-overcommitted",
    "node-added",
    "node-gone",
    "rebuilt",
]


class MachineConsequence(msgspec.Struct, frozen=True):
    """A consequence of a change. `kind` is stable; `pod` is a UID, empty with `container` for what concerns the node.
    `lost` are CPUs that are gone or, of `returned` and `shared-grown`, that are back; `cpus` are those used from now
    on."""

    kind: ConsequenceKind
    text: str
    pod: str = ""
    container: str = ""
    lost: CPUSet = CPUSet()
    cpus: CPUSet = CPUSet()


def without_cpus(machine: Machine, cpus: int) -> Machine:
    """Return the machine as if these CPUs (bits) were not online."""
    if not machine.cpus.bits & cpus:
        return machine
    gone = (machine.cpus.bits & cpus).bit_count()
    kept = tuple(_drop_cpus(node, cpus) for node in machine.nodes)
    sockets = {core.socket for node in kept for core in node.cores}
    return replace(
        machine,
        nodes=kept,
        # An explicit count of the machine's own stays explicit, less the CPUs that are gone.
        num_cores=None if machine.num_cores is None else machine.num_cores - gone,
        num_sockets=None if machine.num_sockets is None else len(sockets),
        offline=CPUSet.from_bits(machine.offline.bits | cpus),
    )


def _drop_cpus(node: NUMANode, cpus: int) -> NUMANode:
    cores = (
        replace(core, threads=tuple(thread for thread in core.threads if not cpus >> thread & 1)) for core in node.cores
    )
    return replace(node, cores=tuple(core for core in cores if core.threads))


def copy_memory(machine: Machine, other: Machine) -> Machine:
    """Return the machine with the memory and huge pages that its NUMA nodes have in `other`."""
    known = {node.id: node for node in other.nodes}
    nodes = tuple(
        replace(node, memory=known[node.id].memory, hugepages=known[node.id].hugepages) if node.id in known else node
        for node in machine.nodes
    )
    return replace(machine, nodes=nodes, memory_capacity=other.memory_capacity, hugepages=other.hugepages)
