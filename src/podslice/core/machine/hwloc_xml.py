"""hwloc's XML (`lstopo --of xml`), versions 1 and 2: the machine as the kubelet would group it."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from podslice.core.errors import InputError
from podslice.core.machine.model import Core, HugePages, Machine, NUMANode
from podslice.core.values.cpuset import Bits, iter_bits

_PACKAGE = ("Package", "Socket")


def from_hwloc_xml(text: str) -> Machine:
    """Read a topology. Raises `InputError` for text that is not hwloc XML."""
    if "<!ENTITY" in text:
        raise InputError("declares XML entities", remedy="give the output of lstopo --of xml")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(f"is not XML: {error}") from None
    top = root.find("object")
    if root.tag != "topology" or top is None:
        raise InputError("is not hwloc XML", remedy="give the output of lstopo --of xml")
    return _Reader(top, root).machine()


class _Reader:
    def __init__(self, top: ElementTree.Element, root: ElementTree.Element) -> None:
        self.top = top
        self.root = root
        self.l3 = [
            (_bits(o.get("cpuset")), i) for i, o in enumerate(self._objects(top, "L3Cache", "Cache")) if _is_l3(o)
        ]

    def _objects(self, top: ElementTree.Element, *kinds: str) -> Iterator[ElementTree.Element]:
        for element in top.iter("object"):
            if element.get("type") in kinds:
                yield element

    def machine(self) -> Machine:
        packages = [(_bits(o.get("cpuset")), int(o.get("os_index", "0"))) for o in self._objects(self.top, *_PACKAGE)]
        allowed = _bits(self.top.get("allowed_cpuset")) or _bits(self.top.get("cpuset"))
        cores = self._cores(allowed, packages)
        numa = list(self._objects(self.top, "NUMANode"))
        distances = self._distances([int(node.get("os_index", "0")) for node in numa])
        nodes = []
        owned: Bits = 0
        for node in numa:
            cpus = _bits(node.get("cpuset")) & ~owned if not _is_memory_side(node) else 0
            mine = [core for bits, core in cores if bits & cpus and bits & ~cpus == 0]
            owned |= cpus if mine else 0
            nodes.append(self._node(node, mine, distances))
        if not nodes:
            nodes = [NUMANode(id=0, cores=tuple(core for _, core in cores))]
        return Machine(nodes=tuple(nodes), num_sockets=len(packages) or 1)

    def _cores(self, allowed: Bits, packages: list[tuple[Bits, int]]) -> list[tuple[Bits, Core]]:
        cores = []
        objects = list(self._objects(self.top, "Core")) or list(self._objects(self.top, "PU"))
        for element in objects:
            bits = _bits(element.get("cpuset")) & allowed
            if bits:
                socket = next((index for cpus, index in packages if cpus & bits), 0)
                cores.append((bits, Core(socket, int(element.get("os_index", "0")), tuple(iter_bits(bits)))))
        return [(bits, self._with_cache(bits, core, cores)) for bits, core in cores]

    def _with_cache(self, bits: Bits, core: Core, cores: list[tuple[Bits, Core]]) -> Core:
        for shared, index in self.l3:
            if shared & bits and shared.bit_count() != self._node_size(bits):
                return Core(core.socket, core.core, core.threads, (index,))
        return core

    def _node_size(self, bits: Bits) -> int:
        sizes = [
            _bits(n.get("cpuset")).bit_count()
            for n in self._objects(self.top, "NUMANode")
            if _bits(n.get("cpuset")) & bits
        ]
        return sizes[0] if sizes else _bits(self.top.get("cpuset")).bit_count()

    def _node(self, element: ElementTree.Element, cores: list[Core], distances: dict[int, tuple[int, ...]]) -> NUMANode:
        index = int(element.get("os_index", "0"))
        pools = tuple(
            HugePages(int(page.get("size", "0")) // 1024, int(page.get("count", "0")))
            for page in element.findall("page_type")
            if int(page.get("size", "0")) > 65536
        )
        return NUMANode(index, int(element.get("local_memory", "0")), pools, distances.get(index), tuple(cores))

    def _distances(self, ids: list[int]) -> dict[int, tuple[int, ...]]:
        for element in self.root.iter("distances2"):
            if element.get("type") == "NUMANode" and "means latency" not in (element.get("name") or ""):
                order = [int(word) for text in element.findall("indexes") for word in (text.text or "").split()]
                values = [int(word) for text in element.findall("u64values") for word in (text.text or "").split()]
                return _rows(order, values)
        for element in self.root.iter("distances"):
            base = float(element.get("latency_base", "1"))
            values = [round(float(c.get("value", "0")) * base) for c in element.findall("latency")]
            return _rows(ids, values)
        return {}


def _rows(order: list[int], values: list[int]) -> dict[int, tuple[int, ...]]:
    size = len(order)
    if size == 0 or len(values) != size * size:
        return {}
    rows = {node: values[i * size : (i + 1) * size] for i, node in enumerate(order)}
    ascending = sorted(range(size), key=lambda i: order[i])
    return {node: tuple(row[i] for i in ascending) for node, row in rows.items()}


def _is_l3(element: ElementTree.Element) -> bool:
    return element.get("type") == "L3Cache" or element.get("depth") == "3"


def _is_memory_side(element: ElementTree.Element) -> bool:
    return element.get("subtype") in ("MCDRAM", "HBM", "GPUMemory", "NVM", "SPM")


def _bits(text: str | None) -> Bits:
    """hwloc's bitmap text: comma-separated 32-bit words, `0xf...f` prefixes for infinite sets refused as empty."""
    if not text:
        return 0
    bits = 0
    for word in text.split(","):
        bits <<= 32
        if word and word != "0xf...f":
            bits |= int(word, 16)
    return bits
