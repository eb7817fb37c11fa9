"""Ready-made machines are complete, plausible and name their source."""

from __future__ import annotations

import pytest

from podslice.host.machine_files import DumpFormat, dump_machine, parse_machine
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.model import CPUTopology
from podslice.values.errors import InputError

every_machine = pytest.mark.parametrize("name", gallery_names())


def test_there_are_enough() -> None:
    """At least a dozen machines, among them those the documentation names."""
    assert len(gallery_names()) >= 12
    assert {"epyc-9654-nps1", "epyc-9654-nps4"} <= set(gallery_names())


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
    ],
)
def test_known_shapes(name: str, cpus: int, nodes: int, sockets: int, uncore: int) -> None:
    """Machines have the number of CPUs, NUMA nodes, sockets and uncore caches of their data sheets."""
    machine = load_gallery(name)
    assert (machine.cpu_count, len(machine.nodes), machine.socket_count) == (cpus, nodes, sockets)
    assert len(CPUTopology(machine).uncore_caches) == uncore


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("epyc9654-nps4", "epyc-9654-nps4"), ("altra", "altra-q80-30-2s"), ("zzz", "podslice topology --list")],
)
def test_unknown_names(name: str, remedy: str) -> None:
    """An unknown name is refused with similar ones, or with where to look."""
    with pytest.raises(InputError) as caught:
        load_gallery(name)
    assert remedy in str(caught.value)
