"""hwloc's XML (`lstopo --of xml`, `lstopo machine.xml`) of versions 1 and 2, as the machine a kubelet would see.

In version 1 NUMA nodes and caches are levels of one tree; in version 2 NUMA nodes hang beside it and memory-only nodes
carry the CPU set of whatever they are attached to. Both are read through the CPU sets, so the difference does not
matter: a CPU belongs to the smallest NUMA node that lists it, ordinary memory before special memory.

lstopo in a container, or in a job with memory of some NUMA nodes only, leaves the other nodes out but not their CPUs.
The objects around such CPUs still name the node in `complete_nodeset`. A kubelet sees the whole machine, so the node is
added, with memory that is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from podslice.machine.build import MAX_CPUS, CPUFacts, NUMANodeFacts, ReadMachine, build_nodes, check_machine
from podslice.machine.model import Cache, CoreType, HugePages, Machine, group_cpus
from podslice.values.assumption import Assumption
from podslice.values.cpuset import Bits, CPUSet, bits_of, format_bits, iter_bits
from podslice.values.errors import InputError
from podslice.values.golang import GoSyntaxError, atoi

_REMEDY = "give the output of lstopo --of xml"
_CACHE = re.compile(r"L([1-5])i?Cache|Cache")
_CACHE_TYPES = {"0": "Unified", "1": "Data", "2": "Instruction"}
_SPECIAL_MEMORY = ("MCDRAM", "HBM", "GPUMemory", "NVM", "SPM", "CXL-DRAM")
_SEE_ALL = "lstopo --disallowed --of xml"
_LARGEST_INDEX = (1 << 32) - 1
_LONGEST_BITMAP = 8 << 10
"""Most characters of a set of CPUs: `MAX_CPUS` in words, and a few words more."""
_MOST_TAGS, _MOST_ATTRIBUTES = 400_000, 3_000_000
_WORD = re.compile(r"0x[0-9a-fA-F]{1,8}")


def from_hwloc_xml(text: str, source: str = "") -> Machine:
    """Return the machine in hwloc's XML. Raises `InputError` for other text, where it describes no CPU, or where
    nothing says on which NUMA node a CPU is."""
    return read_hwloc_xml(text, source).machine


def read_hwloc_xml(text: str, source: str = "") -> ReadMachine:
    """Return the machine in hwloc's XML, and what is assumed of it. Raises as `from_hwloc_xml`."""
    # Entities can expand to gigabytes; hwloc never writes any.
    if "<!ENTITY" in text:
        raise InputError("declares XML entities", source=source, remedy=_REMEDY)
    if text.count("<") > _MOST_TAGS or text.count("=") > _MOST_ATTRIBUTES:
        raise InputError("has more elements than any machine", source=source, remedy=_REMEDY)
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise InputError(f"is not well-formed XML: {error}", source=source, remedy=_REMEDY) from None
    top = root.find("object")
    if root.tag != "topology" or top is None:
        raise InputError(f"is XML, but <{root.tag}> is not hwloc's topology", source=source, remedy=_REMEDY)
    try:
        reader = _HwlocReader(root, top)
        return ReadMachine(check_machine(reader.machine(source)), tuple(reader.assumptions()))
    except InputError as error:
        raise error.at(source=source) from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"has a number hwloc would not write: {error}", source=source, remedy=_REMEDY) from None


class _HwlocObject:
    """An `<object>` with the facts we need; `index` is the kernel's number, None where there is none."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.element = element
        self.kind = element.get("type", "")
        self.index = _parse_whole(element.get("os_index", "")) if element.get("os_index") else None
        if self.index is not None and not 0 <= self.index <= _LARGEST_INDEX:
            raise InputError(f"os_index {self.index} of a {self.kind} is absurd", remedy=_REMEDY)
        self.cpus = parse_bitmap(element.get("cpuset"))
        nodes = element.get("complete_nodeset")
        self.complete_nodes = None if nodes is None else parse_bitmap(nodes)


class _HwlocReader:
    def __init__(self, root: ElementTree.Element, top: ElementTree.Element) -> None:
        self.root = root
        self.top = top
        objects = [_HwlocObject(element) for element in top.iter("object")]
        online = parse_bitmap(top.get("online_cpuset")) if top.get("online_cpuset") else ~0
        self.pus = [o.index for o in objects if o.kind == "PU" and o.index is not None and online >> o.index & 1]
        self.packages = [o for o in objects if o.kind in ("Package", "Socket")]
        self.cores = [o for o in objects if o.kind == "Core"]
        self.numa = [o for o in objects if o.kind == "NUMANode"]
        self.caches = [o for o in objects if _CACHE.fullmatch(o.kind)]
        if max(self.pus, default=0) > MAX_CPUS:
            raise InputError(f"PU {max(self.pus)} is more than Linux supports", remedy=f"at most {MAX_CPUS}")
        self.online = bits_of(self.pus)
        self.infos = {info.get("name"): info.get("value", "") for info in top.iter("info")}
        listed = {o.index or 0 for o in self.numa}
        self.unlisted = bits_of(n for n in iter_bits(objects[0].complete_nodes or 0) if self.numa and n not in listed)
        self.node_of = self._node_of() if self.numa else dict.fromkeys(self.pus, 0)
        self.left_out = self._place_left_out(objects)
        self.node_of.update(self.left_out)

    def machine(self, source: str) -> Machine:
        if not self.pus:
            raise InputError("describes no processing unit", remedy=_REMEDY)
        caches = tuple(self._caches())
        return Machine(
            nodes=build_nodes(self._cpus(), self._nodes(), self._l3()),
            name=self.infos.get("HostName", ""),
            description=self.infos.get("CPUModel", ""),
            source=source,
            architecture=self.infos.get("Architecture", ""),
            offline=CPUSet.from_bits(parse_bitmap(self.top.get("complete_cpuset")) & ~self.online),
            caches=caches,
            core_types=tuple(self._core_types()),
        )

    def _cpus(self) -> Iterator[CPUFacts]:
        core_of = self._owners((core.cpus, place) for place, core in enumerate(self.cores))
        package_of = self._owners((o.cpus, o.index or 0) for o in self.packages)
        numbers = self._core_numbers()
        for cpu in self.node_of:
            place = core_of.get(cpu)
            core = cpu if place is None else numbers[place]
            yield CPUFacts(cpu, core, package_of.get(cpu, 0), self.node_of[cpu])

    def _core_numbers(self) -> list[int]:
        """Return the kernel's core ids where they distinguish the cores of a package, else the order of the file."""
        package_of = self._owners((package.cpus, place) for place, package in enumerate(self.packages))
        firsts = [next(iter_bits(core.cpus & self.online), -1) for core in self.cores]
        packages = [package_of.get(first) for first in firsts]
        kernel = [
            (None if place is None else self.packages[place].index, core.index)
            for place, core in zip(packages, self.cores, strict=True)
        ]
        if None not in [core.index for core in self.cores] and len(set(kernel)) == len(kernel):
            return [core.index or 0 for core in self.cores]
        return list(range(len(self.cores)))

    def _node_of(self) -> dict[int, int]:
        def rank(node: _HwlocObject) -> tuple[bool, int, int]:
            # High-bandwidth or GPU memory lists CPUs too, which belong to the node with ordinary memory.
            special = node.element.get("subtype") in _SPECIAL_MEMORY
            return special, node.cpus.bit_count(), node.index or 0

        return self._owners((node.cpus, node.index or 0) for node in sorted(self.numa, key=rank))

    def _place_left_out(self, objects: Iterable[_HwlocObject]) -> dict[int, int]:
        """Return the node of each CPU that is on none of the nodes in the file; CPUs that are on no node at all are
        missing. Raises `InputError` where the objects around a CPU do not tell."""
        left = self.online & ~bits_of(self.node_of)
        around = sorted(
            (o for o in objects if o.complete_nodes is not None and o.cpus & left), key=lambda o: o.cpus.bit_count()
        )
        # The smallest object says it; a larger one names the nodes of its other parts too.
        nearest = self._owners((o.cpus & left, o.complete_nodes or 0) for o in around)
        clear = {cpu: nodes for cpu, nodes in nearest.items() if nodes.bit_count() < 2 and not nodes & ~self.unlisted}
        if unclear := left & ~bits_of(clear):
            problem = f"does not say on which NUMA node CPUs {format_bits(unclear)} are"
            raise InputError(problem, remedy=f"{_SEE_ALL}, outside of containers and jobs")
        return {cpu: nodes.bit_length() - 1 for cpu, nodes in clear.items() if nodes}

    def assumptions(self) -> Iterator[Assumption]:
        """Yield a line for each fact about CPUs without a NUMA node, and about what lstopo was not allowed to see."""
        if nowhere := self.online & ~bits_of(self.node_of):
            # As in sysfs, where a kubelet finds CPUs by their NUMA nodes.
            text = f"a kubelet does not list CPUs {format_bits(nowhere)}, because no NUMA node has them"
            yield Assumption("cpus", text)
        if self.left_out:
            memory = f"{self._assumed_memory() >> 20} MiB of memory, as the smallest other node with CPUs"
            nodes = group_cpus(self.left_out)
            which = ", ".join(f"{number} (CPUs {format_bits(cpus)})" for number, cpus in nodes.items())
            names = "NUMA node" if len(nodes) == 1 else "NUMA nodes"
            text = f"{memory}, on {names} {which}, which the file leaves out ({_SEE_ALL} shows it)"
            yield Assumption("nodes", text)
        if gone := self.unlisted & ~bits_of(self.left_out.values()):
            text = f"no NUMA node {format_bits(gone)}, which the file leaves out with all that is on it ({_SEE_ALL})"
            yield Assumption("nodes", text)
        offline = parse_bitmap(self.top.get("complete_cpuset")) & ~self.online
        if offline and (self.unlisted or self.infos.get("LinuxCgroup", "/") != "/"):
            text = f"CPUs {format_bits(offline)} are offline, and not only hidden from lstopo ({_SEE_ALL} shows it)"
            yield Assumption("cpus", text)

    def _assumed_memory(self) -> int:
        with_cpus = set(self.node_of.values())
        amounts = [_parse_whole(o.element.get("local_memory", "0")) for o in self.numa if (o.index or 0) in with_cpus]
        return min(amounts, default=0)

    def _owners(self, objects: Iterable[tuple[Bits, int]]) -> dict[int, int]:
        """Return the object that owns each CPU; where several name it the first."""
        owner: dict[int, int] = {}
        left = self.online
        for cpus, number in objects:
            owner.update(dict.fromkeys(iter_bits(cpus & left), number))
            left &= ~cpus
        return owner

    def _nodes(self) -> list[NUMANodeFacts]:
        # Distances of the nodes in the file have no column for the others.
        distances = {} if self.left_out else self._distances()
        nodes = [self._node(o.index or 0, o.element, distances) for o in self.numa]
        nodes += [NUMANodeFacts(number, self._assumed_memory()) for number in sorted(set(self.left_out.values()))]
        return nodes or [self._node(0, self.top, {})]

    def _node(self, number: int, element: ElementTree.Element, distances: dict[int, tuple[int, ...]]) -> NUMANodeFacts:
        pages = sorted(
            (_parse_whole(p.get("size", "0")), _parse_whole(p.get("count", "0"))) for p in element.findall("page_type")
        )
        # The smallest size is that of ordinary pages.
        pools = tuple(HugePages(size // 1024, count) for size, count in pages[1:])
        return NUMANodeFacts(number, _parse_whole(element.get("local_memory", "0")), pools, distances.get(number))

    def _l3(self) -> list[tuple[int, Bits]]:
        """Return L3 caches and above with the kernel's ids. hwloc 2 writes the kernel's ids, so on Linux a kubelet does
        not see a cache without one either. Other files never have ids; the order in the file replaces them."""
        l3 = [o for o in self.caches if _parse_whole(o.element.get("depth", "0")) > 2]
        infos = {info.get("name"): info.get("value") for info in self.top.findall("info")}
        if self.root.get("version", "").startswith("2") and infos.get("Backend") == "Linux":
            return [(o.index, o.cpus & self.online) for o in l3 if o.index is not None]
        return [(place if o.index is None else o.index, o.cpus & self.online) for place, o in enumerate(l3)]

    def _caches(self) -> list[Cache]:
        caches = [
            Cache(
                level=_parse_whole(o.element.get("depth", "0")),
                type=_CACHE_TYPES.get(o.element.get("cache_type", "0"), "Unified"),
                size=_parse_whole(o.element.get("cache_size", "0")),
                cpus=CPUSet.from_bits(o.cpus & self.online),
            )
            for o in self.caches
            if o.cpus & self.online
        ]
        return sorted(caches, key=lambda cache: (cache.level, min(cache.cpus), cache.type))

    def _core_types(self) -> Iterator[CoreType]:
        kinds = [(parse_bitmap(kind.get("cpuset")), kind) for kind in self.root.iter("cpukind")]
        if len(kinds) < 2:
            return
        # hwloc lists kinds from the slowest to the fastest; here the fastest comes first.
        for rank, (cpus, kind) in enumerate(reversed(kinds)):
            infos = {info.get("name"): info.get("value", "") for info in kind.iter("info")}
            name = _CORE_TYPES.get(infos.get("CoreType", ""), f"rank-{rank}")
            yield CoreType(name, CPUSet.from_bits(cpus & self.online), _parse_whole(infos.get("LinuxCapacity", "0")))

    def _distances(self) -> dict[int, tuple[int, ...]]:
        """Return rows by node id, columns by ascending node id; empty where hwloc wrote no complete matrix."""
        for element in self.root.iter("distances2"):
            if element.get("type") == "NUMANode" and element.get("name", "NUMALatency") == "NUMALatency":
                return _rows(list(_numbers(element, "indexes")), list(_numbers(element, "u64values")))
        for element in self.root.iter("distances"):
            base = float(element.get("latency_base", "1"))
            values = [round(float(cell.get("value", "0")) * base) for cell in element.findall("latency")]
            return _rows([o.index or 0 for o in self.numa], values)
        return {}


_CORE_TYPES = {"IntelCore": "performance", "IntelAtom": "efficiency"}


def _numbers(element: ElementTree.Element, name: str) -> Iterator[int]:
    for part in element.findall(name):
        yield from map(_parse_whole, (part.text or "").split())


def _rows(order: list[int], values: list[int]) -> dict[int, tuple[int, ...]]:
    size = len(order)
    if not size or len(values) != size * size:
        return {}
    ascending = sorted(range(size), key=lambda place: order[place])
    return {node: tuple(values[row * size + column] for column in ascending) for row, node in enumerate(order)}


def parse_bitmap(text: str | None) -> Bits:
    """Return hwloc's bitmap text (`0x00000003,0xffffffff`; an empty word is 0) as bits. Raises `ValueError`; infinite
    sets (`0xf...f`) do not occur on a real machine and are refused."""
    if not text:
        return 0
    if len(text) > _LONGEST_BITMAP:
        raise ValueError(f"a bitmap of {len(text)} characters")
    words = text.split(",")
    if not all(_WORD.fullmatch(word) for word in words if word):
        raise ValueError(f"bitmap {text[:40]!r}")
    return int("".join([word[2:].rjust(8, "0") for word in words]), 16)


def _parse_whole(text: str) -> int:
    """Parse a number of at most 64 bits as hwloc writes it. Raises `ValueError`."""
    try:
        return atoi(text.strip())
    except GoSyntaxError:
        raise ValueError(repr(text[:40])) from None
