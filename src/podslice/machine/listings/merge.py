"""One machine from several texts, and the list of assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from podslice.machine.build import (
    MEMORY_PER_CPU,
    CPUFacts,
    NUMANodeFacts,
    ReadMachine,
    assume_threads,
    build_nodes,
    check_machine,
)
from podslice.machine.listings.facts import Level, MachineFacts, NodeFacts, check_agreement
from podslice.machine.model import Machine, group_cpus
from podslice.values.assumption import AssumedAbout, Assumption
from podslice.values.cpuset import Bits, CPUSet, bits_of, format_bits, ids_of, union
from podslice.values.errors import InputError

_ADJACENT = ("ppc", "s390", "loongarch")
"""Architectures on which the threads of a core have successive ids; on x86 Linux counts first threads first."""
_NODES = "numactl -H shows it"
_CORES = "lscpu -e shows it"
_ROUNDED = "the memory of NUMA nodes is whole {}, as printed; the kernel's own is not"
_UNITS = {1 << 10: "KiB", 1 << 20: "MiB", 1 << 30: "GiB"}


def merge_machine(parts: Sequence[MachineFacts]) -> ReadMachine:
    """Combine the parts, and assume what none of them gives. Raises `InputError` where two disagree, or where there are
    too few facts for a machine."""
    check_agreement(parts)
    return _Merge(parts).result()


class _Merge:
    def __init__(self, parts: Sequence[MachineFacts]) -> None:
        self.parts = parts
        self.assumed: list[Assumption] = []
        self.memory_unit = 1
        self.architecture = next((part.architecture for part in parts if part.architecture), "")

    def result(self) -> ReadMachine:
        online = self._online()
        node_of = self._nodes(online)
        core_of = self._level("core", online) or self._assume_cores(online)
        socket_of = self._level("socket", online) or self._assume_sockets(core_of, node_of)
        caches = self._caches(online, core_of, node_of)
        nodes = self._node_facts(node_of, online)
        facts = [CPUFacts(cpu, core_of[cpu], socket_of[cpu], node_of[cpu]) for cpu in ids_of(online)]
        machine = Machine(
            nodes=build_nodes(facts, nodes, caches),
            architecture=self.architecture,
            source=" + ".join(part.title for part in self.parts),
            description=next((part.name for part in self.parts if part.name), ""),
            offline=CPUSet.from_bits(union(part.offline for part in self.parts) & ~online),
        )
        return ReadMachine(check_machine(machine), tuple(self.assumed), self.memory_unit)

    def _assume(self, about: AssumedAbout, text: str) -> None:
        self.assumed.append(Assumption(about, text))

    def _total(self, name: str) -> int:
        return next((value for part in self.parts if (value := getattr(part.totals, name))), 0)

    def _online(self) -> Bits:
        for part in self.parts:
            if part.online is not None:
                return part.online
        if listed := union(facts.cpus or 0 for part in self.parts for facts in part.nodes.values()):
            return listed
        count = self._total("cpus")
        if not count:
            titles = " and ".join(part.title for part in self.parts)
            raise InputError("says nothing about CPUs", source=titles, remedy="give lscpu -e or numactl -H as well")
        self._assume("cpus", f"CPUs 0-{count - 1}, because only their number is known")
        return (1 << count) - 1

    # Where CPUs are

    def _level(self, level: Level, online: Bits) -> dict[int, int]:
        """Return the numbers of a text that gives them for every CPU; the kernel's own numbers before those of a
        program."""
        known = [part for part in self.parts if bits_of(part.places.get(level, ())) & online == online]
        known.sort(key=lambda part: level not in part.numbers)
        return dict(known[0].places[level]) if known else {}

    def _nodes(self, online: Bits) -> dict[int, int]:
        found: dict[int, int] = {}
        for part in self.parts:
            found.update(part.node_of())
        found = {cpu: node for cpu, node in found.items() if online >> cpu & 1}
        if missing := online & ~bits_of(found):
            if found:
                source = " and ".join(part.title for part in self.parts)
                problem = f"does not list the NUMA node of CPUs {format_bits(missing)}"
                raise InputError(problem, source=source, remedy=_NODES)
            self._assume("nodes", f"one NUMA node ({_NODES})")
            return dict.fromkeys(ids_of(online), 0)
        return found

    def _assume_cores(self, online: Bits) -> dict[int, int]:
        """Return cores with threads as Linux numbers them: on x86 within each socket or node the first half pairs with
        the second, elsewhere neighbours belong together."""
        groups, threads = self._listed_groups(online), self._total("threads_per_core")
        if not threads:
            threads, line = assume_threads(map(len, groups), self.architecture)
            self._assume("cpus", f"{line} ({_CORES})")
        found: dict[int, int] = {}
        for cpus in groups:
            if len(cpus) % threads:
                problem = f"{len(cpus)} CPUs ({format_bits(bits_of(cpus))}) are not whole cores of {threads} threads"
                raise InputError(problem, source=self.parts[0].title, remedy=_CORES)
            cores = len(cpus) // threads
            for place, cpu in enumerate(cpus):
                found[cpu] = cpus[place - place % threads] if self._is_adjacent() else cpus[place % cores]
        if threads > 1:
            first = min(found)
            example = " and ".join(str(cpu) for cpu in sorted(found) if found[cpu] == found[first])
            self._assume("cpus", f"CPUs {example} share a core, and so on, as Linux numbers them ({_CORES})")
        return found

    def _listed_groups(self, online: Bits) -> list[list[int]]:
        """Return groups of CPUs that share no core with each other: by NUMA node where nodes are known."""
        nodes = [facts.cpus for part in self.parts for facts in part.nodes.values() if facts.cpus]
        unique = list(dict.fromkeys(nodes))
        return [ids_of(cpus) for cpus in unique] if union(unique) == online else [ids_of(online)]

    def _is_adjacent(self) -> bool:
        return self.architecture.startswith(_ADJACENT)

    def _assume_sockets(self, core_of: Mapping[int, int], node_of: Mapping[int, int]) -> dict[int, int]:
        """Return as many sockets as the texts count: of whole NUMA nodes in order of their ids, or equal parts of each
        node's cores; one for each node where no text counts them."""
        nodes = sorted(set(node_of.values()))
        sockets = self._total("sockets")
        if not sockets:
            self._assume("cpus", f"{'each NUMA node is' if len(nodes) > 1 else 'the machine is'} one socket ({_CORES})")
            sockets = len(nodes)
        if len(nodes) % sockets == 0:
            share = len(nodes) // sockets
            if share > 1:
                self._assume("cpus", f"{share} NUMA nodes in each socket, in order of their ids ({_CORES})")
            return {cpu: nodes.index(node) // share for cpu, node in node_of.items()}
        cores = {node: sorted({core_of[cpu] for cpu in node_of if node_of[cpu] == node}) for node in nodes}
        parts = sockets // len(nodes)
        if sockets % len(nodes) or any(len(inside) % parts for inside in cores.values()):
            problem = f"{sockets} sockets do not divide {len(nodes)} NUMA nodes in one way"
            raise InputError(problem, source=self.parts[0].title, remedy="give lscpu -e as well")
        self._assume("cpus", f"{parts} sockets of equal size within each NUMA node ({_CORES})")
        socket_of_core = {
            core: number * parts + place * parts // len(inside)
            for number, inside in enumerate(cores.values())
            for place, core in enumerate(inside)
        }
        return {cpu: socket_of_core[core_of[cpu]] for cpu in node_of}

    def _caches(self, online: Bits, core_of: Mapping[int, int], node_of: Mapping[int, int]) -> list[tuple[int, Bits]]:
        """Return the L3 caches by number. Those of the summary, which gives only their number, are equal shares of the
        cores in order of their first CPUs, each within a NUMA node."""
        if known := self._level("l3", online):
            return list(group_cpus(known).items())
        count, nodes = self._total("l3_caches"), group_cpus(node_of)
        if count <= len(nodes):
            return []
        cores = group_cpus(core_of)
        if count % len(nodes) or any(
            len({core_of[cpu] for cpu in ids_of(n)}) % (count // len(nodes)) for n in nodes.values()
        ):
            self._assume("cpus", f"no L3 caches, because {count} do not divide the cores evenly ({_CORES})")
            return []
        self._assume("cpus", f"{count} L3 caches of equal size, of neighbouring cores ({_CORES})")
        found: list[tuple[int, Bits]] = []
        for cpus in nodes.values():
            inside = sorted({core_of[cpu] for cpu in ids_of(cpus)}, key=lambda core: cores[core] & -cores[core])
            size = len(inside) * len(nodes) // count
            for start in range(0, len(inside), size):
                found.append((len(found), union(cores[core] for core in inside[start : start + size])))
        return found

    # Memory

    def _node_facts(self, node_of: Mapping[int, int], online: Bits) -> list[NUMANodeFacts]:
        found: dict[int, NodeFacts] = {}
        for part in self.parts:
            for node, facts in part.nodes.items():
                found[node] = _join(found.get(node, NodeFacts()), facts)
        for node in node_of.values():
            found.setdefault(node, NodeFacts())
        unknown = sorted(node for node, facts in found.items() if facts.memory is None)
        if unknown:
            self._assume_memory(found, unknown, online)
        coarse = max((facts.unit for facts in found.values()), default=1)
        if coarse > 1 and not unknown:
            self.memory_unit = coarse
            self._assume("memory-rounding", _ROUNDED.format(_UNITS.get(coarse) or f"{coarse} bytes"))
        return [NUMANodeFacts(node, facts.memory or 0, (), facts.distances) for node, facts in sorted(found.items())]

    def _assume_memory(self, found: dict[int, NodeFacts], unknown: Iterable[int], online: Bits) -> None:
        unknown = list(unknown)
        total = self._total("memory")
        rest = total - sum(facts.memory or 0 for facts in found.values())
        if total and rest >= 0:
            share, line = rest // len(unknown), "memory is the same on every NUMA node"
            if len(unknown) == 1 == len(found):
                share, line = rest, ""
        else:
            share = online.bit_count() * MEMORY_PER_CPU // len(found)
            line = f"{MEMORY_PER_CPU >> 30} GiB of memory for each CPU, {share >> 30} GiB on each NUMA node"
        for node in unknown:
            found[node] = found[node]._replace(memory=share)
        if line:
            self._assume("memory", f"{line} ({_NODES})")


def _join(one: NodeFacts, other: NodeFacts) -> NodeFacts:
    """Join two facts about a node; the finer amount of memory counts."""
    memory, unit = one.memory, one.unit
    if other.memory is not None and (memory is None or other.unit < unit):
        memory, unit = other.memory, other.unit
    cpus = one.cpus if other.cpus is None else other.cpus
    return NodeFacts(cpus, memory, unit, one.distances or other.distances)
