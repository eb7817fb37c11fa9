"""Other numberings of a machine's CPUs, to try which of them the owners in its state files fit.

Firmware numbers CPUs in one of a few orders: the threads of a core together or apart, NUMA nodes one after the other or
in turns. Which one is not visible in counts of sockets, nodes and cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import msgspec

from podslice.machine.model import Core, CPUTopology, Machine, NUMANode
from podslice.machine.readers.synthetic_writing import to_synthetic
from podslice.values.cpuset import CPUSet
from podslice.values.errors import InputError

replace = msgspec.structs.replace
_LEVELS = ("thread", "socket", "node", "core")
_MOST_CPUS = 4096


class Numbering(NamedTuple):
    """A machine with its CPUs numbered in another order. `levels` are from the slowest to the fastest counter: with
    (thread, core, node) consecutive CPUs are on NUMA nodes in turns, and second threads come after all first ones."""

    levels: tuple[str, ...]
    machine: Machine

    @property
    def text(self) -> str:
        """The order in words."""
        order = self.levels
        in_turns = order.index("core") < order.index(self._last_node)
        nodes = "NUMA nodes in turns" if in_turns else "NUMA node by NUMA node"
        apart = order.index("thread") < order.index("core")
        threads = "first threads of all cores first" if order[0] == "thread" else "first threads of a node first"
        return f"{nodes}, {threads if apart else 'threads of a core side by side'}"

    @property
    def _last_node(self) -> str:
        return max(("socket", "node"), key=self.levels.index)


class _Place(NamedTuple):
    """A CPU by its place: thread of its core, socket, NUMA node within the socket, core within the NUMA node."""

    thread: int
    socket: int
    node: int
    core: int


def other_numberings(machine: Machine) -> Iterator[Numbering]:
    """Yield the machine in every other order of numbers; none where the numbers have gaps, or where the machine is too
    large to try."""
    places = _places(machine)
    numbers = sorted(places)
    if not numbers or numbers != list(range(len(numbers))) or len(numbers) > _MOST_CPUS:
        return
    seen = {_shape(machine)}
    for levels in permutations(_LEVELS):
        order = [_LEVELS.index(level) for level in levels]
        ranked = sorted(numbers, key=lambda cpu: [places[cpu][level] for level in order])
        other = renumbered(machine, {cpu: rank for rank, cpu in enumerate(ranked)})
        shape = _shape(other)
        if shape not in seen:
            seen.add(shape)
            yield Numbering(levels, other)


def renumbered(machine: Machine, numbers: dict[int, int]) -> Machine:
    """Return the machine with new numbers for its CPUs; facts beside nodes and caches are left out."""
    nodes = tuple(
        replace(node, cores=tuple(_renumber_core(core, numbers) for core in node.cores)) for node in machine.nodes
    )
    caches = tuple(
        replace(cache, cpus=CPUSet(numbers[cpu] for cpu in cache.cpus if cpu in numbers)) for cache in machine.caches
    )
    kept = Machine(nodes=nodes, caches=caches, name=machine.name, architecture=machine.architecture)
    return replace(kept, operating_system=machine.operating_system)


def _renumber_core(core: Core, numbers: dict[int, int]) -> Core:
    return replace(core, threads=tuple(sorted(numbers[cpu] for cpu in core.threads)))


def _places(machine: Machine) -> dict[int, _Place]:
    """Return the place of each CPU; NUMA nodes and cores count in ascending order."""
    places: dict[int, _Place] = {}
    within: dict[int, int] = {}
    for node in sorted(machine.nodes, key=lambda node: node.id):
        sockets = sorted({core.socket for core in node.cores})
        for rank, core in enumerate(_ordered(node.cores)):
            for thread, cpu in enumerate(sorted(core.threads)):
                places[cpu] = _Place(thread, sockets[0], within.get(sockets[0], 0), rank)
        if sockets:
            within[sockets[0]] = within.get(sockets[0], 0) + 1
    return places


def _ordered(cores: Sequence[Core]) -> list[Core]:
    return sorted(cores, key=lambda core: (core.socket, min(core.threads)))


def _shape(machine: Machine) -> tuple[object, ...]:
    """Return what tells two numberings apart: the CPUs of each NUMA node and of each core."""
    topology = CPUTopology(machine)
    return tuple(topology.numa_nodes.items()), tuple(topology.cores.values())


def one_line(numbering: Numbering) -> str:
    """Return the machine as a one-line description with its numbers; empty where it is not regular enough."""
    try:
        return to_synthetic(numbering.machine)
    except InputError:
        return ""


def with_nodes(machine: Machine, memory: dict[int, int]) -> Machine | None:
    """Return the machine with its cores divided evenly, in order, over NUMA nodes with this much memory in bytes; None
    where they cannot be."""
    cores = [core for node in sorted(machine.nodes, key=lambda node: node.id) for core in _ordered(node.cores)]
    if not memory or not cores or len(cores) % len(memory):
        return None
    share = len(cores) // len(memory)
    nodes = tuple(
        NUMANode(
            id=node,
            memory=memory[node],
            # A socket for each node: what one that was assumed looked like is not known.
            cores=tuple(replace(core, socket=place) for core in cores[place * share : (place + 1) * share]),
        )
        for place, node in enumerate(sorted(memory))
    )
    return Machine(nodes=nodes, name=machine.name, architecture=machine.architecture)
