"""Attributes of devices of CPUs and memory, for selectors and constraints of claims (cluster-integration A.10).

A constraint over devices of several drivers needs one name and type for all, so the NUMA node is published under every
name that drivers use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.dra.names import DRIVER, NUMA_NODE
from podslice.machine.model import Machine
from podslice.node.plugins.claim_parts import l3_caches
from podslice.values.cpuset import Bits

Json = dict[str, Any]
# `matchAttribute` needs equal names and types across drivers; dra.net and dra.cpu publish the older names
# (cluster-integration A.1.2).
_NUMA_NAMES = (NUMA_NODE, "dra.net/numaNode", "dra.cpu/numaNodeID")


def device_attributes(
    machine: Machine, numa_nodes: set[int], cpus: Bits, classes: Mapping[str, Bits], *, numa_list: bool = False
) -> Json:
    """Return the attributes of a device in these NUMA nodes with these CPUs, 0 for one of memory only. An attribute
    that differs within the device is left out. `numa_list`: the standard attribute of the NUMA node is a list
    (`near_numa_nodes`)."""
    found = dict(_iter_attributes(machine, numa_nodes, cpus, classes))
    if numa_list and NUMA_NODE in found:
        found[NUMA_NODE] = {"ints": near_numa_nodes(machine, min(numa_nodes))}
    return found


def near_numa_nodes(machine: Machine, numa: int) -> list[int]:
    """Return a NUMA node and, behind it, the others of its socket that are nearest by the machine's distances: the list
    form of the standard attribute `numaNode` (KEP-6072, in Kubernetes 1.37, with the gate DRAListTypeAttributes)."""
    ids = [node.id for node in machine.nodes]
    sockets = {node.id: {core.socket for core in node.cores} for node in machine.nodes}
    own = next(node for node in machine.nodes if node.id == numa)
    distances = dict(zip(ids, own.distances or (), strict=False))
    beside = {one: distances[one] for one in distances if one != numa and sockets[one] & sockets[numa]}
    least = min(beside.values(), default=0)
    return [numa, *(one for one in sorted(beside) if beside[one] == least)]


def _iter_attributes(
    machine: Machine, numa_nodes: set[int], cpus: Bits, classes: Mapping[str, Bits]
) -> Iterator[tuple[str, Json]]:
    if len(numa_nodes) == 1:
        for name in _NUMA_NAMES:
            yield name, {"int": min(numa_nodes)}
    of_nodes = [core for numa in machine.nodes if numa.id in numa_nodes for core in numa.cores]
    cores = [core for core in of_nodes if any(cpus >> thread & 1 for thread in core.threads)]
    sockets = {core.socket for core in cores or of_nodes}
    if len(sockets) == 1:
        yield f"{DRIVER}/socket", {"int": sockets.pop()}
    if not cores:
        return
    yield f"{DRIVER}/smt", {"bool": any(len(core.threads) > 1 for core in cores)}
    caches = [first for first, members in l3_caches(machine).items() if members & cpus]
    if caches:
        yield f"{DRIVER}/l3Caches", {"int": len(caches)}
    # The id says which cache it is, which only means something for a device within one.
    if len(caches) == 1:
        yield f"{DRIVER}/l3", {"int": caches[0]}
    kinds = {kind.name: kind.cpus.bits for kind in machine.core_types}
    for name, groups in (("coreType", kinds), ("class", classes)):
        found = [one for one, members in groups.items() if members & cpus]
        if len(found) == 1:
            yield f"{DRIVER}/{name}", {"string": found[0]}
