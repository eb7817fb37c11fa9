"""Numbers of CPUs and NUMA nodes in one-line machines: hwloc's `indexes=`, Linux' numbering, and what is assumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice.host.machine_files import load_described
from podslice.machine.model import CPUTopology, Machine
from podslice.machine.readers.form import from_data
from podslice.machine.readers.synthetic import from_synthetic, read_synthetic
from podslice.values.cpuset import format_bits
from podslice.values.errors import InputError


def cores_by_node(machine: Machine) -> list[str]:
    """Return the cores of each NUMA node, the lowest CPU first."""
    topology = CPUTopology(machine)
    return [
        " ".join(format_bits(core).replace("-", ",") for core in topology.cores.values() if core & cpus)
        for cpus in topology.numa_nodes.values()
    ]


# The numbers that lstopo 2.9 gives the threads of two NUMA nodes of three cores.
NUMBERED = [
    pytest.param("1*12", ["0,1 2,3 4,5", "6,7 8,9 10,11"], id="one after another"),
    pytest.param("2*6:1*2", ["0,6 1,7 2,8", "3,9 4,10 5,11"], id="loops"),
    pytest.param("2*6", ["0,6 1,7 2,8", "3,9 4,10 5,11"], id="last loop added"),
    pytest.param("6*2", ["0,2 4,6 8,10", "1,3 5,7 9,11"], id="last loop of a greater step added"),
    pytest.param("6*2:2*3", ["0,6 2,8 4,10", "1,7 3,9 5,11"], id="two loops and the last one added"),
    pytest.param("core", ["0,6 1,7 2,8", "3,9 4,10 5,11"], id="cores in turns"),
    pytest.param("machine:core", ["0,6 1,7 2,8", "3,9 4,10 5,11"], id="one machine has no turns"),
    pytest.param("numa", ["0,2 4,6 8,10", "1,3 5,7 9,11"], id="nodes in turns, threads of a core together"),
    pytest.param("numa:core", ["0,6 2,8 4,10", "1,7 3,9 5,11"], id="nodes in turns"),
    pytest.param("pack:numa:core", ["0,6 2,8 4,10", "1,7 3,9 5,11"], id="packages in turns"),
    pytest.param("0,1,2,3,4,5,6,7,8,9,11,10", ["0,1 2,3 4,5", "6,7 8,9 10,11"], id="list"),
]


@pytest.mark.parametrize(("indexes", "cores"), NUMBERED)
def test_indexes_of_hwloc(indexes: str, cores: list[str]) -> None:
    """`indexes=` means what it means to hwloc, and nothing is assumed beside it."""
    found = read_synthetic(f"pack:2 numa:1(memory=1GiB) core:3 pu:2(indexes={indexes})")
    assert cores_by_node(found.machine) == cores
    assert found.assumed == ()


def test_pu_alone_numbers_one_after_another() -> None:
    """`indexes=pu` is the numbering that hwloc has without indexes."""
    text = "pack:2 numa:1 core:3 pu:2"
    assert from_synthetic(f"{text}(indexes=pu)").nodes == from_synthetic(f"{text}(indexes=1*12)").nodes


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        pytest.param("pack:2 core:24 pu:2", {"sockets": 2, "coresPerNuma": 24}, id="two sockets"),
        pytest.param("pack:2 numa:4 core:6 pu:2", {"sockets": 2, "numaPerSocket": 4, "coresPerNuma": 6}, id="nodes"),
        pytest.param("pack:1 core:4 pu:4", {"sockets": 1, "coresPerNuma": 4, "threadsPerCore": 4}, id="four threads"),
    ],
)
def test_default_is_that_of_linux(text: str, shape: dict[str, int]) -> None:
    """Without indexes the first threads of all cores come before the second ones, as in the short form in YAML."""
    one_line = from_synthetic(text if "numa" in text else text.replace("core", "numa:1 core"))
    short_form = from_data({"threadsPerCore": 2, "memoryPerNuma": "1Gi", **shape})
    assert CPUTopology(one_line).core_of == CPUTopology(short_form).core_of
    assert CPUTopology(one_line).numa_of == CPUTopology(short_form).numa_of


UNEVEN = [
    pytest.param(
        "pack:1 numa:3(memory=96GiB) core:43,43,42 pu:2",
        ["0-42,128-170", "43-85,171-213", "86-127,214-255"],
        id="one after another",
    ),
    pytest.param(
        "pack:2 numa:2(memory=8GiB) core:2,1 pu:2",
        ["0-1,6-7", "2,8", "3-4,9-10", "5,11"],
        id="the list starts again on the second package",
    ),
    # CPU 0 on node 0, CPU 1 on node 1, CPU 2 on node 0 and so on; node 1 has no third core, so node 0 has CPUs 4 and 5.
    pytest.param("numa:2(memory=8GiB) core:4,2 pu:1(indexes=numa)", ["0,2,4-5", "1,3"], id="nodes in turns"),
    pytest.param(
        "numa:2(memory=8GiB) core:3,2 pu:2(indexes=numa:core)", ["0,2,4-5,7,9", "1,3,6,8"], id="turns and threads"
    ),
    pytest.param("numa:1(memory=8GiB) core:4 pu:2,2,1,1", ["0-5"], id="cores without a second thread"),
]


@pytest.mark.parametrize(("text", "nodes"), UNEVEN)
def test_uneven_nodes(text: str, nodes: list[str]) -> None:
    """NUMA nodes of different sizes, in a list of counts."""
    topology = CPUTopology(from_synthetic(text))
    assert [format_bits(cpus) for cpus in topology.numa_nodes.values()] == nodes


def test_memory_of_each_node() -> None:
    """Memory that differs is a list, of levels and of attached nodes; it starts again at its end."""
    level = from_synthetic("pack:2 numa:2(memory=96GiB,32GiB) core:2 pu:1")
    assert [node.memory >> 30 for node in level.nodes] == [96, 32, 96, 32]
    attached = from_synthetic("pack:2 [numa(memory=96GiB,64GiB)][numa(memory=16GiB)] core:2 pu:1")
    assert [node.memory >> 30 for node in attached.nodes] == [96, 16, 64, 16]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        pytest.param("pack:2 [numa(indexes=3,1)] core:1 pu:1", {3: "0", 1: "1"}, id="list"),
        pytest.param("pack:2 [numa][numa(indexes=2*2:1*2)] core:1 pu:1", {0: "0", 1: "1"}, id="loops over all of them"),
        # The nodes of inner objects come first: 4 and 5 in package 0, then its own, 6.
        pytest.param(
            "pack:2 [numa] die:2 [numa(indexes=4,5,6,7,8,9)] core:1 pu:1", {4: "0", 5: "1", 7: "2", 8: "3"}, id="levels"
        ),
        pytest.param("numa:2(indexes=8,0) core:1 pu:1", {8: "0", 0: "1"}, id="a level"),
        pytest.param(
            "pack:2(indexes=3,5) numa:2(indexes=pack) core:1 pu:1", {0: "0", 2: "1", 1: "2", 3: "3"}, id="turns"
        ),
        pytest.param(
            "pack:2 [numa] [numa] core:2 [numa(indexes=8,7,5,6,4,3,1,2)] pu:1",
            {8: "0", 7: "1", 4: "2", 3: "3"},
            id="three nodes in turn",
        ),
    ],
)
def test_ids_of_nodes(text: str, nodes: dict[int, str]) -> None:
    """Ids of NUMA nodes are those that lstopo 2.9 gives them; attached ones are numbered together."""
    assert {n: format_bits(cpus) for n, cpus in CPUTopology(from_synthetic(text)).numa_nodes.items()} == nodes


ASSUMED = [
    pytest.param(
        "pack:2 numa:1(memory=188GiB) core:24 pu:2",
        ["CPUs numbered as Linux on x86: 0 and 48 share a core, NUMA node 0 has 0-23,48-71; say indexes= if not "
         "(docs/machines.md)"],
        id="siblings and nodes",
    ),
    pytest.param(
        "pack:2 [numa(memory=1GiB)] core:4 pu:1",
        ["CPUs numbered as Linux on x86: NUMA node 0 has 0-3; say indexes= if not (docs/machines.md)"],
        id="nodes",
    ),
    pytest.param(
        "[numa(memory=1GiB)] pack:2 core:4 pu:1",
        ["CPUs numbered as Linux on x86: socket 0 has 0-3; say indexes= if not (docs/machines.md)"],
        id="sockets",
    ),
    pytest.param(
        "[numa(memory=1GiB)] l3:2 core:4 pu:1",
        ["CPUs numbered as Linux on x86: L3 cache 0 has 0-3; say indexes= if not (docs/machines.md)"],
        id="caches",
    ),
    pytest.param("numa:1(memory=1GiB) core:4 pu:1", [], id="any order means the same"),
    pytest.param(
        "numa:1 core:4 pu:1", ["1 GiB of memory on each NUMA node; say numa:1(memory=64GiB) if not"], id="level"
    ),
    pytest.param("core:4 pu:1", ["1 GiB of memory; begin with [numa(memory=64GiB)] if not"], id="memory of a machine"),
    pytest.param("[numa] core:4 pu:1", ["no memory on any NUMA node; say [numa(memory=64GiB)] if not"], id="no memory"),
]  # fmt: skip


def test_a_file_that_disagrees_with_what_is_assumed(tmp_path: Path) -> None:
    """The error says what was only assumed of the one-line machine."""
    numactl = tmp_path / "numactl.txt"
    numactl.write_text("available: 2 nodes (0-1)\nnode 0 cpus: 0 2\nnode 0 size: 1024 MB\nnode 1 cpus: 1 3\n")
    with pytest.raises(
        InputError, match=r"the text and .*numactl.txt disagree: .*\(the text does not say it; assumed: CPUs"
    ):
        load_described("pack:2 numa:1(memory=1GiB) core:2 pu:1", numactl)
    load_described("pack:2 numa:1(memory=1GiB) core:2 pu:1(indexes=numa)", numactl)


@pytest.mark.parametrize(("text", "lines"), ASSUMED)
def test_assumptions(text: str, lines: list[str]) -> None:
    """Each number that the text leaves open is an assumption of the machine; those that it gives are not."""
    found = load_described(text)
    assert list(map(str, found.assumed)) == lines
    assert found.machine.assumptions == found.assumed
