"""cAdvisor's MachineInfo JSON, the form in which a kubelet itself passes its machine around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from podslice.machine.build import check_machine
from podslice.machine.model import Cache, Core, HugePages, Machine, NUMANode
from podslice.values.cpuset import Bits, CPUSet, bits_of
from podslice.values.errors import InputError

Json = dict[str, Any]
_REMEDY = "give cAdvisor's MachineInfo as JSON"


def from_machineinfo(data: Mapping[str, Any], source: str = "") -> Machine:
    """Return a machine from MachineInfo.

    Facts of other kinds (file systems, networks) are ignored; `null` stands for an empty list as Go writes it, and a
    memory capacity of 0 (cAdvisor could not read it) for unknown. Raises `InputError` with the field's path.
    """
    reader = _MachineInfoReader(source)
    topology = reader.objects(data, "topology", "")
    nodes = tuple(reader.node(node, f"topology[{n}]") for n, node in enumerate(topology))
    machine = Machine(
        nodes=nodes,
        num_cores=reader.number(data, "num_cores", ""),
        num_sockets=reader.number(data, "num_sockets", ""),
        memory_capacity=reader.number(data, "memory_capacity", "") or None,
        hugepages=reader.hugepages(data, "") if "hugepages" in data else None,
        source=source,
    )
    try:
        check_machine(machine)
    except InputError as error:
        raise error.at(source=source) from None
    return msgspec.structs.replace(machine, caches=reader.caches(topology, nodes))


class _MachineInfoReader:
    def __init__(self, source: str) -> None:
        self.source = source

    def number(self, data: Mapping[str, Any], key: str, path: str) -> int:
        value = data.get(key, 0)
        # In Python a bool is an int; in JSON it is another type.
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._error(path, key, f"{value!r} is not a whole number")
        return value

    def numbers(self, data: Mapping[str, Any], key: str, path: str) -> tuple[int, ...]:
        values = data.get(key) or ()
        if not isinstance(values, list | tuple) or any(
            isinstance(value, bool) or not isinstance(value, int) for value in values
        ):
            raise self._error(path, key, "is not a list of whole numbers")
        return tuple(values)

    def objects(self, data: Mapping[str, Any], key: str, path: str) -> list[Mapping[str, Any]]:
        values = data.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self._error(path, key, "is not a list of objects")
        return values

    def _error(self, path: str, key: str, problem: str) -> InputError:
        return InputError(problem, source=self.source, path=f"{path}.{key}" if path else key, remedy=_REMEDY)

    def node(self, data: Mapping[str, Any], path: str) -> NUMANode:
        distances = None if data.get("distances") is None else self.numbers(data, "distances", path)
        cores = self.objects(data, "cores", path)
        return NUMANode(
            id=self.number(data, "node_id", path),
            memory=self.number(data, "memory", path),
            hugepages=self.hugepages(data, path),
            distances=distances,
            cores=tuple(self._core(core, f"{path}.cores[{c}]") for c, core in enumerate(cores)),
        )

    def hugepages(self, data: Mapping[str, Any], path: str) -> tuple[HugePages, ...]:
        return tuple(
            HugePages(self.number(pool, "page_size", path), self.number(pool, "num_pages", path))
            for pool in self.objects(data, "hugepages", path)
        )

    def _core(self, data: Mapping[str, Any], path: str) -> Core:
        return Core(
            socket=self.number(data, "socket_id", path),
            core=self.number(data, "core_id", path),
            threads=self.numbers(data, "thread_ids", path),
            uncore_caches=tuple(self.number(c, "id", path) for c in self.objects(data, "uncore_caches", path)),
        )

    def caches(self, topology: Iterable[Mapping[str, Any]], nodes: Iterable[NUMANode]) -> tuple[Cache, ...]:
        """Return caches of cores, of nodes, and uncore caches with the CPUs of all cores that name them."""
        found: dict[tuple[int, str, int, int, str], Bits] = {}

        def add(listed: Mapping[str, Any], key: str, owner: str, cpus: Iterable[int]) -> None:
            for cache in self.objects(listed, key, "topology"):
                level = self.number(cache, "level", "topology")
                number = self.number(cache, "id", "topology")
                size = self.number(cache, "size", "topology")
                # Cache ids are unique within a level and type at best, so private caches are kept apart by their core.
                where = (level, str(cache.get("type", "")).capitalize(), size, number, owner)
                found[where] = found.get(where, 0) | bits_of(cpus)

        for data, node in zip(topology, nodes, strict=True):
            for listed, core in zip(self.objects(data, "cores", "topology"), node.cores, strict=True):
                add(listed, "caches", f"core {min(core.threads, default=0)}", core.threads)
                add(listed, "uncore_caches", "uncore", core.threads)
            add(data, "caches", f"node {node.id}", (cpu for core in node.cores for cpu in core.threads))
        caches = [
            Cache(level, kind, size, CPUSet.from_bits(cpus))
            for (level, kind, size, _, _), cpus in found.items()
            if cpus
        ]
        return tuple(sorted(caches, key=lambda cache: (cache.level, min(cache.cpus), cache.type)))


def to_machineinfo(machine: Machine) -> Json:
    """Return MachineInfo with everything a kubelet's managers read, and the caches as far as they are known.

    As in cAdvisor, `num_cores` counts logical CPUs and `num_physical_cores` core ids, which sockets have in common.
    """
    return {
        "num_cores": machine.cpu_count,
        "num_physical_cores": len({core.core for node in machine.nodes for core in node.cores}),
        "num_sockets": machine.socket_count,
        "memory_capacity": machine.memory,
        "hugepages": _hugepages(machine.all_hugepages),
        # Go writes an empty slice as null.
        "topology": [_node(node, machine.caches) for node in machine.nodes] or None,
    }


def _hugepages(pools: Iterable[HugePages]) -> list[Json] | None:
    return [{"page_size": pool.page_size_ki, "num_pages": pool.num_pages} for pool in pools] or None


def _node(node: NUMANode, caches: tuple[Cache, ...]) -> Json:
    # cAdvisor lists a cache of all cores of a node there, and other shared ones as uncore caches of each core.
    members = bits_of(cpu for core in node.cores if not core.uncore_caches for cpu in core.threads)
    return {
        "node_id": node.id,
        "memory": node.memory,
        "hugepages": _hugepages(node.hugepages),
        "cores": [_core(core, caches) for core in node.cores] or None,
        "caches": [_cache(i, c) for i, c in _of_level(caches, 3, 9) if members and c.cpus.bits == members] or None,
        "distances": None if node.distances is None else list(node.distances),
    }


def _core(core: Core, caches: tuple[Cache, ...]) -> Json:
    first = core.threads[0]
    shared = [cache for _, cache in _of_level(caches, 3, 9) if first in cache.cpus]
    uncore = [
        # Only the id is certain: the managers group cores by it, and size and type may be unknown.
        _cache(number, shared[place] if place < len(shared) else Cache(3, "Unified", 0, CPUSet()))
        for place, number in enumerate(core.uncore_caches)
    ]
    private = [_cache(i, c) for i, c in _of_level(caches, 1, 2) if first in c.cpus]
    return {
        "core_id": core.core,
        "thread_ids": list(core.threads),
        "caches": private or None,
        "uncore_caches": uncore or None,
        "socket_id": core.socket,
    }


def _of_level(caches: tuple[Cache, ...], lowest: int, highest: int) -> list[tuple[int, Cache]]:
    """Return caches between two levels, numbered within their level and type."""
    counts: dict[tuple[int, str], int] = {}
    numbered = []
    for cache in caches:
        if lowest <= cache.level <= highest:
            key = (cache.level, cache.type)
            numbered.append((counts.setdefault(key, 0), cache))
            counts[key] += 1
    return numbered


def _cache(number: int, cache: Cache) -> Json:
    return {"id": number, "size": cache.size, "type": cache.type or "Unified", "level": cache.level}
