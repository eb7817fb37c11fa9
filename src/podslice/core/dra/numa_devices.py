"""ResourceSlices of a machine: one device for each NUMA node, of which claims take CPUs, memory and huge pages
(cluster-integration A.2, A.10).

One device serves claims of any size, so that none needs more than one result; which CPUs a claim gets is decided on the
node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.core.machine.model import Machine, NUMANode
from podslice.core.pod.demand import HUGEPAGES_PREFIX
from podslice.core.values.cpuset import CPUSet
from podslice.core.values.quantity import bytes_text, hugepage_resource

Json = dict[str, Any]
DRIVER = "podslice.io"
NUMA_NODE = "resource.kubernetes.io/numaNode"
_NUMA_NAMES = (NUMA_NODE, "dra.net/numaNode", "dra.cpu/numaNodeID")
"""What drivers call it: a constraint needs one name and type for all."""
_MEMORY_STEP = 64 << 20
"""Firmware and kernels move what a NUMA node has by less."""
_MOST_DEVICES = 128
_PAGES = re.compile(r"hugepages([0-9]+[KMG]i)\Z")


def device_name(numa: int) -> str:
    """The device of a NUMA node; the scheduler of v1.36.2 looks devices up without their driver."""
    return f"podslice-numa-{numa}"


def pool_name(node: str) -> str:
    """The pool of a node."""
    return f"{node}/{DRIVER}"


def capacity_resource(capacity: str) -> str:
    """The resource that a capacity of our devices, without its domain, is an amount of. A capacity's name is a C
    identifier, so huge pages lose their hyphen."""
    pages = _PAGES.match(capacity)
    return capacity if pages is None else f"{HUGEPAGES_PREFIX}{pages[1]}"


class ClaimableAmounts(NamedTuple):
    """What of a machine claims may have: `cpus`, and bytes by NUMA node and resource; None: all there is.
    `whole_cores`: claims take cores with all their threads, of which all must be among `cpus`."""

    cpus: CPUSet | None = None
    memory: Mapping[int, Mapping[str, int]] | None = None
    whole_cores: bool = False


EVERYTHING = ClaimableAmounts()


def machine_slices(machine: Machine, node: str, amounts: ClaimableAmounts = EVERYTHING) -> list[Json]:
    """The slices of a node of that name."""
    devices = list(machine_devices(machine, amounts))
    parts = [devices[first : first + _MOST_DEVICES] for first in range(0, len(devices), _MOST_DEVICES)]
    width = len(f"{max(len(parts) - 1, 0):x}")
    pool = {"name": pool_name(node), "generation": 1, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{index:0{width}x}-{DRIVER}-{node}"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": part},
        }
        for index, part in enumerate(parts)
    ]


def machine_devices(machine: Machine, amounts: ClaimableAmounts) -> Iterator[Json]:
    """A device for each NUMA node that has something for claims."""
    for numa in machine.nodes:
        capacity = dict(_capacity(numa, amounts))
        if capacity:
            yield {
                "name": device_name(numa.id),
                "allowMultipleAllocations": True,
                "attributes": dict(_attributes(machine, numa)),
                "capacity": capacity,
            }


def _attributes(machine: Machine, numa: NUMANode) -> Iterator[tuple[str, Json]]:
    for name in _NUMA_NAMES:
        yield name, {"int": numa.id}
    sockets = {core.socket for core in numa.cores}
    if len(sockets) == 1:
        yield f"{DRIVER}/socket", {"int": sockets.pop()}
    if numa.cores:
        yield f"{DRIVER}/smt", {"bool": any(len(core.threads) > 1 for core in numa.cores)}
    threads = CPUSet(thread for core in numa.cores for thread in core.threads)
    caches = sum(cache.level == 3 and bool(cache.cpus & threads) for cache in machine.caches)
    if caches:
        yield f"{DRIVER}/l3Caches", {"int": caches}
    kinds = [kind.name for kind in machine.core_types if kind.cpus & threads]
    if len(kinds) == 1:
        yield f"{DRIVER}/coreType", {"string": kinds[0]}


def _capacity(numa: NUMANode, amounts: ClaimableAmounts) -> Iterator[tuple[str, Json]]:
    cpus, whole_cores = amounts.cpus, amounts.whole_cores
    cores = [[one for one in core.threads if cpus is None or one in cpus] for core in numa.cores]
    if whole_cores:
        cores = [own if len(own) == len(core.threads) else [] for own, core in zip(cores, numa.cores, strict=True)]
    count = sum(map(len, cores))
    step = max((len(core.threads) for core in numa.cores), default=1) if whole_cores else 1
    if count >= step:
        yield f"{DRIVER}/cpu", _consumable(str(count - count % step), str(step))
    kept = None if amounts.memory is None else amounts.memory.get(numa.id, {})
    memory = numa.memory if kept is None else kept.get("memory", 0)
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
    """Who asks nothing of it gets nothing."""
    limits = {"min": "0", **({"step": step} if step else {})}
    return {"value": value, "requestPolicy": {"default": "0", "validRange": limits}}
