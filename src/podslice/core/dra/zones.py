"""ResourceSlices of a machine: one device for each NUMA node, of which claims take CPUs, memory and huge pages
(cluster-integration A.2, A.10).

One device serves claims of any size, so that none needs more than one result; which CPUs a claim gets is decided on the
node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podslice.core.machine.model import Machine, NUMANode
from podslice.core.values.cpuset import CPUSet
from podslice.core.values.quantity import BINARY_SI, Quantity, hugepage_resource

Json = dict[str, Any]
DRIVER = "podslice.io"
NUMA_NODE = "resource.kubernetes.io/numaNode"
_NUMA_NAMES = (NUMA_NODE, "dra.net/numaNode", "dra.cpu/numaNodeID")
"""What drivers call it: a constraint needs one name and type for all."""
_MEMORY_STEP = 64 << 20
"""Firmware and kernels move what a NUMA node has by less."""
_MOST_DEVICES = 128


def machine_slices(machine: Machine, node: str, *, cpus: CPUSet | None = None, whole_cores: bool = False) -> list[Json]:
    """The slices of a node of that name. `cpus`: those that claims may have, by default all; `whole_cores`: claims take
    cores with all their threads, of which all must be among `cpus`."""
    devices = list(_devices(machine, cpus, whole_cores=whole_cores))
    parts = [devices[first : first + _MOST_DEVICES] for first in range(0, len(devices), _MOST_DEVICES)]
    width = len(f"{max(len(parts) - 1, 0):x}")
    pool = {"name": f"{node}/{DRIVER}", "generation": 1, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{index:0{width}x}-{DRIVER}-{node}"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": part},
        }
        for index, part in enumerate(parts)
    ]


def _devices(machine: Machine, cpus: CPUSet | None, *, whole_cores: bool) -> Iterator[Json]:
    for numa in machine.nodes:
        capacity = dict(_capacity(numa, cpus, whole_cores=whole_cores))
        if capacity:
            yield {
                "name": f"podslice-numa-{numa.id}",
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
    kinds = [kind.name for kind in machine.core_types if kind.cpus & threads]
    if len(kinds) == 1:
        yield f"{DRIVER}/coreType", {"string": kinds[0]}


def _capacity(numa: NUMANode, cpus: CPUSet | None, *, whole_cores: bool) -> Iterator[tuple[str, Json]]:
    cores = [[one for one in core.threads if cpus is None or one in cpus] for core in numa.cores]
    if whole_cores:
        cores = [own if len(own) == len(core.threads) else [] for own, core in zip(cores, numa.cores, strict=True)]
    count = sum(map(len, cores))
    step = max((len(core.threads) for core in numa.cores), default=1) if whole_cores else 1
    if count >= step:
        yield f"{DRIVER}/cpu", _consumable(str(count - count % step), str(step))
    memory = numa.memory - numa.memory % _MEMORY_STEP
    if memory:
        yield f"{DRIVER}/memory", _consumable(_bytes(memory))
    for pages in numa.hugepages:
        if pages.num_pages:
            size = hugepage_resource(pages.page_size_ki).removeprefix("hugepages-")
            yield f"{DRIVER}/hugepages{size}", _consumable(_bytes(pages.bytes), size)


def _bytes(amount: int) -> str:
    return Quantity.of(amount, BINARY_SI).canonical()


def _consumable(value: str, step: str = "") -> Json:
    """Who asks nothing of it gets nothing."""
    limits = {"min": "0", **({"step": step} if step else {})}
    return {"value": value, "requestPolicy": {"default": "0", "validRange": limits}}
