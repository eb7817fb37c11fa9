"""Devices of a machine for claims (cluster-integration A.10).

By default one for each NUMA node, of which claims take CPUs, memory and huge pages: it serves claims of any size, so
that no claim needs more than one result, and the node decides which CPUs a claim gets. The other models offer more than
amounts: single CPUs, or whole caches, NUMA nodes and sockets. There, and where a NUMA node has CPUs of several classes,
memory has a device of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.config.policy import ClaimDevices
from podslice.dra.attributes import device_attributes
from podslice.dra.names import DRIVER, device_name, numa_part
from podslice.machine.model import CPUTopology, Machine, NUMANode, cpu_topology
from podslice.node.plugins.claim_parts import PARTITIONS, ClaimPart, PartKind, claim_parts, claimable_cpus
from podslice.values.cpuset import Bits, CPUSet, ids_of
from podslice.values.quantity import bytes_text, hugepage_resource

Json = dict[str, Any]
_MEMORY_STEP = 64 << 20
"""Memory is offered in these steps: firmware and kernels change the size of a NUMA node by less."""
_NO_CLASSES: Mapping[str, Bits] = {}


class ClaimableAmounts(NamedTuple):
    """The part of a machine that claims may have.

    - `cpus`: their CPUs; None: all
    - `memory`: bytes by NUMA node and resource; None: all
    - `whole_cores`: claims take cores with all their threads, of which all must be among `cpus`
    - `classes`: the CPUs of each CPU class of the policy
    - `devices`: what one device stands for
    - `numa_list`: the standard attribute `numaNode` is a list of near NUMA nodes (KEP-6072)
    - `first`: NUMA nodes that are offered before others, in this order; a scheduler takes the first device that serves
    """

    cpus: CPUSet | None = None
    memory: Mapping[int, Mapping[str, int]] | None = None
    whole_cores: bool = False
    classes: Mapping[str, Bits] = _NO_CLASSES
    devices: ClaimDevices = "perNUMANode"
    first: tuple[int, ...] = ()
    numa_list: bool = False


EVERYTHING = ClaimableAmounts()


class OfferedPart(NamedTuple):
    """A device, and the part of the machine that it stands for."""

    device: Json
    part: ClaimPart


def machine_devices(machine: Machine, amounts: ClaimableAmounts) -> list[OfferedPart]:
    """Return the devices of a machine, in the order in which a scheduler shall look at them."""
    return list(_Offering(machine, amounts).devices())


class _Offering:
    def __init__(self, machine: Machine, amounts: ClaimableAmounts) -> None:
        self._machine = machine
        self._amounts = amounts
        self._topology: CPUTopology = cpu_topology(machine)
        cpus = self._topology.all_cpus if amounts.cpus is None else amounts.cpus.bits
        self._cpus = claimable_cpus(cpus, self._topology, reserved=0, strict=False, whole_cores=amounts.whole_cores)
        self._parts = claim_parts(machine, self._topology, self._cpus, amounts.classes)

    def devices(self) -> Iterator[OfferedPart]:
        if self._amounts.devices != "perNUMANode":
            single: PartKind = "core" if self._amounts.whole_cores else "cpu"
            for kind in PARTITIONS if self._amounts.devices == "partitions" else (single,):
                for name, part in self._parts.items():
                    if part.kind == kind:
                        yield self._exclusive_device(name, part)
        # The scheduler walks devices in listed order, so this order is all the influence a driver has.
        rank = {numa: place for place, numa in enumerate(self._amounts.first)}
        for numa in sorted(self._machine.nodes, key=lambda one: rank.get(one.id, len(rank))):
            yield from self._numa_node_devices(numa)

    def _exclusive_device(self, name: str, part: ClaimPart) -> OfferedPart:
        """Return a device for one claim, which gets all that it stands for."""
        published = self._attributes(part.cpus)
        if part.kind in PARTITIONS:
            published[f"{DRIVER}/partition"] = {"string": part.kind}
        else:
            published[f"{DRIVER}/{part.kind}"] = {"int": part.id}
        capacity = {f"{DRIVER}/cpu": {"value": str(part.cpus.bit_count())}}
        return OfferedPart({"name": device_name(name), "attributes": published, "capacity": capacity}, part)

    def _numa_node_devices(self, numa: NUMANode) -> Iterator[OfferedPart]:
        """Yield the shared devices of a NUMA node, one for each class where its CPUs are of several."""
        members = self._topology.numa_nodes.get(numa.id, 0) & self._cpus
        classes = {name: part for name, part in self._parts.items() if part.kind == "class" and part.id == numa.id}
        if self._amounts.devices != "perNUMANode":
            members = 0
        elif len(classes) > 1:
            for name, part in classes.items():
                yield self._shared_device(name, part, dict(self._cpu_capacity(numa, part.cpus)))
            members = 0
        capacity = dict(self._cpu_capacity(numa, members)) | dict(self._memory_capacity(numa))
        if capacity:
            part = ClaimPart("numaNode", numa.id, members)
            yield self._shared_device(numa_part(numa.id), part, capacity)

    def _shared_device(self, name: str, part: ClaimPart, capacity: Json) -> OfferedPart:
        """Return a device that serves many claims; one that requests nothing of a capacity gets nothing of it."""
        published = self._describe({part.id}, part.cpus)
        named = {"name": device_name(name), "allowMultipleAllocations": True}
        return OfferedPart({**named, "attributes": published, "capacity": capacity}, part)

    def _attributes(self, cpus: Bits) -> Json:
        numa_nodes = set(ids_of(self._topology.numa_nodes_of(cpus)))
        return self._describe(numa_nodes, cpus)

    def _describe(self, numa_nodes: set[int], cpus: Bits) -> Json:
        amounts = self._amounts
        return device_attributes(self._machine, numa_nodes, cpus, amounts.classes, numa_list=amounts.numa_list)

    def _cpu_capacity(self, numa: NUMANode, cpus: Bits) -> Iterator[tuple[str, Json]]:
        step = max((len(core.threads) for core in numa.cores), default=1) if self._amounts.whole_cores else 1
        count = cpus.bit_count()
        if count >= step:
            # Steps count from the minimum of 0, so a claim rounds up to whole cores, and the value must be a multiple.
            yield f"{DRIVER}/cpu", _consumable(str(count - count % step), str(step))

    def _memory_capacity(self, numa: NUMANode) -> Iterator[tuple[str, Json]]:
        given = self._amounts.memory
        kept = None if given is None else given.get(numa.id, {})
        memory = numa.memory if kept is None else kept.get("memory", 0)
        # Another value would need a new generation of the pool after every boot.
        memory -= memory % _MEMORY_STEP
        if memory:
            yield f"{DRIVER}/memory", _consumable(bytes_text(memory))
        for pages in numa.hugepages:
            resource = hugepage_resource(pages.page_size_ki)
            size = resource.removeprefix("hugepages-")
            room = pages.bytes if kept is None else kept.get(resource, 0)
            room -= room % (pages.page_size_ki << 10)
            if room:
                yield f"{DRIVER}/hugepages{size}", _consumable(bytes_text(room), size)


def _consumable(value: str, step: str = "") -> Json:
    # Without a default of 0, a claim for CPUs alone would take all the memory (cluster-integration A.6).
    limits = {"min": "0", **({"step": step} if step else {})}
    return {"value": value, "requestPolicy": {"default": "0", "validRange": limits}}
