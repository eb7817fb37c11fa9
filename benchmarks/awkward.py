"""Hard inputs: machines and states made to be awkward for the searches (docs/development/merge.md).

Every NUMA node has a different amount free; distances fit no groups of alike nodes; requests need about half of what is
left, so no small set of nodes will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random

from benchmarks.measure import Case
from benchmarks.nodes import Prepare
from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.picking.picker import Picker
from podslice.node.devices.hints import Coverage
from podslice.node.topology.hintset import HintSet, ResourceHints
from podslice.node.topology.merge import Merger
from podslice.node.topology.needs import Need
from podslice.node.topology.search import Span, fewest
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, bits_of, iter_bits
from podslice.values.quirks import PODSLICE

SIZES = (8, 16, 32, 64)


def cases() -> Iterator[Case]:
    for nodes in SIZES:
        for kind in ("two packages", "ring", "unequal"):
            yield Case("awkward", f"{nodes} NUMA nodes, CPU + memory, closest, {kind}", partial(_two, nodes, kind))
        yield Case("awkward", f"{nodes} NUMA nodes, 6 resources, closest, unequal", partial(_six, nodes))
        yield Case("awkward", f"{nodes} NUMA nodes, devices on two nodes each", partial(_overlapping, nodes))
        yield Case("awkward", f"{nodes} NUMA nodes, align-by-socket", partial(_sockets, nodes))
        yield Case("awkward", f"{nodes} NUMA nodes, distributed pick", partial(_distribute, nodes))


def distances(kind: str, nodes: int, random: Random) -> list[list[int]]:
    """`two packages`, a `ring`, or `unequal` distances everywhere."""
    if kind == "ring":
        return [[10 + 4 * min((i - j) % nodes, (j - i) % nodes) for j in range(nodes)] for i in range(nodes)]
    if kind == "unequal":
        upper = {(i, j): random.randint(11, 99) for i in range(nodes) for j in range(i)}
        return [[10 if i == j else upper[max(i, j), min(i, j)] for j in range(nodes)] for i in range(nodes)]
    return [
        [10 if i == j else 12 if i * 2 // nodes == j * 2 // nodes else 32 for j in range(nodes)] for i in range(nodes)
    ]


def _resource(
    frees: Sequence[Mapping[int, int]], amounts: Sequence[int], most: int, span: Span | None = None
) -> HintSet:
    """Return hints for amounts of several resources at once, of which empty nodes have `most`."""
    nodes = list(frees[0])
    needs = tuple(Need(free, amount) for free, amount in zip(frees, amounts, strict=True))
    singles = bits_of(node for node in nodes if all(need.is_met_by(1 << node) for need in needs))
    smallest = fewest(bits_of(nodes), [Need(dict.fromkeys(nodes, most), amount) for amount in amounts])
    return HintSet(
        nodes,
        smallest.nodes if smallest else len(nodes),
        singles,
        open_nodes=bits_of(nodes),
        needs=needs,
        alignment=span,
    )


def _uneven(nodes: int, random: Random, number: int = 1) -> HintSet:
    frees = [{node: random.randint(1, 64) for node in range(nodes)} for _ in range(number)]
    return _resource(frees, [sum(free.values()) // 2 for free in frees], 64)


def _merging(hints: Sequence[ResourceHints], far: list[list[int]]) -> Prepare:
    merger = Merger("best-effort", list(enumerate(far)), closest=True)
    answer = {str(i): one for i, one in enumerate(hints)}
    return lambda: lambda: merger.merge([answer])


def _two(nodes: int, kind: str) -> Prepare:
    random = Random(nodes)
    return _merging([_uneven(nodes, random), _uneven(nodes, random)], distances(kind, nodes, random))


def _six(nodes: int) -> Prepare:
    random = Random(nodes)
    memory = _uneven(nodes, random, 3)
    hints = [*(_uneven(nodes, random) for _ in range(3)), memory, memory, memory]
    return _merging(hints, distances("unequal", nodes, random))


def _overlapping(nodes: int) -> Prepare:
    random = Random(nodes)
    on_node: dict[int, Bits] = dict.fromkeys(range(nodes), 0)
    for device in range(4 * nodes):
        for node in random.sample(range(nodes), 2):
            on_node[node] |= 1 << device
    coverage = Coverage(on_node, tuple(range(nodes)))
    hints = coverage.hints(bits_of(range(0, 4 * nodes, 2)), nodes)
    return _merging([hints], distances("two packages", nodes, random))


def _sockets(nodes: int) -> Prepare:
    random = Random(nodes)
    span = Span({node: 1 << node // 2 for node in range(nodes)}, nodes // 6)
    free = {node: random.randint(0, 8) for node in range(nodes)}
    hints = _resource([free], [sum(free.values()) // 3], 8, span)
    return _merging([hints], distances("two packages", nodes, random))


def _distribute(nodes: int) -> Prepare:
    random = Random(nodes)
    topology = CPUTopology(from_synthetic(f"pack:2 numa:{nodes // 2} core:8 pu:2(indexes=pu)"))
    free = bits_of(
        cpu
        for cpus in topology.numa_nodes.values()
        for cpu in random.sample(list(iter_bits(cpus)), random.randint(1, 16))
    )
    count = free.bit_count() * 7 // 10
    picker = Picker(topology, CPUPolicyOptions(distribute_cpus_across_numa=True), PODSLICE)
    return lambda: lambda: picker.take(free, count)
