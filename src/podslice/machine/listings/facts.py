"""Facts about a machine from one text, and whether two texts can be about the same machine.

A program prints a part: `lscpu -e` the place of each CPU but no memory, `numactl -H` memory but no cores. Each reader
returns the part it found as `MachineFacts`; nothing is filled in here. Cores, sockets and caches are compared as sets
of CPUs, because programs number them differently; CPUs and NUMA nodes carry the kernel's numbers everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple, get_args

import msgspec

from podslice.machine.build import MAX_CPUS
from podslice.machine.model import group_cpus
from podslice.values.cpuset import Bits, format_bits, iter_bits
from podslice.values.errors import InputError

Level = Literal["core", "socket", "l3"]
LEVELS: tuple[Level, ...] = get_args(Level)
_NAMES = {"core": "a core", "socket": "a socket", "l3": "an L3 cache"}
_CAPTURE = "capture the node: podslice topology --capture there, or deploy/capture.sh"
_REMEDY = "are both of the same machine, and of the same boot?"


WHOLE = "give the whole output as the program printed it"
"""Remedy for a text that was cut, or changed by hand."""
_NUMBER = re.compile(r"[0-9]{1,6}")
"""No id or count of a machine has more digits."""


def parse_number(text: str | None) -> int | None:
    """Return a count or an id, None for anything else."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def parse_cpu(text: str, source: str) -> int:
    """Return the id of a CPU. Raises `InputError`: a CPU that cannot be read is not left out."""
    number = parse_number(text)
    if number is None:
        raise InputError(f"{text[:20]!r} is not the id of a CPU", source=source, remedy=WHOLE)
    return number


class NodeFacts(NamedTuple):
    """A NUMA node. `cpus`: its online CPUs; `memory` in bytes, known to `unit` bytes, the last printed digit;
    `distances` to all nodes in order of their ids. None where the text does not say."""

    cpus: Bits | None = None
    memory: int | None = None
    unit: int = 1
    distances: tuple[int, ...] | None = None


class Totals(NamedTuple):
    """Counts of the whole machine, 0 where the text does not say; `memory` in bytes, rounded to `unit`."""

    cpus: int = 0
    sockets: int = 0
    cores_per_socket: int = 0
    threads_per_core: int = 0
    l3_caches: int = 0
    memory: int = 0
    unit: int = 1


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a machine, from one text.

    `places`: for each level the number of the object that each CPU belongs to, by CPU id; `numbers` names the levels
    whose numbers are the kernel's own. `online`: ids of the online CPUs, None where the text does not list them.
    """

    source: str
    program: str
    online: Bits | None = None
    offline: Bits = 0
    places: Mapping[Level, Mapping[int, int]] = {}
    numbers: frozenset[Level] = frozenset()
    nodes: Mapping[int, NodeFacts] = {}
    totals: Totals = Totals()
    architecture: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        """Raises `InputError` for more CPUs than Linux supports, before sets of them are compared; for none; and for a
        CPU on two NUMA nodes."""
        if self.totals.cpus > MAX_CPUS or (self.online or 0) >> MAX_CPUS:
            remedy = f"at most {MAX_CPUS}, with ids below that"
            raise InputError("has more CPUs than Linux supports", source=self.title, remedy=remedy)
        if self.online == 0:
            raise InputError("lists no CPU", source=self.title, remedy=_CAPTURE)
        seen = 0
        for facts in self.nodes.values():
            if twice := seen & (facts.cpus or 0):
                problem = f"lists CPUs {format_bits(twice)} on two NUMA nodes"
                raise InputError(problem, source=self.title, remedy=_CAPTURE)
            seen |= facts.cpus or 0

    @property
    def title(self) -> str:
        """The name of the file, or of the program where the text has no file."""
        return self.source or f"the output of {self.program}"

    def counts(self) -> Totals:
        """Return the totals, those that are not printed counted where each CPU's place is known."""
        printed = self.totals
        return printed._replace(
            cpus=printed.cpus or (self.online or 0).bit_count(),
            sockets=printed.sockets or len(set(self.places.get("socket", {}).values())),
            l3_caches=printed.l3_caches or len(set(self.places.get("l3", {}).values())),
        )

    def node_of(self) -> dict[int, int]:
        """Return NUMA node ids by CPU id, for the CPUs whose node the text gives."""
        return {cpu: node for node, facts in self.nodes.items() for cpu in iter_bits(facts.cpus or 0)}


def check_agreement(parts: Sequence[MachineFacts]) -> None:
    """Compare every two texts. Raises `InputError` that names both, and the first difference."""
    for one, other in combinations(parts, 2):
        difference = next(_differences(one, other), "")
        if difference:
            raise InputError(f"{one.title} and {other.title} disagree: {difference}", remedy=_REMEDY)


def _differences(one: MachineFacts, other: MachineFacts) -> Iterator[str]:
    yield from _cpu_differences(one, other)
    common = _common(one, other)
    for level in LEVELS:
        places, others = one.places.get(level), other.places.get(level)
        if places and others:
            yield from _partition_differences(level, places, others, common)
    yield from _node_differences(one, other)
    for field, count, rest in zip(Totals._fields, one.counts(), other.counts(), strict=True):
        if field not in ("memory", "unit") and count and rest and count != rest:
            yield f"{count} {field.replace('_', ' ')} in the one, {rest} in the other"
    tolerance = max(one.totals.unit, other.totals.unit)
    if one.totals.memory and other.totals.memory and abs(one.totals.memory - other.totals.memory) > tolerance:
        yield f"{one.totals.memory} bytes of memory in the one, {other.totals.memory} in the other"


def _common(one: MachineFacts, other: MachineFacts) -> Bits:
    everything = -1
    mine = everything if one.online is None else one.online
    theirs = everything if other.online is None else other.online
    return mine & theirs


def _cpu_differences(one: MachineFacts, other: MachineFacts) -> Iterator[str]:
    if one.online is not None and other.online is not None and one.online != other.online:
        only = one.online & ~other.online
        where = "the first" if only else "the second"
        yield f"CPUs {format_bits(only or other.online & ~one.online)} are online in {where} only"


def _partition_differences(
    level: Level, mine: Mapping[int, int], theirs: Mapping[int, int], common: Bits
) -> Iterator[str]:
    mine_of, theirs_of = _partition(mine, common), _partition(theirs, common)
    for cpu in sorted(mine_of.keys() & theirs_of.keys()):
        if mine_of[cpu] != theirs_of[cpu]:
            first, second = format_bits(mine_of[cpu]), format_bits(theirs_of[cpu])
            yield f"CPU {cpu} shares {_NAMES[level]} with CPUs {first} in the one, with {second} in the other"


def _partition(places: Mapping[int, int], common: Bits) -> dict[int, Bits]:
    """Return for each CPU in `common` the CPUs that share its object."""
    groups = group_cpus({cpu: number for cpu, number in places.items() if common < 0 or common >> cpu & 1})
    return {cpu: cpus for cpus in groups.values() for cpu in iter_bits(cpus)}


def _node_differences(one: MachineFacts, other: MachineFacts) -> Iterator[str]:
    mine, theirs = one.node_of(), other.node_of()
    for cpu in sorted(mine.keys() & theirs.keys()):
        if mine[cpu] != theirs[cpu]:
            yield f"CPU {cpu} is on NUMA node {mine[cpu]} in the one, on {theirs[cpu]} in the other"
    for node in sorted(one.nodes.keys() & other.nodes.keys()):
        first, second = one.nodes[node], other.nodes[node]
        tolerance = max(first.unit, second.unit)
        if first.memory is not None and second.memory is not None and abs(first.memory - second.memory) > tolerance:
            yield f"NUMA node {node} has {first.memory} bytes of memory in the one, {second.memory} in the other"
        if first.distances and second.distances and first.distances != second.distances:
            yield f"NUMA node {node} has other distances in the one than in the other"
    if mine and theirs:
        for node in sorted(one.nodes.keys() ^ other.nodes.keys()):
            facts = one.nodes.get(node) or other.nodes[node]
            if facts.cpus:
                yield f"NUMA node {node} with CPUs {format_bits(facts.cpus)} is in one of them only"
