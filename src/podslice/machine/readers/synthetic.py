"""hwloc's one-line machines: `pack:2 numa:2 l3:3 core:8 pu:2`.

Handy on a command line and in tests. Understood are levels with and without type names, attached NUMA nodes
(`pack:2 [numa(memory=64GiB)] core:8 pu:2`), `memory=`, `size=` and `indexes=` as lists or as loops (`2*16:1*2`, step
and count, innermost first). Logical CPUs are numbered consecutively unless PU indexes say otherwise. A synthetic
string carries CPUs, caches and memory of regular machines; huge pages and distances have no place in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count
from math import prod
from typing import NamedTuple

import msgspec

from podslice.machine.build import MAX_CPUS, MAX_NODES, CPUFacts, NUMANodeFacts, build_nodes, check_machine, number_l3
from podslice.machine.model import Cache, CPUTopology, Machine
from podslice.values.cpuset import Bits, CPUSet, iter_bits
from podslice.values.errors import InputError

REMEDY = "write levels from the outside in, such as pack:2 numa:2 core:8 pu:2"

_TOKEN = re.compile(
    r"\s*(?:(\[)\s*|)(?:([A-Za-z][\w-]*)\s*)?(?:(:)?\s*([0-9]{1,9})(?![0-9]))?\s*(?:\(([^()]*)\))?\s*(\])?"
)
_WORD = re.compile(r"(?:\[[A-Za-z]\w*\])+|\[?[A-Za-z]\w*(?::\d+)?\]?")
_TYPES = (
    ("machine", "machine"), ("package", "package"), ("socket", "package"), ("numanode", "numa"), ("node", "numa"),
    ("group", "group"), ("die", "die"), ("core", "core"), ("pu", "pu"), ("thread", "pu"),
)  # fmt: skip
_CACHE = re.compile(r"l([1-5])(d|i|u)?(?:cache)?")
_CACHE_NAMES = {"d": "Data", "i": "Instruction", "u": "Unified"}
_GUESSES = {
    1: ("pu",),
    2: ("numa", "pu"),
    3: ("package", "numa", "pu"),
    4: ("package", "numa", "core", "pu"),
    5: ("package", "numa", "l2u", "core", "pu"),
    6: ("package", "numa", "l2u", "l1d", "core", "pu"),
    7: ("package", "numa", "l3u", "l2u", "l1d", "core", "pu"),
}
"""Types that hwloc assumes for bare numbers, by how many there are."""

_MEMORY = re.compile(r"([0-9]{1,18})\s*([kKMGTP]?)(i?)(?:B)?")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DEFAULT_MEMORY = 1 << 30
_NOWHERE = -1
_LONGEST_TEXT = 128 << 10
"""Most characters of a description; one that numbers `MAX_CPUS` CPUs individually has 96 KiB."""
_MOST_LEVELS, _MOST_LOOPS = 32, 16
_DEFAULT_CACHE_SIZES = {1: 32 << 10, 2: 4 << 20, 3: 16 << 20}


class _Attributes(NamedTuple):
    memory: int | None = None
    size: int | None = None
    indexes: str = ""


class _Level(msgspec.Struct):
    type: str
    arity: int
    attributes: _Attributes
    attached: list[_Attributes]
    """NUMA nodes attached to each object of this level."""


def looks_synthetic(text: str) -> bool:
    """Whether the text is meant as a synthetic description: words like `pack:2`, or bare numbers."""
    if len(text) > _LONGEST_TEXT:
        return False
    words = re.sub(r"\([^()]*\)", "", text).split()
    typed = [word for word in words if _WORD.fullmatch(word)]
    bare = [word for word in words if word.isdigit()]
    return len(typed) + len(bare) == len(words) > 0 and (not typed or re.search(r"\w:\d|\[", text) is not None)


def from_synthetic(text: str) -> Machine:
    """Return the machine of a synthetic description. Raises `InputError` naming the word at fault."""
    if len(text) > _LONGEST_TEXT:
        raise InputError(f"a description of {len(text)} characters", remedy=f"at most {_LONGEST_TEXT}")
    root = _Level("machine", 1, _Attributes(), [])
    levels = [root, *_levels(text, root)]
    _check_levels(levels, text)
    _check_sizes(levels, text)
    if not any(level.type == "numa" or level.attached for level in levels):
        memory = root.attributes.memory
        root.attached.append(_Attributes(memory=_DEFAULT_MEMORY if memory is None else memory))
    tree = _Tree(levels, text)
    tree.walk(0)
    if any(facts.node == _NOWHERE for facts in tree.cpus):
        raise InputError("some CPUs are in no NUMA node", source=text, remedy="attach [numa] further out")
    caches = tuple(sorted(tree.caches, key=lambda cache: (cache.level, min(cache.cpus))))
    nodes = build_nodes(tree.cpus, tree.nodes, number_l3(caches))
    return check_machine(Machine(nodes=nodes, source="synthetic", description=" ".join(text.split()), caches=caches))


def _levels(text: str, root: _Level) -> Iterator[_Level]:
    words = list(_parse_words(text, root))
    bare = [level for level in words if not level.type]
    if len(bare) == len(words):
        types = _GUESSES.get(len(bare), ())
    else:
        types = ("pu",) if bare == words[-1:] else ()
    if len(types) != len(bare):
        raise InputError(f"cannot guess the types of {len(bare)} levels", source=text, remedy=REMEDY)
    for level, kind in zip(bare, types, strict=True):
        level.type = kind
    yield from words


def _parse_words(text: str, root: _Level) -> Iterator[_Level]:
    text = text.rstrip()
    position = 0
    last = root
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.end() == position:
            raise InputError(f"cannot read {text[position:].strip()[:20]!r}", source=text, remedy=REMEDY)
        bracket, name, colon, arity, attributes, closing = match.groups()
        parsed = _attributes(attributes or "", text)
        if bracket or closing:
            if not (bracket and closing) or arity or _parse_type(name or "", text) != "numa":
                raise InputError(f"cannot read {match[0].strip()!r}", source=text, remedy="attach memory as [numa]")
            last.attached.append(parsed)
        elif not name and not arity:
            if position or attributes is None:
                raise InputError(f"cannot read {match[0].strip()!r}", source=text, remedy=REMEDY)
            root.attributes = parsed
        else:
            if bool(name) != bool(colon) or not arity or int(arity) < 1:
                raise InputError(f"cannot read {match[0].strip()!r}", source=text, remedy="a level is type:count")
            last = _Level(_parse_type(name, text) if name else "", int(arity), parsed, [])
            if last.type == "machine":
                last.type = "group"
            yield last
        position = match.end()


def _parse_type(name: str, text: str) -> str:
    lowered = name.lower()
    cache = _CACHE.fullmatch(lowered)
    if cache:
        return f"l{cache[1]}{cache[2] or ('d' if cache[1] == '1' else 'u')}"
    for full, kind in _TYPES:
        if len(lowered) >= 2 and full.startswith(lowered):
            return kind
    raise InputError(f"unknown type {name!r}", source=text, remedy="package, numa, die, group, l3, l2, l1, core, pu")


def _attributes(text: str, whole: str) -> _Attributes:
    values: dict[str, str] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        values[name.lower()] = value
    return _Attributes(
        memory=_parse_bytes(values["memory"], whole) if "memory" in values else None,
        size=_parse_bytes(values["size"], whole) if "size" in values else None,
        indexes=values.get("indexes", ""),
    )


def _parse_bytes(text: str, whole: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} is not a size", source=whole, remedy="write a number with kB, MB, GB or TB")
    base: int = 1024 if match[3] else 1000
    power: int = base ** _POWERS[match[2]]
    return int(match[1]) * power


def _check_levels(levels: list[_Level], text: str) -> None:
    types = [level.type for level in levels]
    if types[-1] != "pu":
        raise InputError(f"the last level is {types[-1]}, not pu", source=text, remedy=REMEDY)
    for kind in ("pu", "core", "package", "numa"):
        if types.count(kind) > 1:
            raise InputError(f"the level {kind} is there twice", source=text, remedy=REMEDY)
    if "core" in types and "package" in types and types.index("core") < types.index("package"):
        raise InputError("packages inside a core", source=text, remedy=REMEDY)
    if "core" in types and "numa" in types and types.index("core") < types.index("numa"):
        raise InputError("NUMA nodes inside a core", source=text, remedy=REMEDY)


def _check_sizes(levels: list[_Level], text: str) -> None:
    if len(levels) > _MOST_LEVELS:
        raise InputError(f"{len(levels)} levels", source=text, remedy=f"at most {_MOST_LEVELS}")
    total = nodes = 1
    for level in levels:
        total *= level.arity
        nodes += total * (len(level.attached) + (level.type == "numa"))
    if total > MAX_CPUS:
        raise InputError(f"{total} CPUs are more than Linux supports", source=text, remedy=f"at most {MAX_CPUS}")
    if nodes - 1 > MAX_NODES:
        raise InputError(
            f"{nodes - 1} NUMA nodes are more than Linux supports", source=text, remedy=f"at most {MAX_NODES}"
        )


class _Tree:
    """Walks the described tree once and collects its CPUs, NUMA nodes and caches."""

    def __init__(self, levels: list[_Level], text: str) -> None:
        self.levels = levels
        self.text = text
        self.cpus: list[CPUFacts] = []
        self.nodes: list[NUMANodeFacts] = []
        self.caches: list[Cache] = []
        self._next = {level.type: count() for level in levels}
        self._indexes = {level.type: self._index_list(depth) for depth, level in enumerate(levels)}
        self._numa_ids = count()
        self._homeless: list[int] = []
        self._inside: dict[str, int] = {}

    def _index_list(self, depth: int) -> list[int]:
        total = prod(level.arity for level in self.levels[: depth + 1])
        level = self.levels[depth]
        return expand_indexes(level.attributes.indexes, total, self.text) if level.attributes.indexes else []

    def walk(self, depth: int) -> None:
        level = self.levels[depth]
        logical = next(self._next[level.type])
        indexes = self._indexes[level.type]
        number = indexes[logical] if indexes else logical
        outer = dict(self._inside)
        self._inside[level.type] = number
        first = len(self.cpus)
        if level.type == "pu":
            self._homeless.append(len(self.cpus))
            self.cpus.append(CPUFacts(number, self._core(), self._inside.get("package", 0), _NOWHERE))
        else:
            for _ in range(self.levels[depth + 1].arity):
                self.walk(depth + 1)
        self._inside = outer
        if level.type == "numa":
            memory = level.attributes.memory
            # hwloc gives a NUMA level 1 GiB by default, but an attached node none.
            self._add_node(number, _DEFAULT_MEMORY if memory is None else memory, first)
        for attached in level.attached:
            self._add_node(next(self._numa_ids), attached.memory or 0, first)
        if _CACHE.fullmatch(level.type):
            self._add_cache(level, [facts.cpu for facts in self.cpus[first:]])

    def _core(self) -> int:
        return self._inside["core" if "core" in self._indexes else "pu"]

    def _add_node(self, number: int, memory: int, first: int) -> None:
        """Add a node with the CPUs from `first` on that are in no inner node."""
        self.nodes.append(NUMANodeFacts(number, memory))
        while self._homeless and self._homeless[-1] >= first:
            place = self._homeless.pop()
            self.cpus[place] = self.cpus[place]._replace(node=number)

    def _add_cache(self, level: _Level, cpus: list[int]) -> None:
        depth = int(level.type[1])
        size = level.attributes.size
        if size is None:
            size = _DEFAULT_CACHE_SIZES.get(depth, 64 << 20)
        self.caches.append(Cache(depth, _CACHE_NAMES[level.type[2]], size, CPUSet(cpus)))


_LOOP = r"[0-9]{1,9}\*[0-9]{1,9}"
_LOOPS = f"{_LOOP}(?::{_LOOP}){{0,{_MOST_LOOPS - 1}}}"


def expand_indexes(text: str, total: int, whole: str) -> list[int]:
    """Return the OS index of each of `total` objects, from `0,2,1,3` or loops `step*count:step*count`."""
    if re.fullmatch(r"[0-9]{1,9}(?:,[0-9]{1,9})*", text):
        indexes = list(map(int, text.split(",")))
    elif re.fullmatch(_LOOPS, text):
        indexes = _expand_loops(_parse_loops(text), total)
    else:
        raise InputError(f"cannot read indexes={text}", source=whole, remedy="write 0,2,1,3 or step*count:step*count")
    if sorted(set(indexes)) != sorted(indexes) or len(indexes) != total:
        raise InputError(f"indexes={text} does not number {total} objects", source=whole, remedy="each index once")
    if max(indexes) > MAX_CPUS:
        raise InputError(f"indexes={text} goes beyond {MAX_CPUS}", source=whole, remedy="use smaller indexes")
    return indexes


def _parse_loops(text: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, loop.split("*"))) for loop in text.split(":")]


def _expand_loops(loops: list[tuple[int, ...]], total: int) -> list[int]:
    indexes = [0] * total
    multiplier = 1
    for step, size in loops:
        if not step or not size:
            return []
        for place in range(total):
            indexes[place] += place // step % size * multiplier
        multiplier *= size
    return indexes


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
    words = []
    parents = [topology.all_cpus]
    for kind, groups in _levels_from_outside(machine, topology):
        children = [_children(kind, parent, groups) for parent in parents]
        arities = {len(below) for below in children}
        if len(arities) != 1:
            raise _irregular_error(f"the number of {kind} objects varies ({', '.join(map(str, sorted(arities)))})")
        parents = [child for below in children for child in below]
        words.append(f"{kind}:{arities.pop()}{_attribute_text(kind, machine, [groups[child] for child in parents])}")
    words.append(_pu_word(parents))
    text = " ".join(words)
    # The description is read back, because hwloc's rules for cache levels can change what a kubelet sees.
    if _outline(topology) != _outline(CPUTopology(from_synthetic(text))):
        raise _irregular_error("its L3 caches are not all the kubelet's uncore caches")
    return text


def facts_lost_in_synthetic(machine: Machine) -> list[str]:
    """Return the facts of the machine that its synthetic description leaves out, one phrase each."""
    memories = {node.memory for node in machine.nodes}
    lost = {
        "huge pages": any(pool.num_pages for node in machine.nodes for pool in node.hugepages),
        "NUMA distances": any(node.distances for node in machine.nodes) and len(machine.nodes) > 1,
        "memory per node (the smallest is written for all)": len(memories) > 1,
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


def _attribute_text(kind: str, machine: Machine, ids: list[int]) -> str:
    attributes = []
    if kind == "numa":
        attributes.append(f"memory={min(node.memory for node in machine.nodes)}")
    if kind in ("pack", "numa") and ids != list(range(len(ids))):
        if min(ids) < 0:
            raise _irregular_error(f"a {kind} object has the id {min(ids)}")
        attributes.append(f"indexes={','.join(map(str, ids))}")
    if kind == "l3":
        sizes = {cache.size for cache in machine.caches if cache.level == 3}
        attributes += [f"size={sizes.pop()}"] if len(sizes) == 1 and sizes != {0} else []
    return f"({' '.join(attributes)})" if attributes else ""


def _pu_word(cores: list[Bits]) -> str:
    threads = {core.bit_count() for core in cores}
    if len(threads) != 1:
        raise _irregular_error(f"the number of pu objects varies ({', '.join(map(str, sorted(threads)))})")
    each = threads.pop()
    indexes = [cpu for core in cores for cpu in iter_bits(core)]
    if indexes == list(range(len(indexes))):
        return f"pu:{each}"
    loops = f"{each}*{len(cores)}:1*{each}"
    written = loops if _expand_loops(_parse_loops(loops), len(indexes)) == indexes else ",".join(map(str, indexes))
    return f"pu:{each}(indexes={written})"


def _outline(topology: CPUTopology) -> tuple[object, ...]:
    """Return the topology that a kubelet derives from a machine, without the ids of caches."""
    return topology.numa_of, topology.socket_of, topology.core_of, set(topology.uncore_caches.values())


def _irregular_error(why: str) -> InputError:
    return InputError(f"no synthetic description: {why}", path="-o synthetic", remedy="use -o yaml or -o machineinfo")
