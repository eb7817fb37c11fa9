"""Machines from what lscpu, numactl, /proc/cpuinfo and lstopo print."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from podslice.host.machine_files import load_described
from podslice.machine.listings.cpuinfo import from_cpuinfo, is_cpuinfo
from podslice.machine.listings.lscpu import from_lscpu, is_lscpu
from podslice.machine.listings.lstopo import from_lstopo, is_lstopo
from podslice.machine.listings.merge import merge_machine
from podslice.machine.listings.numactl import from_numactl, is_numactl
from podslice.machine.listings.reading import read_listing
from podslice.machine.model import CPUTopology, Machine, cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.errors import InputError
from tests.machine.listings import printed

XEON = "pack:2 numa:1(memory=188GiB) core:24 pu:2"
LINUX = "pack:2 numa:1(memory=188GiB) l3:1 core:24 pu:2(indexes=2*48:1*2)"
INTERLEAVED = "pack:2 numa:1(memory=188GiB) l3:1 core:24 pu:2(indexes=48*2:2*24:1*2)"
EPYC = "pack:2 numa:4(memory=96GiB) l3:3 core:8 pu:2(indexes=2*192:1*2)"
PLAIN = "pack:1 numa:1(memory=32GiB) core:8 pu:1"
MACHINES = [
    pytest.param(XEON, id="adjacent"),
    pytest.param(LINUX, id="linux"),
    pytest.param(INTERLEAVED, id="interleaved"),
    pytest.param(EPYC, id="epyc"),
    pytest.param(PLAIN, id="plain"),
]


def shape(machine: Machine) -> dict[str, object]:
    """Return the machine as the managers see it: CPUs by shared objects, and the ids of NUMA nodes."""
    topology = cpu_topology(machine)
    return {
        "cores": sorted(topology.cores.values()),
        "sockets": sorted(topology.sockets.values()),
        "caches": sorted(topology.uncore_caches.values()),
        "nodes": topology.numa_nodes,
    }


@pytest.mark.parametrize("text", MACHINES)
@pytest.mark.parametrize("form", [printed.lscpu_e, printed.lscpu_p, printed.lscpu_json])
def test_tables_of_lscpu(text: str, form: Callable[[Machine], str]) -> None:
    """Any of lscpu's tables gives the places of CPUs; only memory has to be assumed."""
    machine = from_synthetic(text)
    assert is_lscpu(form(machine))
    found = merge_machine([from_lscpu(form(machine))])
    assert shape(found.machine) == shape(machine)
    (line,) = map(str, found.assumed)
    assert "GiB of memory for each CPU" in line


@pytest.mark.parametrize("text", MACHINES)
def test_numactl_adds_memory(text: str) -> None:
    """With numactl nothing is assumed but the digits that it does not print."""
    machine = from_synthetic(text)
    assert is_numactl(printed.numactl(machine))
    found = merge_machine([from_lscpu(printed.lscpu_e(machine)), from_numactl(printed.numactl(machine))])
    assert shape(found.machine) == shape(machine)
    assert [node.memory for node in found.machine.nodes] == [node.memory for node in machine.nodes]
    assert tuple(map(str, found.assumed)) == (
        "the memory of NUMA nodes is whole MiB, as printed; the kernel's own is not",
    )
    ids = [node.id for node in found.machine.nodes]
    assert {node.id: node.distances for node in found.machine.nodes} == {
        one: tuple(10 if one == other else 21 for other in sorted(ids)) for one in ids
    }


@pytest.mark.parametrize("text", [LINUX, INTERLEAVED, EPYC, PLAIN])
def test_the_summary_of_lscpu(text: str) -> None:
    """The summary says how many threads a core has and which CPUs a node; siblings are assumed as Linux numbers them
    on x86, interleaved nodes or not, and that is said."""
    machine = from_synthetic(text)
    assert is_lscpu(printed.lscpu(machine))
    found = merge_machine([from_lscpu(printed.lscpu(machine)), from_numactl(printed.numactl(machine))])
    assert shape(found.machine) == shape(machine)
    assert any("share a core" in line for line in map(str, found.assumed)) == ("pu:2" in text)


def test_the_summary_in_json_with_headings() -> None:
    """util-linux 2.37 nests the fields of the summary."""
    text = (
        '{"lscpu": [{"field": "Architecture:", "data": "aarch64"}, {"field": "CPU(s):", "data": "4", "children": ['
        '{"field": "On-line CPU(s) list:", "data": "0-3"}]}, {"field": "Thread(s) per core:", "data": "1"},'
        '{"field": "Socket(s):", "data": "1"}, {"field": "NUMA:", "data": null, "children": ['
        '{"field": "NUMA node(s):", "data": "1"}, {"field": "NUMA node0 CPU(s):", "data": "0-3"}]}]}'
    )
    found = merge_machine([from_lscpu(text)])
    assert str(found.machine.cpus) == "0-3"
    assert found.machine.architecture == "aarch64"


def test_offline_cpus() -> None:
    """CPUs that are offline are not CPUs of the machine; old versions print a bare - for what they have not."""
    table = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE\n0 0 0 0 0:0:0:0 yes\n1 0 0 1 1:1:1:0 yes\n2 - - - - no\n"
    rows = (
        '{"cpus": [{"cpu": 0, "node": 0, "socket": 0, "core": 0, "online": true},\n{"cpu": 1, "node": 0, "socket": 0, '
    )
    rows += '"core": 1, "online": true},\n{"cpu": 2, "node": -,\n"socket": -,\n"core": -, "online": false}]}'
    for text in (table, rows):
        machine = merge_machine([from_lscpu(text)]).machine
        assert (str(machine.cpus), str(machine.offline)) == ("0-1", "2")


@pytest.mark.parametrize("text", MACHINES)
def test_cpuinfo(text: str) -> None:
    """/proc/cpuinfo has sockets and cores; with numactl that is a machine."""
    machine = from_synthetic(text)
    assert is_cpuinfo(printed.cpuinfo(machine))
    found = merge_machine([from_cpuinfo(printed.cpuinfo(machine)), from_numactl(printed.numactl(machine))])
    expected = shape(machine)
    assert {**shape(found.machine), "caches": None} == {**expected, "caches": None}


HWLOC_2 = """\
Machine (376GB total)
  Package L#0
    NUMANode L#0 (P#0 188GB)
    L3 L#0 (36MB)
      L2 L#0 (1024KB) + L1d L#0 (32KB) + L1i L#0 (32KB) + Core L#0
        PU L#0 (P#0)
        PU L#1 (P#4)
      L2 L#1 (1024KB) + L1d L#1 (32KB) + L1i L#1 (32KB) + Core L#1
        PU L#2 (P#2)
        PU L#3 (P#6)
    HostBridge
      PCI 00:11.5 (SATA)
        Block(Disk) "sda"
  Package L#1
    NUMANode L#1 (P#1 188GB)
    L3 L#1 (36MB)
      L2 L#2 (1024KB) + L1d L#2 (32KB) + L1i L#2 (32KB) + Core L#2
        PU L#4 (P#1)
        PU L#5 (P#5)
      L2 L#3 (1024KB) + L1d L#3 (32KB) + L1i L#3 (32KB) + Core L#3
        PU L#6 (P#3)
        PU L#7 (P#7)
  Misc(MemoryModule)
"""
HWLOC_1 = """\
Machine (32GB total)
  NUMANode L#0 (P#0 16GB) + Socket L#0 + L3 L#0 (20MB)
    L2 L#0 (256KB) + L1d L#0 (32KB) + Core L#0 + PU L#0 (P#0)
    L2 L#1 (256KB) + L1d L#1 (32KB) + Core L#1 + PU L#1 (P#1)
  NUMANode L#1 (P#1 16GB) + Socket L#1 + L3 L#1 (20MB)
    L2 L#2 (256KB) + L1d L#2 (32KB) + Core L#2 + PU L#2 (P#2)
    L2 L#3 (256KB) + L1d L#3 (32KB) + Core L#3 + PU L#3 (P#3)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(HWLOC_2, "pack:2 numa:1 l3:1 core:2 pu:2(indexes=4*2:2*2:1*2)", id="hwloc-2"),
        pytest.param(HWLOC_1, "pack:2 numa:1 l3:1 core:2 pu:1", id="hwloc-1"),
    ],
)
def test_the_console_of_lstopo(text: str, expected: str) -> None:
    """The tree says where CPUs are, and the memory of nodes to the unit that is printed."""
    assert is_lstopo(text)
    found = merge_machine([from_lstopo(text)])
    machine = from_synthetic(expected.replace("numa:1", "numa:1(memory=16GiB)"))
    assert shape(found.machine) == shape(machine)
    assert {node.memory for node in found.machine.nodes} == {(188 if text is HWLOC_2 else 16) << 30}
    assert "whole GiB" in str(found.assumed[-1])


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        pytest.param("pack:2 numa:1(memory=188GiB) core:24 pu:2", "CPU 1 is on NUMA node 1", id="numbering"),
        pytest.param("pack:2 numa:1(memory=188GiB) core:20 pu:2", "are online in the first only", id="cpus"),
        pytest.param("pack:1 numa:1(memory=188GiB) core:48 pu:2", "CPU 1 is on NUMA node 1", id="nodes"),
    ],
)
def test_texts_of_two_machines(other: str, difference: str) -> None:
    """Two files that cannot be of one machine are an error that names both."""
    one = from_lscpu(printed.lscpu_e(from_synthetic(INTERLEAVED)), "lscpu.txt")
    two = from_numactl(printed.numactl(from_synthetic(other)), "numactl.txt")
    with pytest.raises(InputError) as caught:
        merge_machine([one, two])
    assert "lscpu.txt and numactl.txt disagree: " in str(caught.value)
    assert difference in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n", id="node missing"),
        pytest.param("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 1 size: 5 MB\n", id="cpus missing"),
    ],
)
def test_numactl_that_breaks_off(text: str) -> None:
    """A text that was not copied whole is refused."""
    with pytest.raises(InputError, match="numactl -H"):
        from_numactl(text, "n.txt")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("node 0 size: n MB", "node 0 size: 'n MB' is not a size in MB"),
        ("node 0 size:", "node 0 size: '' is not a size in MB"),
        ("node 0 size: 12.5 GB", "node 0 size: '12.5 GB' is not a size in MB"),
        ("node 0 cpus: 0-1", "node 0 cpus: '0-1' is not a list of CPUs"),
    ],
)
def test_a_line_of_numactl_that_is_no_number(line: str, problem: str) -> None:
    """A line changed by hand is named, and nothing is assumed in its place."""
    text = f"available: 1 nodes (0)\nnode 0 cpus: 0 1\n{line}\n"
    with pytest.raises(InputError) as caught:
        from_numactl(text, "n.txt")
    assert str(caught.value) == f"n.txt: {problem} (give numactl -H as the program printed it)"


def test_a_size_that_numactl_does_not_know() -> None:
    """numactl prints so where the kernel does not tell the size: memory is then assumed, and said."""
    text = "available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: <not available>\n"
    assert from_numactl(text).nodes[0].memory is None


@pytest.mark.parametrize(
    "typed",
    ["$ {}\n", "[root@node7 ~]# {}\n", "root@node7:~# sudo {}\n", "(base) a@node7:/tmp$ /usr/bin/{}\n", "{}\n"],
)
def test_the_line_on_which_a_command_was_typed(typed: str) -> None:
    """A ticket has the prompt and the command above what was printed, and the next prompt below."""
    machine = from_synthetic(INTERLEAVED)
    for command, text in (
        ("numactl -H", printed.numactl(machine)),
        ("lscpu -e", printed.lscpu_e(machine)),
        ("lstopo-no-graphics", HWLOC_2),
    ):
        assert read_listing(typed.format(command) + text) == read_listing(text) is not None


def test_a_summary_with_a_table() -> None:
    """lscpu and lscpu -p in one file: the table says which CPUs share a core, where the summary has only numbers."""
    summary = "CPU op-mode(s): 64-bit\nCPU(s): 4\nThread(s) per core: 2\nCore(s) per socket: 2\nSocket(s): 1\n"
    table = (
        "\n# The following is the parsable format, which\n# CPU,Core,Socket,Node\n0,0,0,0\n1,0,0,0\n2,1,0,0\n3,1,0,0\n"
    )
    assert is_lscpu(summary)
    memory_only = "NUMA node0 CPU(s): 0-3\nNUMA node1 CPU(s):\n"
    assert set(from_lscpu(summary + memory_only + table).nodes) == {0, 1}
    assert from_lscpu(summary + table).places["core"] == {0: 0, 1: 0, 2: 1, 3: 1}
    with pytest.raises(InputError, match="disagree: 6 cpus in the one, 4"):
        from_lscpu(summary.replace("CPU(s): 4", "CPU(s): 6") + table)


@pytest.mark.parametrize("text", ["Architecture: x86_64\nNUMA ノード数: 2\n", "Architektur: x86_64\nCPU(s): 4\n"])
def test_lscpu_in_another_language(text: str) -> None:
    """Translated names would be missed in silence, and the machine would be another one."""
    assert is_lscpu(text)
    with pytest.raises(InputError, match=r"another language .LC_ALL=C"):
        from_lscpu(text)


BOOKS = """\
CPU(s):               20
On-line CPU(s) list:  1-4
Off-line CPU(s) list: 0,5-19
Thread(s) per core:   1
Core(s) per socket:   4
Socket(s) per book:   6
Book(s):              4
"""


def test_books_of_a_mainframe_are_not_those_of_a_partition() -> None:
    """A partition has some cores of the hardware, whose books and sockets lscpu counts; the table has its own."""
    head = "\n# The following is the parsable format, which can be fed to other\n# CPU,Core,Socket,Node\n"
    table = "1,0,0,\n2,1,0,\n3,2,1,\n4,3,1,\n"
    assert load_described(BOOKS + head + table).machine.socket_count == 2


def test_a_list_of_every_other_cpu() -> None:
    """Older lscpu writes a step behind a range."""
    text = "Architecture: x86_64\nCPU(s): 8\nOn-line CPU(s) list: 0-7\nThread(s) per core: 1\nCore(s) per socket: 4\n"
    nodes = "Socket(s): 2\nNUMA node(s): 2\nNUMA node0 CPU(s): 0-6:2\nNUMA node1 CPU(s): 1-7:2\n"
    topology = CPUTopology(load_described(text + nodes).machine)
    assert topology.numa_nodes == {0: 0b01010101, 1: 0b10101010}
    with pytest.raises(InputError, match="is not a list of CPUs"):
        load_described(text + nodes.replace("0-6:2", "0-6:x"))
