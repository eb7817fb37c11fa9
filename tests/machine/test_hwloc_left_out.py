"""hwloc XML of an lstopo that saw a part of the machine: no CPU is dropped, and none is moved to another NUMA node."""

from __future__ import annotations

import pytest

from podslice.host.machine_files import load_described
from podslice.machine.model import CPUTopology
from podslice.machine.readers.hwloc_xml import read_hwloc_xml
from podslice.values.cpuset import format_bits
from podslice.values.errors import InputError

GIB = 1 << 30
SHOW = "lstopo --disallowed --of xml"


def node(number: int, cpus: int, gib: int) -> str:
    return f'<object type="NUMANode" os_index="{number}" cpuset="0x{cpus:08x}" local_memory="{gib * GIB}"/>'


def package(cpus: list[int], inside: str, nodes: str = "") -> str:
    """Return a package of one-thread cores; `nodes` is its complete_nodeset, none by default."""
    mask = sum(1 << cpu for cpu in cpus)
    complete = f' complete_nodeset="{nodes}"' if nodes else ""
    pus = "".join(
        f'<object type="Core" os_index="{cpu}" cpuset="0x{1 << cpu:08x}">'
        f'<object type="PU" os_index="{cpu}" cpuset="0x{1 << cpu:08x}"/></object>'
        for cpu in cpus
    )
    return f'<object type="Package" os_index="{cpus[0] // 2}" cpuset="0x{mask:08x}"{complete}>{inside}{pus}</object>'


def topology(*packages: str, nodes: int, cpus: int = 0, info: str = "") -> str:
    return (
        f'<topology version="2.0"><object type="Machine" complete_nodeset="0x{nodes:08x}" '
        f'complete_cpuset="0x{cpus:08x}">{info}{"".join(packages)}</object></topology>'
    )


def test_nodes_that_are_left_out() -> None:
    """CPUs are on the node that the object around them names, and its memory is assumed aloud."""
    text = topology(
        package([0, 1], node(1, 0b11, 8), "0x00000002"),
        package([2, 3], "", "0x00000001"),
        package([4, 5], node(2, 0b110000, 4), "0x00000004"),
        nodes=0b111,
    )
    found = read_hwloc_xml(text)
    assert {n: format_bits(cpus) for n, cpus in CPUTopology(found.machine).numa_nodes.items()} == {
        0: "2-3",
        1: "0-1",
        2: "4-5",
    }
    assert {one.id: one.memory // GIB for one in found.machine.nodes} == {0: 4, 1: 8, 2: 4}
    assert tuple(map(str, found.assumed)) == (
        "4096 MiB of memory, as the smallest other node with CPUs, on NUMA node 0 (CPUs 2-3), which the file leaves "
        f"out ({SHOW} shows it)",
    )
    assert load_described(text).machine.assumptions == found.assumed


def test_distances_without_all_nodes_do_not_count() -> None:
    """A matrix of the nodes in the file has no rows for the others."""
    matrix = (
        '<distances2 type="NUMANode" name="NUMALatency"><indexes>0 1</indexes><u64values>10 20 20 10</u64values>'
        "</distances2></topology>"
    )
    packages = [package([0, 1], node(0, 0b11, 1), "0x1"), package([2, 3], node(1, 0b1100, 1), "0x2")]
    whole = topology(*packages, nodes=0b11).replace("</topology>", matrix)
    assert [one.distances for one in read_hwloc_xml(whole).machine.nodes] == [(10, 20), (20, 10)]
    part = topology(*packages, package([4, 5], "", "0x4"), nodes=0b111).replace("</topology>", matrix)
    assert [one.distances for one in read_hwloc_xml(part).machine.nodes] == [None, None, None]


def test_a_node_of_which_nothing_is_left() -> None:
    """A node without CPUs in the file cannot be made up, and its absence is a line."""
    found = read_hwloc_xml(topology(package([0, 1], node(0, 0b11, 1), "0x1"), nodes=0b1001))
    assert [one.id for one in found.machine.nodes] == [0]
    assert tuple(map(str, found.assumed)) == (
        f"no NUMA node 3, which the file leaves out with all that is on it ({SHOW})",
    )


@pytest.mark.parametrize(
    ("info", "nodes", "hidden"),
    [
        pytest.param('<info name="LinuxCgroup" value="/slurm/job_7"/>', 1, True, id="in a cgroup"),
        pytest.param("", 0b11, True, id="without a node"),
        pytest.param('<info name="LinuxCgroup" value="/"/>', 1, False, id="outside"),
    ],
)
def test_cpus_that_are_hidden_or_offline(info: str, nodes: int, hidden: bool) -> None:
    """CPUs that only `complete_cpuset` names are offline, or hidden from lstopo; where that can be, a line says so."""
    found = read_hwloc_xml(topology(package([0, 1], node(0, 0b11, 1), "0x1"), nodes=nodes, cpus=0b1111, info=info))
    assert str(found.machine.offline) == "2-3"
    line = f"CPUs 2-3 are offline, and not only hidden from lstopo ({SHOW} shows it)"
    assert (line in map(str, found.assumed)) is hidden


def test_cpus_on_no_node_at_all() -> None:
    """CPUs of which hwloc says that no node has them are not listed by a kubelet either, and a line says so."""
    text = topology(package([0, 1], node(0, 0b11, 1), "0x1"), package([2, 3], "", "0x0"), nodes=1)
    found = read_hwloc_xml(text)
    assert str(found.machine.cpus) == "0-1"
    assert tuple(map(str, found.assumed)) == ("a kubelet does not list CPUs 2-3, because no NUMA node has them",)


@pytest.mark.parametrize(
    ("around", "nodes"),
    [
        pytest.param("", 0b1, id="nothing around them says it"),
        pytest.param("0x6", 0b111, id="one of two nodes"),
        pytest.param("0x1", 0b1, id="a node of the file that does not list them"),
    ],
)
def test_cpus_that_cannot_be_placed(around: str, nodes: int) -> None:
    """Without a clear answer the file is refused, with the CPUs and what would show them."""
    text = topology(package([0, 1], node(0, 0b11, 1), "0x1"), package([2, 3], "", around), nodes=nodes)
    with pytest.raises(InputError) as caught:
        read_hwloc_xml(text, "node.xml")
    problem = f"node.xml: does not say on which NUMA node CPUs 2-3 are ({SHOW}, outside of containers and jobs)"
    assert str(caught.value) == problem
