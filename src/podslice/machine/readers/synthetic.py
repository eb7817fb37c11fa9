"""hwloc's one-line machines: `pack:2 numa:2 l3:3 core:8 pu:2`.

Handy on a command line and in tests. Understood are levels with and without type names, attached NUMA nodes
(`pack:2 [numa(memory=64GiB)] core:8 pu:2`), `memory=`, `size=` and `indexes=`, and beyond hwloc lists of counts and
sizes for objects that differ. CPUs without `indexes=` are numbered as Linux does on x86, the first threads of all cores
before the second ones, because the text mostly stands for such a server; hwloc itself numbers the threads of a core one
after another. A synthetic text carries CPUs, caches and memory; huge pages and distances have no place in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.machine.build import CPUFacts, NUMANodeFacts, ReadMachine, build_nodes, check_machine, number_l3
from podslice.machine.model import Cache, CPUTopology, Machine
from podslice.machine.readers.synthetic_indexes import number_by_turns, number_objects
from podslice.machine.readers.synthetic_levels import Attributes, Level, Tree, take_turns
from podslice.machine.readers.synthetic_text import is_cache, parse_levels
from podslice.values.assumption import Assumption
from podslice.values.cpuset import CPUSet, format_bits, ids_of
from podslice.values.errors import InputError

_CACHE_NAMES = {"d": "Data", "i": "Instruction", "u": "Unified"}
_DEFAULT_CACHE_SIZES = {1: 32 << 10, 2: 4 << 20, 3: 16 << 20}
_DEFAULT_MEMORY = 1 << 30


def from_synthetic(text: str, source: str = "") -> Machine:
    """Return the machine of a synthetic description. Raises `InputError` with the word at fault and `source`, the text
    itself by default."""
    return read_synthetic(text, source).machine


def read_synthetic(text: str, source: str = "") -> ReadMachine:
    """Return the machine of a synthetic description, and what is assumed of it. Raises as `from_synthetic`."""
    levels = parse_levels(text, source or text)
    assumed = list(_assume_memory(levels))
    if not any(level.type == "numa" or level.attached for level in levels):
        levels[0].attached.append(Attributes(memory=levels[0].attributes.memory or (_DEFAULT_MEMORY,)))
    found = _Reader(Tree(levels, source or text))
    caches = tuple(sorted(found.caches(), key=lambda cache: (cache.level, min(cache.cpus))))
    nodes = build_nodes(found.cpus, found.nodes, number_l3(caches))
    machine = check_machine(Machine(nodes=nodes, source="synthetic", description=" ".join(text.split()), caches=caches))
    return ReadMachine(machine, (*_assume_numbering(levels, machine), *assumed))


class _Reader:
    """Reads CPUs, NUMA nodes and caches off the tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.bottom = len(tree.levels) - 1
        self.numbers = [self._number(depth) for depth in range(len(tree.levels))]
        self.paths = [tree.path(self.bottom, place) for place in range(tree.count(self.bottom))]
        self.nodes: list[NUMANodeFacts] = []
        self.node_of_object = self._add_nodes()
        self.cpus = [self._cpu(path) for path in self.paths]

    def _number(self, depth: int) -> list[int]:
        level = self.tree.levels[depth]
        if level.attributes.indexes:
            return number_objects(self.tree, depth, level.attributes.indexes)
        # Linux on x86: first threads of all cores, then second ones.
        if level.type == "pu" and (core := self.tree.depth_of("core")) is not None:
            return number_by_turns(self.tree, depth, [core])
        return list(range(self.tree.count(depth)))

    def _cpu(self, path: list[int]) -> CPUFacts:
        cpu = self.numbers[self.bottom][path[-1]]
        core, package = self.tree.depth_of("core"), self.tree.depth_of("package")
        # The innermost object with NUMA nodes counts.
        around = [(depth, place) for depth, place in enumerate(path) if (depth, place) in self.node_of_object]
        return CPUFacts(
            cpu=cpu,
            core=cpu if core is None else self.numbers[core][path[core]],
            socket=0 if package is None else self.numbers[package][path[package]],
            node=self.node_of_object[around[-1]],
        )

    def _add_nodes(self) -> dict[tuple[int, int], int]:
        """Add the NUMA nodes, and return the first node of each object that has any, by level and place."""
        depth = self.tree.depth_of("numa")
        if depth is None:
            return self._add_attached()
        # hwloc gives a NUMA level 1 GiB by default, but an attached node none.
        sizes = self._sizes(depth, "memory", self.tree.levels[depth].attributes.memory) or (_DEFAULT_MEMORY,)
        for place, number in enumerate(self.numbers[depth]):
            self.nodes.append(NUMANodeFacts(number, take_turns(sizes, place)))
        return {(depth, place): number for place, number in enumerate(self.numbers[depth])}

    def _add_attached(self) -> dict[tuple[int, int], int]:
        """Add the attached nodes. Those of inner objects have lower numbers than those of the objects around them, as
        in hwloc."""
        last_cpu = {(depth, place): cpu for cpu, path in enumerate(self.paths) for depth, place in enumerate(path)}
        objects = [
            (last_cpu[depth, place], -depth, place)
            for depth, level in enumerate(self.tree.levels)
            for place in range(self.tree.count(depth) if level.attached else 0)
        ]
        found: dict[tuple[int, int], int] = {}
        ids = iter(self._attached_ids())
        # By the last CPU: an inner object ends before the one around it, and of two that end together the inner one
        # comes first (its depth is greater, so -depth is less).
        for _, depth, place in sorted(objects):
            for attached in self.tree.levels[-depth].attached:
                number = next(ids)
                sizes = self._sizes(-depth, "memory", attached.memory) or (0,)
                self.nodes.append(NUMANodeFacts(number, take_turns(sizes, place)))
                found.setdefault((-depth, place), number)
        return found

    def _attached_ids(self) -> list[int]:
        """Return the ids of the attached nodes of all levels, which are numbered together, as in hwloc."""
        levels, source = self.tree.levels, self.tree.source
        total = sum(self.tree.count(depth) * len(level.attached) for depth, level in enumerate(levels))
        given = [attached.indexes for level in levels for attached in level.attached if attached.indexes]
        if not given:
            return list(range(total))
        if len(given) > 1:
            problem = f"attached NUMA nodes have indexes={given[0][:40]} and indexes={given[1][:40]}"
            raise InputError(problem, source=source, remedy="number all of them in one place")
        # Numbering works on a tree, so the nodes of all levels are put into one of two levels.
        flat = Tree([Level("machine", (1,), Attributes(), []), Level("numa", (total,), Attributes(), [])], source)
        return number_objects(flat, 1, given[0])

    def _sizes(self, depth: int, name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sizes. Raises `InputError` where they do not fit the objects of the level."""
        count = self.tree.count(depth)
        if sizes and count % len(sizes):
            problem = f"{name}= has {len(sizes)} sizes for {count} {self.tree.levels[depth].type} objects"
            remedy = f"write {count} sizes, or a number of them that divides {count}"
            raise InputError(problem, source=self.tree.source, remedy=remedy)
        return sizes

    def caches(self) -> Iterator[Cache]:
        """Yield the caches of all levels."""
        for depth, level in enumerate(self.tree.levels):
            if not is_cache(level.type):
                continue
            number = int(level.type[1])
            sizes = self._sizes(depth, "size", level.attributes.size) or (_DEFAULT_CACHE_SIZES.get(number, 64 << 20),)
            members: list[list[int]] = [[] for _ in range(self.tree.count(depth))]
            for path, facts in zip(self.paths, self.cpus, strict=True):
                members[path[depth]].append(facts.cpu)
            for place, cpus in enumerate(members):
                yield Cache(number, _CACHE_NAMES[level.type[2]], take_turns(sizes, place), CPUSet(cpus))


# Assumptions


def _assume_numbering(levels: Sequence[Level], machine: Machine) -> Iterator[Assumption]:
    """Yield the line about the numbers of CPUs, unless they are given or mean the same in any order."""
    if levels[-1].attributes.indexes:
        return
    topology = CPUTopology(machine)
    siblings = ids_of(topology.cores[min(topology.cores)])
    facts = []
    if len(siblings) > 1 and len(topology.cores) > 1:
        facts.append(f"{' and '.join(map(str, siblings))} share a core")
    for what, groups in (
        ("NUMA node", topology.numa_nodes),
        ("socket", topology.sockets),
        ("L3 cache", topology.uncore_caches),
    ):
        if len(groups) > 1:
            facts.append(f"{what} {min(groups)} has {format_bits(groups[min(groups)])}")
            break
    if facts:
        text = f"CPUs numbered as Linux on x86: {', '.join(facts)}; say indexes= if not (docs/machines.md)"
        yield Assumption("cpus", text)


def _assume_memory(levels: Sequence[Level]) -> Iterator[Assumption]:
    """Yield the line about memory where none is given."""
    level = next((level for level in levels if level.type == "numa"), None)
    attached = [one for level in levels for one in level.attached]
    if level is not None:
        if not level.attributes.memory:
            # hwloc's own defaults, which differ between a level and attached nodes.
            yield Assumption("memory", f"1 GiB of memory on each NUMA node; say {level.word}(memory=64GiB) if not")
    elif attached and not any(one.memory for one in attached):
        yield Assumption("memory", "no memory on any NUMA node; say [numa(memory=64GiB)] if not")
    elif not attached and not levels[0].attributes.memory:
        yield Assumption("memory", "1 GiB of memory; begin with [numa(memory=64GiB)] if not")
