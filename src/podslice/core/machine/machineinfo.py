"""cAdvisor's MachineInfo JSON, the form in which every kubelet publishes its machine (`/api/v1.3/machine`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.core.errors import InputError
from podslice.core.machine.model import Core, HugePages, Machine, NUMANode

Json = dict[str, Any]


def from_machineinfo(data: Mapping[str, Any]) -> Machine:
    """A machine from MachineInfo. Raises `InputError` with the field path."""
    topology = data.get("topology")
    if not isinstance(topology, list):
        raise InputError("has no list", path="topology", remedy="give the JSON of a kubelet's /spec or /machine page")
    try:
        nodes = tuple(_node(node) for node in topology)
        return Machine(
            nodes=nodes,
            num_cores=_optional(data, "num_cores"),
            num_sockets=_optional(data, "num_sockets"),
            memory_capacity=_optional(data, "memory_capacity"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"is not MachineInfo: {type(error).__name__} {error}", path="topology") from None


def _optional(data: Mapping[str, Any], key: str) -> int | None:
    return int(data[key]) if data.get(key) is not None else None


def _node(node: Mapping[str, Any]) -> NUMANode:
    distances = node.get("distances")
    return NUMANode(
        id=int(node["node_id"]),
        memory=int(node.get("memory") or 0),
        hugepages=tuple(
            HugePages(page_size_ki=int(pool["page_size"]), num_pages=int(pool["num_pages"]))
            for pool in node.get("hugepages") or ()
        ),
        distances=None if distances is None else tuple(map(int, distances)),
        cores=tuple(_core(core) for core in node.get("cores") or ()),
    )


def _core(core: Mapping[str, Any]) -> Core:
    caches = core.get("uncore_caches") or ()
    return Core(
        socket=int(core["socket_id"]),
        core=int(core["core_id"]),
        threads=tuple(map(int, core["thread_ids"])),
        uncore_caches=tuple(int(cache["id"]) for cache in caches),
    )


def to_machineinfo(machine: Machine) -> Json:
    """MachineInfo as a kubelet would publish it, as far as our facts reach."""
    pools: dict[int, int] = {}
    for node in machine.nodes:
        for pool in node.hugepages:
            pools[pool.page_size_ki] = pools.get(pool.page_size_ki, 0) + pool.num_pages
    return {
        "num_cores": machine.cpu_count,
        "num_physical_cores": len({(core.socket, core.core) for node in machine.nodes for core in node.cores}),
        "num_sockets": machine.socket_count,
        "memory_capacity": machine.memory,
        "hugepages": [{"page_size": size, "num_pages": pages} for size, pages in sorted(pools.items())],
        "topology": [_node_to_json(node) for node in machine.nodes],
    }


def _node_to_json(node: NUMANode) -> Json:
    return {
        "node_id": node.id,
        "memory": node.memory,
        "hugepages": [{"page_size": pool.page_size_ki, "num_pages": pool.num_pages} for pool in node.hugepages],
        "distances": None if node.distances is None else list(node.distances),
        "cores": [
            {
                "core_id": core.core,
                "thread_ids": list(core.threads),
                "caches": None,
                "uncore_caches": [{"id": cache, "level": 3} for cache in core.uncore_caches] or None,
                "socket_id": core.socket,
            }
            for core in node.cores
        ],
    }
