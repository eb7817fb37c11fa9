"""Regular machines in a few words: so many sockets, NUMA nodes, cores, threads (our short YAML, hwloc's synthetic
strings). A shape is expanded into a full `Machine`; one that no simple shape describes stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from podslice.core.errors import InputError
from podslice.core.machine.model import Core, CoreType, HugePages, Machine, NUMANode
from podslice.core.values.cpuset import CPUSet
from podslice.core.values.quantity import Quantity, QuantityError

MAX_CPUS = 65536


class CoreGroup(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Cores of one type inside each NUMA node, for hybrid machines."""

    name: str
    cores: int
    threads_per_core: int = 1
    capacity: int = 0


class MemoryNodes(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """NUMA nodes with memory (or a GPU behind them) but without CPUs."""

    count: int
    memory: str = "0"


class Shape(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The short form. `numbering`: `linux` gives all first threads ids before any second thread, as x86 and ARM
    firmware do; `consecutive` gives the threads of a core adjacent ids (POWER, hybrid x86, hwloc's default).

    `distances` are local, same-socket and other-socket distance, or `matrix` in full.
    """

    name: str = ""
    description: str = ""
    source: str = ""
    architecture: str = ""
    sockets: int = 1
    numa_per_socket: int = 1
    cores_per_numa: int = 0
    core_groups: tuple[CoreGroup, ...] = ()
    threads_per_core: int = 1
    numbering: str = "linux"
    memory_per_numa: str = "1Gi"
    hugepages: dict[str, int] = {}
    cores_per_l3: int = msgspec.field(default=0, name="coresPerL3")
    distances: dict[str, int] = {}
    matrix: tuple[tuple[int, ...], ...] = ()
    node_ids: tuple[int, ...] = ()
    memory_nodes: MemoryNodes | None = None
    cpu_order: tuple[int, ...] = ()


def expand(shape: Shape) -> Machine:
    """The machine a shape describes. Raises `InputError` that names the field."""
    groups = shape.core_groups or (CoreGroup("", shape.cores_per_numa, shape.threads_per_core),)
    _check(shape, groups)
    per_numa = sum(group.cores for group in groups)
    cpu_nodes = shape.sockets * shape.numa_per_socket
    extra = shape.memory_nodes.count if shape.memory_nodes else 0
    node_ids = shape.node_ids or tuple(range(cpu_nodes + extra))
    if len(node_ids) != cpu_nodes + extra:
        raise InputError(f"{len(node_ids)} ids for {cpu_nodes + extra} NUMA nodes", path="nodeIds")
    threads = _number_cpus(shape, groups, cpu_nodes)
    pages = _hugepages(shape)
    memory = _bytes(shape.memory_per_numa, "memoryPerNuma")
    nodes = []
    for position in range(cpu_nodes):
        socket = position // shape.numa_per_socket
        cores = tuple(
            Core(
                socket=socket,
                core=(position % shape.numa_per_socket) * per_numa + index,
                threads=threads[position * per_numa + index],
                uncore_caches=_l3(shape, position * per_numa + index, per_numa),
            )
            for index in range(per_numa)
        )
        nodes.append(NUMANode(id=node_ids[position], memory=memory, hugepages=pages, cores=cores))
    if shape.memory_nodes:
        size = _bytes(shape.memory_nodes.memory, "memoryNodes.memory")
        nodes += [NUMANode(id=node_ids[cpu_nodes + i], memory=size) for i in range(extra)]
    rows = _distances(shape, len(nodes), cpu_nodes)
    return Machine(
        nodes=tuple(msgspec.structs.replace(node, distances=row) for node, row in zip(nodes, rows, strict=True)),
        name=shape.name,
        description=shape.description,
        source=shape.source,
        architecture=shape.architecture,
        core_types=_core_types(shape, threads, per_numa),
    )


def _check(shape: Shape, groups: Sequence[CoreGroup]) -> None:
    for name, value in (("sockets", shape.sockets), ("numaPerSocket", shape.numa_per_socket)):
        if value < 1:
            raise InputError(f"{value} is not a positive number", path=name)
    for group in groups:
        if group.cores < 1 or group.threads_per_core < 1:
            raise InputError("a NUMA node needs at least one core with one thread", path="coresPerNuma")
    cpus = shape.sockets * shape.numa_per_socket * sum(g.cores * g.threads_per_core for g in groups)
    if cpus > MAX_CPUS:
        raise InputError(f"{cpus} CPUs are more than {MAX_CPUS}", path="coresPerNuma")
    if shape.numbering not in ("linux", "consecutive"):
        raise InputError(f"unknown numbering {shape.numbering!r}", path="numbering", remedy="linux or consecutive")


def _number_cpus(shape: Shape, groups: Sequence[CoreGroup], cpu_nodes: int) -> list[tuple[int, ...]]:
    """Thread ids of every core, in machine order."""
    widths = [group.threads_per_core for _ in range(cpu_nodes) for group in groups for _ in range(group.cores)]
    total = sum(widths)
    if shape.cpu_order and sorted(shape.cpu_order) != list(range(total)):
        raise InputError(f"is not a permutation of 0 to {total - 1}", path="cpuOrder")
    order = shape.cpu_order or range(total)
    if shape.numbering == "consecutive" or shape.cpu_order:
        starts = [sum(widths[:0])]
        for width in widths[:-1]:
            starts.append(starts[-1] + width)
        return [tuple(order[start + t] for t in range(width)) for start, width in zip(starts, widths, strict=True)]
    threads: list[list[int]] = [[] for _ in widths]
    next_id = 0
    for level in range(max(widths)):
        for core, width in enumerate(widths):
            if level < width:
                threads[core].append(next_id)
                next_id += 1
    return [tuple(core) for core in threads]


def _l3(shape: Shape, core: int, per_numa: int) -> tuple[int, ...]:
    size = shape.cores_per_l3
    return (core // size,) if size and size != per_numa else ()


def _hugepages(shape: Shape) -> tuple[HugePages, ...]:
    pools = (
        HugePages(page_size_ki=_bytes(size, f"hugepages[{size}]") // 1024, num_pages=count)
        for size, count in shape.hugepages.items()
    )
    return tuple(sorted(pools, key=lambda pool: pool.page_size_ki))


def _bytes(text: str, path: str) -> int:
    try:
        return Quantity.parse(text).value()
    except QuantityError:
        raise InputError(f"{text!r} is not a size", path=path, remedy="write for example 64Gi") from None


def _distances(shape: Shape, count: int, cpu_nodes: int) -> list[tuple[int, ...] | None]:
    if shape.matrix:
        if len(shape.matrix) != count or any(len(row) != count for row in shape.matrix):
            raise InputError(f"needs {count} rows of {count} distances", path="matrix")
        return list(shape.matrix)
    local = shape.distances.get("local", 10)
    near = shape.distances.get("socket", 12)
    far = shape.distances.get("remote", 21)
    attached = shape.distances.get("memoryNode", far)
    per_socket = shape.numa_per_socket

    def distance(one: int, other: int) -> int:
        if one == other:
            return local
        if one >= cpu_nodes or other >= cpu_nodes:
            return attached
        return near if one // per_socket == other // per_socket else far

    return [tuple(distance(one, other) for other in range(count)) for one in range(count)]


def _core_types(shape: Shape, threads: Sequence[tuple[int, ...]], per_numa: int) -> tuple[CoreType, ...]:
    types = []
    first = 0
    for group in shape.core_groups:
        members = [i for i in range(len(threads)) if first <= i % per_numa < first + group.cores]
        cpus = CPUSet(cpu for i in members for cpu in threads[i])
        types.append(CoreType(name=group.name, cpus=cpus, capacity=group.capacity))
        first += group.cores
    return tuple(types)


def shape_from_dict(data: dict[str, Any]) -> Shape:
    """Decode the short form. Raises `InputError` with the field path."""
    try:
        return msgspec.convert(data, Shape)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        raise InputError(text[:1].lower() + text[1:], path=path.rstrip("`")) from None
