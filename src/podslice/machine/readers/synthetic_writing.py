"""A machine as a synthetic description."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from podslice.machine.build import number_l3
from podslice.machine.model import CPUTopology, Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import Bits, iter_bits
from podslice.values.errors import InputError

_TURNS = (("core",), ("numa", "core"), ("pack", "core"), ("pack", "numa", "core"), ("numa", "pack", "core"))
"""Levels that take turns on real machines."""


def to_synthetic(machine: Machine) -> str:
    """Return the machine as a synthetic description; read back it gives a kubelet the same NUMA nodes, packages, cores
    and caches. Raises `InputError` with the reason when the machine is not regular enough. See
    `facts_lost_in_synthetic`."""
    if machine.cpu_count == 0 or not machine.cpus:
        raise _irregular_error("it has no CPUs")
    memory_only = sorted(node.id for node in machine.nodes if not node.cores)
    if memory_only:
        raise _irregular_error(f"NUMA nodes without CPUs: {', '.join(map(str, memory_only))}")
    topology = CPUTopology(machine)
    words: list[str] = []
    kinds: list[str] = []
    parents = [topology.all_cpus]
    for kind, groups in _levels_from_outside(machine, topology):
        children = [_children(kind, parent, groups) for parent in parents]
        if not all(children):
            raise _irregular_error(f"an object without any {kind} object inside")
        parents = [child for below in children for child in below]
        ids = [groups[child] for child in parents]
        words.append(f"{kind}:{_list_text([len(below) for below in children])}{_attribute_text(kind, machine, ids)}")
        kinds.append(kind)
    words.append(f"pu:{_list_text([core.bit_count() for core in parents])}")
    texts = (f"{' '.join(words)}(indexes={numbering})" for numbering in _numberings(kinds, parents))
    # Each is read back, also because hwloc's rules for cache levels can change what a kubelet sees.
    outline = _outline(topology)
    for text in texts:
        if _outline(CPUTopology(from_synthetic(text))) == outline:
            return text
    raise _irregular_error("its L3 caches are not all the kubelet's uncore caches")


def facts_lost_in_synthetic(machine: Machine) -> list[str]:
    """Return the facts of the machine that its synthetic description leaves out, one phrase each."""
    lost = {
        "huge pages": any(pool.num_pages for node in machine.nodes for pool in node.hugepages),
        "NUMA distances": any(node.distances for node in machine.nodes) and len(machine.nodes) > 1,
        "offline CPUs": bool(machine.offline),
        "isolated CPUs": bool(machine.isolated),
        "core types": bool(machine.core_types),
    }
    return [what for what, is_lost in lost.items() if is_lost]


def _levels_from_outside(machine: Machine, topology: CPUTopology) -> list[tuple[str, dict[Bits, int]]]:
    """Return kinds of objects from the outside in, each with the bits and the id of its objects."""
    levels = [("pack", topology.sockets), ("numa", topology.numa_nodes), ("l3", _l3_groups(machine, topology))]
    levels = [*sorted((level for level in levels if level[1]), key=lambda level: len(level[1]))]
    return [
        (kind, {bits: number for number, bits in groups.items()})
        for kind, groups in [*levels, ("core", topology.cores)]
    ]


def _l3_groups(machine: Machine, topology: CPUTopology) -> dict[int, Bits]:
    masks = [cpus & topology.all_cpus for _, cpus in number_l3(machine.caches)]
    if masks and sum(mask.bit_count() for mask in masks) == topology.all_cpus.bit_count():
        return dict(enumerate(masks))
    listed = {core.uncore_caches for node in machine.nodes for core in node.cores}
    return {} if listed == {()} else topology.uncore_caches


def _children(kind: str, parent: Bits, groups: Iterable[Bits]) -> list[Bits]:
    children = sorted((bits for bits in groups if bits & parent), key=lambda bits: bits & -bits)
    if any(bits & ~parent for bits in children):
        raise _irregular_error(f"a {kind} object is only partly inside the object around it")
    return children


def _list_text(values: Sequence[int]) -> str:
    """Return the shortest list that gives every object its value, in turns."""
    sizes = (size for size in range(1, len(values) + 1) if len(values) % size == 0)
    size = next(size for size in sizes if all(value == values[place % size] for place, value in enumerate(values)))
    return ",".join(map(str, values[:size]))


def _attribute_text(kind: str, machine: Machine, ids: list[int]) -> str:
    attributes = []
    if kind == "numa":
        memory = {node.id: node.memory for node in machine.nodes}
        attributes.append(f"memory={_list_text([memory[number] for number in ids])}")
    if kind in ("pack", "numa") and ids != list(range(len(ids))):
        if min(ids) < 0:
            raise _irregular_error(f"a {kind} object has the id {min(ids)}")
        attributes.append(f"indexes={','.join(map(str, ids))}")
    if kind == "l3":
        sizes = {cache.size for cache in machine.caches if cache.level == 3}
        attributes += [f"size={sizes.pop()}"] if len(sizes) == 1 and sizes != {0} else []
    return f"({' '.join(attributes)})" if attributes else ""


def _numberings(kinds: Sequence[str], cores: Sequence[Bits]) -> Iterator[str]:
    """Yield texts of `indexes=` that may give the CPUs their numbers, the shortest first. It is always written, because
    hwloc and we read a text without it differently."""
    indexes = [cpu for core in cores for cpu in iter_bits(core)]
    yield f"1*{len(indexes)}"
    for turns in _TURNS:
        if all(kind in kinds for kind in turns):
            yield ":".join(turns)
    yield ",".join(map(str, indexes))


def _outline(topology: CPUTopology) -> tuple[object, ...]:
    """Return the topology that a kubelet derives from a machine, without the ids of caches."""
    return topology.numa_of, topology.socket_of, topology.core_of, set(topology.uncore_caches.values())


def _irregular_error(why: str) -> InputError:
    return InputError(f"no synthetic description: {why}", path="-o synthetic", remedy="use -o yaml or -o machineinfo")
