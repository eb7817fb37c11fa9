"""Picking CPUs in profile podslice: always from what is available, always exactly as many as asked."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.config.policy_options import EXCLUSIVE_PAIRS
from podslice.machine.model import Core, CPUTopology, Machine, NUMANode
from podslice.node.cpu.picking.picker import Picker
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS, CPUPolicyOptions
from podslice.values.cpuset import format_bits, iter_bits, parse_bits
from podslice.values.errors import AdmissionError
from podslice.values.quirks import KUBELET_1_36, PODSLICE


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Any machine: sockets and nodes may straddle, cores may have different numbers of threads."""
    sockets, nodes = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    cores: dict[int, list[Core]] = {node: [] for node in range(nodes)}
    cpu = 0
    for index in range(draw(st.integers(nodes, 12))):
        threads = draw(st.integers(1, 3))
        node = index if index < nodes else draw(st.integers(0, nodes - 1))
        caches = draw(st.sampled_from([(), (0,), (1,), (2,)]))
        core = Core(draw(st.integers(0, sockets - 1)), index, tuple(range(cpu, cpu + threads)), caches)
        cores[node].append(core)
        cpu += threads
    return Machine(nodes=tuple(NUMANode(id=node, cores=tuple(own)) for node, own in cores.items()))


LEGAL = [
    CPUPolicyOptions(**{name.replace("-", "_"): True for name in chosen})
    for size in range(len(CPU_POLICY_OPTIONS) + 1)
    for chosen in combinations(CPU_POLICY_OPTIONS, size)
    if not any(set(pair) <= set(chosen) for pair in EXCLUSIVE_PAIRS)
]


@pytest.mark.slow
@settings(max_examples=800, deadline=None)
@given(machine=machines(), data=st.data(), options=st.sampled_from(LEGAL))
def test_exactly_as_many_and_only_available(machine: Machine, data: st.DataObject, options: CPUPolicyOptions) -> None:
    """The result is a subset of the available CPUs of exactly the size asked for, or upstream's error."""
    topology = CPUTopology(machine)
    everything = list(iter_bits(topology.all_cpus))
    available = sum(1 << cpu for cpu in data.draw(st.sets(st.sampled_from(everything))))
    count = data.draw(st.integers(0, len(everything) + 1))
    if count > available.bit_count():
        expected = f"not enough cpus available to satisfy request: requested={count}, available={available.bit_count()}"
        with pytest.raises(AdmissionError) as refusal:
            Picker(topology, options, PODSLICE).take(available, count)
        assert refusal.value.message == expected
        return
    picked = Picker(topology, options, PODSLICE).take(available, count).cpus
    assert picked & ~available == 0
    assert picked.bit_count() == count


VECTORS = [
    ("A", "0-7", 3, {}, "0-1,4"),
    ("A", "1-7", 3, {}, "1,4-5"),
    ("A", "0-7", 3, {"distribute_cpus_across_cores": True}, "0-2"),
    ("B", "0-15", 9, {}, "0-4,8-11"),
    ("B", "1-7,9-15", 5, {}, "1-3,9-10"),
    ("C", "0-31", 18, {}, "0-8,16-24"),
    ("C", "4-31", 8, {}, "4-7,20-23"),
    ("B", "0-15", 10, {"distribute_cpus_across_numa": True}, "0-2,4-6,8-9,12-13"),
    ("B", "0-15", 10, {"distribute_cpus_across_numa": True, "full_pcpus_only": True}, "0-2,4-5,8-10,12-13"),
    ("C", "0-31", 20, {"distribute_cpus_across_numa": True}, "0-10,16-18,20-22,24-26"),
    ("D", "0-63", 32, {"distribute_cpus_across_numa": True}, "0-11,28-43,60-63"),
]
SHAPES = {"A": (1, 1, 4), "B": (2, 2, 4), "C": (4, 2, 4), "D": (8, 2, 4)}


@pytest.mark.parametrize(("machine", "available", "count", "options", "expected"), VECTORS)
def test_published_examples(machine: str, available: str, count: int, options: dict[str, bool], expected: str) -> None:
    """The worked examples (cpu-topology 12.2), in the profile that reproduces upstream."""
    nodes, sockets, per_node = SHAPES[machine]
    total = nodes * per_node
    topology = CPUTopology(
        Machine(
            nodes=tuple(
                NUMANode(
                    id=node,
                    cores=tuple(
                        Core(node * sockets // nodes, core, (core, core + total))
                        for core in range(node * per_node, (node + 1) * per_node)
                    ),
                )
                for node in range(nodes)
            )
        )
    )
    picked = Picker(topology, CPUPolicyOptions(**options), KUBELET_1_36).take(parse_bits(available), count).cpus
    assert format_bits(picked) == expected
