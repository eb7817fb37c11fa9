"""The CPUs of a container after it grew or shrank."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from podslice.machine.model import CPUTopology, whole_objects
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.resize import ResizePicker
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS, CPUPolicyOptions
from podslice.values.cpuset import Bits, bits_of, format_bits, iter_bits, parse_bits
from podslice.values.errors import AdmissionError
from podslice.values.quirks import PODSLICE

BIG = CPUTopology(from_synthetic("pack:2 numa:1 core:8 pu:2(indexes=pu)"))
SMALL = CPUTopology(from_synthetic("pack:1 numa:2 core:2 pu:2(indexes=pu)"))
TWO_SOCKETS = CPUTopology(from_synthetic("pack:2 numa:1 l3:2 core:1 pu:2(indexes=pu)"))
PLAIN = CPUPolicyOptions()
FULL = CPUPolicyOptions(full_pcpus_only=True)
SPREAD = CPUPolicyOptions(distribute_cpus_across_numa=True)
OPTION_SETS = [
    CPUPolicyOptions(**dict(zip((name.replace("-", "_") for name in CPU_POLICY_OPTIONS), flags, strict=True)))
    for flags in itertools.product((False, True), repeat=6)
]
ALLOWED = [
    one
    for one in OPTION_SETS
    if not (one.full_pcpus_only and one.distribute_cpus_across_cores)
    and not (one.distribute_cpus_across_numa and one.distribute_cpus_across_cores)
    and not (one.prefer_align_cpus_by_uncorecache and one.distribute_cpus_across_cores)
    and not (one.prefer_align_cpus_by_uncorecache and one.distribute_cpus_across_numa)
]


@pytest.mark.parametrize(
    ("anchor", "pool", "count", "options", "mask", "expected"),
    [
        pytest.param("2-5", "6-31", 6, PLAIN, None, "2-7", id="beside-what-it-has"),
        pytest.param("2-4", "5-31", 6, PLAIN, None, "2-7", id="first-its-own-core"),
        pytest.param("2-5", "14-31", 8, PLAIN, None, "2-5,14-17", id="then-another-node"),
        pytest.param("2-5", "7,9-31", 8, FULL, None, "2-5,10-13", id="whole-cores-only"),
        pytest.param("2-5", "14-19", 6, PLAIN, None, "2-5,14-15", id="shrink-leaves-the-far-node"),
        pytest.param("2-5", "6-13", 6, PLAIN, None, "2-7", id="shrink-does-not-undo-growth-in-reverse"),
        pytest.param("", "2-5", 2, PLAIN, None, "2-3", id="below-the-baseline"),
        pytest.param("2-3,16-17", "4-15,18-31", 8, SPREAD, 0b11, "2-5,16-19", id="level-over-the-mask"),
        pytest.param("2-5", "6-31", 20, PLAIN, 0b11, "2-21", id="a-node-and-a-part"),
        pytest.param("2-9", "10-31", 10, PLAIN, None, "2-11", id="pod-cpus-grows"),
        pytest.param("2-5", "6-9", 6, PLAIN, None, "2-7", id="a-slice-grows-in-its-pod-cpus"),
        pytest.param("2-9", "10-11", 8, PLAIN, None, "2-9", id="pod-cpus-shrinks"),
        pytest.param("2-5", "6-31", 8, PLAIN, 0b01, "2-9", id="within-the-mask"),
    ],
)
def test_examples(
    anchor: str, pool: str, count: int, options: CPUPolicyOptions, mask: Bits | None, expected: str
) -> None:
    """The specification's worked examples."""
    picked = ResizePicker(BIG, options, PODSLICE).pick(parse_bits(anchor), parse_bits(pool), count, mask)
    assert format_bits(picked) == expected


@pytest.mark.parametrize(
    ("pool", "count", "mask"), [("6-7", 8, None), ("16-31", 6, 0b01), ("6-31", 3, None)], ids=["few", "far", "fewer"]
)
def test_what_cannot_be(pool: str, count: int, mask: Bits | None) -> None:
    """A pool that is too small, or a size below the anchor, is an error and no set."""
    with pytest.raises(AdmissionError, match="not enough cpus available"):
        ResizePicker(BIG, PLAIN, PODSLICE).pick(parse_bits("2-5"), parse_bits(pool), count, mask)


def test_there_are_28_option_sets() -> None:
    """The exclusions above are the kubelet's."""
    assert len(ALLOWED) == 28


def cases(topology: CPUTopology, options: CPUPolicyOptions, chance: random.Random) -> Iterator[tuple[Bits, Bits, int]]:
    """Every size of random anchors and pools; whole cores where the option wants them."""
    for _ in range(12):
        places = (
            list(topology.cores.values())
            if options.full_pcpus_only
            else [1 << cpu for cpu in iter_bits(topology.all_cpus)]
        )
        kinds = [chance.choice("apx") for _ in places]
        anchor = sum(cpus for cpus, kind in zip(places, kinds, strict=True) if kind == "a")
        pool = sum(cpus for cpus, kind in zip(places, kinds, strict=True) if kind == "p")
        step = topology.cpus_per_core if options.full_pcpus_only else 1
        for count in range(anchor.bit_count(), (anchor | pool).bit_count() + 1, step):
            yield anchor, pool, count


@pytest.mark.parametrize("topology", [SMALL, TWO_SOCKETS, BIG], ids=["2-nodes", "caches", "2-sockets"])
@pytest.mark.parametrize(
    "options", ALLOWED, ids=lambda one: "+".join(n for n in one.__struct_fields__ if getattr(one, n)) or "none"
)
def test_promises(topology: CPUTopology, options: CPUPolicyOptions) -> None:
    """Growing keeps every CPU, shrinking takes none from elsewhere; asked twice the answer is the same; cores stay
    whole; shrinking to the promised size gives exactly what was promised."""
    picker = ResizePicker(topology, options, PODSLICE)
    for anchor, pool, count in cases(topology, options, random.Random(5)):
        grown = picker.pick(anchor, pool, count)
        assert grown & anchor == anchor
        assert grown & ~(anchor | pool) == 0
        assert grown.bit_count() == count
        assert picker.pick(grown, pool & ~grown, count) == grown
        assert picker.pick(anchor, grown & ~anchor, anchor.bit_count()) == anchor
        if options.full_pcpus_only:
            assert whole_objects(topology.cores, grown) == grown
        if options.distribute_cpus_across_numa:
            assert level(topology, anchor, pool, grown, options)


def level(topology: CPUTopology, anchor: Bits, pool: Bits, grown: Bits, options: CPUPolicyOptions) -> bool:
    """Whether no CPU was taken on a node while one with fewer had a free unit."""
    unit = topology.cpus_per_core if options.full_pcpus_only else 1
    nodes = topology.numa_nodes.values()
    took = [node for node in nodes if node & grown & ~anchor]
    room = [node for node in took if node & pool & ~grown]
    return all((node & grown).bit_count() <= (other & grown).bit_count() + unit for node in took for other in room)


@pytest.mark.parametrize("topology", [SMALL, TWO_SOCKETS], ids=["2-nodes", "2-sockets"])
def test_nothing_nearer_was_free(topology: CPUTopology) -> None:
    """Against all sets there are: first most CPUs on cores the anchor is on, then on its fullest NUMA node, then on its
    others, then on its sockets."""
    picker = ResizePicker(topology, PLAIN, PODSLICE)
    for anchor, pool, count in cases(topology, PLAIN, random.Random(11)):

        def nearness(chosen: Bits, anchor: Bits = anchor) -> tuple[int, ...]:
            nodes = [
                (-(cpus & anchor).bit_count(), node) for node, cpus in topology.numa_nodes.items() if cpus & anchor
            ]
            places = [whole_objects(topology.cores, anchor), *(topology.numa_nodes[node] for _, node in sorted(nodes))]
            places.append(whole_objects(topology.sockets, anchor))
            return tuple((chosen & place).bit_count() for place in places)

        more = count - anchor.bit_count()
        best = max(nearness(anchor | bits_of(add)) for add in itertools.combinations(iter_bits(pool), more))
        assert nearness(picker.pick(anchor, pool, count)) == best
