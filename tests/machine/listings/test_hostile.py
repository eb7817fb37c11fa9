"""Listings that no program prints: one line, whatever they hold, and no more work than the text is long."""

from __future__ import annotations

import pytest

from podslice.host.machine_files import parse_machine
from podslice.machine.listings.lscpu import from_lscpu
from podslice.machine.listings.merge import merge_machine
from podslice.values.errors import InputError

SUMMARY = "Architecture: x86_64\nCPU(s): 4\nOn-line CPU(s) list: 0-3\n"
DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("Architecture: x86_64\nCPU(s): 999999\n", "more CPUs than Linux supports", id="many"),
        pytest.param("Architecture: x86_64\nCPU(s): 999999999\n", "has no number of CPUs", id="absurd"),
        pytest.param(
            "Architecture: x\nCPU(s): 5\nOn-line CPU(s) list: 0-99999999\n", "is not a list of CPUs", id="range"
        ),
        pytest.param(SUMMARY + "Socket(s): 4\nThread(s) per core: 2\n", "4 sockets do not divide", id="sockets"),
        pytest.param("CPU NODE SOCKET CORE ONLINE\n0 0 0 0 yes\n999999999 0 0 0 yes\n", "not the id of a CPU", id="id"),
        pytest.param("CPU NODE SOCKET CORE ONLINE\n0 0 0 0 yes\n20000 0 0 0 yes\n", "more CPUs than Linux", id="high"),
        pytest.param("CPU NODE SOCKET CORE\n", "lists no CPU", id="header"),
        pytest.param("CPU NODE SOCKET CORE\n0 0 0 0\n1 - 0 1\n", "the NUMA node of CPUs 1", id="no node"),
        pytest.param('{"cpus": [1, {"cpu": [1]}]}', "not the id of a CPU", id="json"),
        pytest.param('{"cpus": ' + "[" * 100_000, "breaks off, or is not lscpu's JSON", id="nested"),
        pytest.param("available: 1 nodes (0)\nnode 0 cpus:\nnode 0 size: 5 MB\n", "lists no CPU", id="no cpus"),
        pytest.param(
            "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 1 cpus: 1 2\n", "CPUs 1 on two NUMA nodes", id="twice"
        ),
        pytest.param(f"available: {DIGITS} nodes (0)\nnode 0 cpus: 0\n", "announces 9999999999 nodes", id="announced"),
        pytest.param(f"processor : {DIGITS}\n", "not the id of a CPU", id="processor"),
        pytest.param(
            "Machine (1GB)\n  " + " + ".join(f"PU L#{n} (P#{n})" for n in range(60_000)),
            "more CPUs than Linux",
            id="deep",
        ),
    ],
)
def test_refused_in_a_line(text: str, problem: str) -> None:
    """Each names what is wrong."""
    with pytest.raises(InputError) as caught:
        parse_machine(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SUMMARY + f"NUMA node{DIGITS} CPU(s): 0-3\n", id="node"),
        pytest.param(SUMMARY + f"L3 cache: 3 MiB ({DIGITS} instances)\n", id="instances"),
        pytest.param(SUMMARY + f"Thread(s) per core: {DIGITS}\nSocket(s): 0\n", id="threads"),
        pytest.param(f"processor : 0\nphysical id : {DIGITS}\ncore id : \u00b2\n", id="superscript"),
        pytest.param("processor : 0\n" + " " * 200_000 + "\n", id="blanks"),
        pytest.param(f"available: 1 nodes (0)\nnode 0 cpus: 0\nnode {DIGITS}\n  0: 10\n", id="distances"),
    ],
)
def test_what_is_no_number_counts_as_not_printed(text: str) -> None:
    """The CPUs are known, so the rest is assumed."""
    assert parse_machine(text).cpu_count in (1, 4)


def test_counts_that_disagree_with_a_table() -> None:
    """A summary of two sockets is not of the machine whose table shows one."""
    table = "CPU NODE SOCKET CORE ONLINE\n" + "".join(f"{n} 0 0 {n} yes\n" for n in range(4))
    summary = from_lscpu(SUMMARY + "Socket(s): 2\n", "lscpu.txt")
    with pytest.raises(InputError, match="2 sockets in the one, 1 in the other"):
        merge_machine([summary, from_lscpu(table, "table.txt")])


def test_two_sockets_in_one_numa_node() -> None:
    """Sockets divide the cores of a node; both threads of a core are in one socket."""
    machine = parse_machine(SUMMARY + "Socket(s): 2\nThread(s) per core: 2\nNUMA node0 CPU(s): 0-3\n")
    assert sorted((core.socket, core.threads) for node in machine.nodes for core in node.cores) == [
        (0, (0, 2)),
        (1, (1, 3)),
    ]
