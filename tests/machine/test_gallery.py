"""Ready-made machines are complete, plausible and name their source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podslice.cli.options.machine import resolve_node
from podslice.host.machine_files import DumpFormat, dump_machine, load_machine, parse_machine
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.model import CPUTopology
from podslice.values.cpuset import format_bits
from podslice.values.errors import InputError

every_machine = pytest.mark.parametrize("name", gallery_names())


def test_there_are_enough() -> None:
    """At least a dozen machines, among them those the documentation names."""
    assert len(gallery_names()) >= 12
    assert {"epyc-9654-nps1", "epyc-9654-nps4"} <= set(gallery_names())


def test_the_documentation_lists_them() -> None:
    """docs/machines.md names every ready-made machine, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "machines.md").read_text()
    table = page.split("## Ready-made machines")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert sorted(re.findall(r"`([^`]+)`", "\n".join(rows))) == gallery_names()


@every_machine
def test_machine_is_complete(name: str) -> None:
    """A machine has its name, a description, a vendor's document, CPUs, memory and huge page sizes."""
    machine = load_gallery(name)
    assert machine.name == name
    assert machine.description
    assert machine.architecture
    assert "https://" in machine.source
    assert machine.memory > 1 << 30
    assert all(node.hugepages for node in machine.nodes if node.cores)
    assert CPUTopology(machine).all_cpus == (1 << machine.cpu_count) - 1


@every_machine
def test_distances_are_plausible(name: str) -> None:
    """Every node is closest to itself, the matrix is square and symmetric."""
    machine = load_gallery(name)
    rows = [node.distances or () for node in sorted(machine.nodes, key=lambda node: node.id)]
    assert all(len(row) == len(rows) for row in rows)
    for i, row in enumerate(rows):
        assert row[i] == 10 == min(row)
        assert [other[i] for other in rows] == list(row)


@every_machine
@pytest.mark.parametrize("form", ["yaml", "json", "machineinfo"])
@pytest.mark.slow
def test_round_trip(name: str, form: DumpFormat) -> None:
    """A kubelet sees the same machine after it was written and read in any form."""
    machine = load_gallery(name)
    again = parse_machine(dump_machine(machine, form))
    assert again.nodes == machine.nodes
    assert (again.cpu_count, again.socket_count, again.memory) == (
        machine.cpu_count,
        machine.socket_count,
        machine.memory,
    )


@pytest.mark.parametrize(
    ("name", "cpus", "nodes", "sockets", "uncore"),
    [
        pytest.param("epyc-9654-nps1", 384, 2, 2, 24, id="nps1"),
        pytest.param("epyc-9654-nps4", 384, 8, 2, 24, id="nps4"),
        pytest.param("xeon-8480-2s-snc4", 224, 8, 2, 2, id="snc4"),
        pytest.param("gb200-34-nodes", 144, 34, 2, 2, id="gb200"),
        pytest.param("hybrid-i9-12900k", 24, 1, 1, 1, id="hybrid"),
        pytest.param("epyc-9654-nps2", 384, 4, 2, 24, id="nps2"),
        pytest.param("epyc-7763-nps2-2s", 256, 4, 2, 16, id="Milan nps2"),
        pytest.param("epyc-9755-nps1", 512, 2, 2, 32, id="Turin nps1"),
        pytest.param("epyc-9755-nps4", 512, 8, 2, 32, id="Turin nps4"),
        pytest.param("xeon-6980p-snc3-2s", 512, 6, 2, 2, id="Granite Rapids snc3"),
        pytest.param("xeon-6780e-2s", 288, 2, 2, 2, id="Sierra Forest"),
        pytest.param("xeon-8280-2s", 112, 2, 2, 2, id="Cascade Lake"),
        pytest.param("xeon-6248r-2s-interleaved", 96, 2, 2, 2, id="interleaved"),
        pytest.param("ampereone-a192-32x", 192, 1, 1, 1, id="AmpereOne"),
        pytest.param("graviton4-metal-48xl", 192, 2, 2, 2, id="Graviton4"),
        pytest.param("grace-superchip", 144, 2, 2, 2, id="Grace"),
        pytest.param("gh200-9-nodes", 72, 9, 1, 1, id="Grace Hopper"),
    ],
)
def test_known_shapes(name: str, cpus: int, nodes: int, sockets: int, uncore: int) -> None:
    """Machines have the number of CPUs, NUMA nodes, sockets and uncore caches of their data sheets."""
    machine = load_gallery(name)
    assert (machine.cpu_count, len(machine.nodes), machine.socket_count) == (cpus, nodes, sockets)
    assert len(CPUTopology(machine).uncore_caches) == uncore


def test_numbers_of_cpus() -> None:
    """Dies of 43, 43 and 42 cores, and sockets in turns, as lscpu shows such machines."""
    uneven = CPUTopology(load_gallery("xeon-6980p-snc3-2s")).numa_nodes
    assert [format_bits(uneven[node]) for node in (0, 2, 3)] == ["0-42,256-298", "86-127,342-383", "128-170,384-426"]
    turns = CPUTopology(load_gallery("xeon-6248r-2s-interleaved"))
    assert turns.socket_of[0] == turns.socket_of[2] == 0 != turns.socket_of[1]
    assert format_bits(turns.cores[0]) == "0,48"


def test_names_are_taken_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load_machine`, `--machine` and `--from` take ready-made names, in every folder, and files by their path."""
    (tmp_path / "epyc-9654-nps2").write_text("sockets: 1\ncoresPerNuma: 3\n")
    monkeypatch.chdir(tmp_path)
    ready_made = load_gallery("epyc-9654-nps2")
    assert load_machine("epyc-9654-nps2") == ready_made
    assert resolve_node("epyc-9654-nps2", None, None).machine == ready_made
    assert resolve_node(None, None, ("epyc-9654-nps2",)).machine == ready_made
    assert load_machine("./epyc-9654-nps2").cpu_count == load_machine(Path("epyc-9654-nps2")).cpu_count == 3
    assert resolve_node("pack:1 core:3 pu:1", None, None).machine.cpu_count == 3


def test_a_name_that_is_nearly_right() -> None:
    """Where any source can be given, similar ready-made names are offered, but not for a file that is missing."""
    with pytest.raises(InputError, match=r"epyc9755: does not exist, and is neither .* \(did you mean epyc-9755-nps4"):
        load_machine("epyc9755")
    with pytest.raises(InputError, match=r"epyc-9755.yaml: does not exist.* \(give a snapshot"):
        load_machine("epyc-9755.yaml")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("epyc9654-nps4", "epyc-9654-nps4"), ("altra", "altra-q80-30-2s"), ("zzz", "podslice topology --list")],
)
def test_unknown_names(name: str, remedy: str) -> None:
    """An unknown name is refused with similar ones, or with where to look."""
    with pytest.raises(InputError) as caught:
        load_gallery(name)
    assert remedy in str(caught.value)
