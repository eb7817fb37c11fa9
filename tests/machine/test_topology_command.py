"""`podslice topology` shows machines of every origin and writes them in every form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from podslice.host.machine_files import parse_machine
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.model import Core, Machine, NUMANode
from podslice.machine.readers.machineinfo import to_machineinfo
from podslice.render.table import format_bytes
from podslice.topology.command import topology
from podslice.topology.table import cpus_text, to_text
from podslice.values.errors import InputError
from tests.read_documents import read_document


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(topology, arguments, input=stdin, catch_exceptions=False)


def test_this_machine() -> None:
    """Without options it shows the machine it runs on."""
    result = run()
    assert result.exit_code == 0
    assert "NUMA nodes" in result.stdout


def test_gallery_machine() -> None:
    """The summary has the facts, a row for each NUMA node and the distances, without colour off a terminal."""
    lines = run("--machine", "epyc-9654-nps4").stdout.splitlines()
    assert lines[0] == "Machine: epyc-9654-nps4, 384 CPUs, 8 NUMA nodes (--machine epyc-9654-nps4)"
    assert lines[2] == "epyc-9654-nps4 (x86_64)"
    assert "CPUs        384 (0-383)" in lines
    assert "Cores       192, 2 threads each" in lines
    assert "Uncore      24 groups of 16 CPUs" in lines
    assert "7     1          24    48  168-191,360-383  192 GiB  3 × 32 MiB" in lines
    assert "7         32  32  32  32  12  12  12  10" in lines


@pytest.mark.parametrize("name", gallery_names())
def test_summary_fits_a_terminal(name: str) -> None:
    """Tables stay within 100 columns for every ready-made machine and no line ends in spaces."""
    text = to_text(load_gallery(name))
    rows = [line for line in text.splitlines() if line[:1].isdigit()]
    assert rows
    assert max(map(len, rows)) <= 100
    assert all(line == line.rstrip() for line in text.splitlines())


def test_many_equal_nodes_become_one_row() -> None:
    """Runs of equal memory-only nodes share a row, and their distances a sentence."""
    text = to_text(load_gallery("gb200-34-nodes"))
    assert "\n3-9 " in text
    assert "Nodes without CPUs: 80 to and from every other node." in text


def test_wide_lists_every_core() -> None:
    """`-o wide` adds a row for each core."""
    text = run("--machine", "laptop-i5-8250u", "-o", "wide").stdout
    assert text.rstrip().endswith("3               3       0     0       -  3,7")


def test_colour() -> None:
    """Colour is used on request, and only adds escapes."""
    machine = load_gallery("laptop-i5-8250u")
    coloured = to_text(machine, colour=True)
    assert "\x1b[" in coloured
    assert "\x1b[" not in to_text(machine)


def test_described_machine_to_every_form() -> None:
    """A described machine comes out in each machine-readable form and reads back."""
    for form in ("yaml", "json", "machineinfo", "synthetic"):
        result = run("--from", "pack:2 numa:2 core:2 pu:2", "-o", form)
        assert result.exit_code == 0
        assert len(parse_machine(result.stdout).nodes) == 4


def test_stdin() -> None:
    """`--from -` reads standard input."""
    result = run("--from", "-", "-o", "json", stdin="sockets: 1\ncoresPerNuma: 2\n")
    assert len(read_document(result.stdout, "Machine")["nodes"][0]["cores"]) == 2


def test_what_is_lost_is_said() -> None:
    """Writing a synthetic description notes on standard error what it leaves out."""
    result = run("--machine", "epyc-9654-nps4", "-o", "synthetic")
    assert result.stdout == "pack:2 numa:4(memory=206158430208) l3:3(size=33554432) core:8 pu:2(indexes=core)\n"
    assert "leaves out NUMA distances" in result.stderr


@pytest.mark.slow
def test_list() -> None:
    """`--list` names every ready-made machine, also as JSON."""
    assert all(name in run("--list").stdout for name in gallery_names())
    listed = read_document(run("--list", "-o", "json").stdout, "MachineList")["items"]
    assert [entry["name"] for entry in listed] == gallery_names()


def test_captured_machine(shared: Path) -> None:
    """A snapshot shows what the kubelet misses."""
    path = shared / "topologies" / "snapshots" / "hwloc-offline-cpu0-node0.tar.xz"
    text = run("--sysfs", str(path)).stdout
    assert "Not seen    4,6,8,10,12,14,16,18,20 (online, but a kubelet does not list them)" in text
    assert "Offline     0-3,21-23" in text


def test_kubelet_that_sees_nothing(shared: Path) -> None:
    """A machine on which a kubelet cannot start is shown with its NUMA nodes and the reason."""
    path = shared / "topologies" / "snapshots" / "libvirt-test1.tar.xz"
    text = run("--sysfs", str(path)).stdout
    assert "none that a kubelet can see" in text
    assert "! a kubelet sees no CPUs here and does not start" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--machine", "no-such"), "unknown machine 'no-such'"),
        (("--machine", "a", "--from", "b"), "--machine and --from name a machine twice"),
        (("--sysfs", "/no/such"), "/no/such: does not exist"),
        (("--from", "/no/such"), "does not exist"),
        (("--machine", "gb200-34-nodes", "-o", "synthetic"), "no synthetic description"),
    ],
)
def test_errors(arguments: tuple[str, ...], problem: str) -> None:
    """Unusable options are refused in one line."""
    with pytest.raises(InputError, match=problem):
        run(*arguments)


def test_sizes_and_lists() -> None:
    """Sizes and CPU lists are short and exact where they can be."""
    assert [format_bytes(v) for v in (0, 1023, 48 << 10, 1536 << 30, 3 << 20)] == [
        "0 B", "1023 B", "48 KiB", "1.5 TiB", "3 MiB",
    ]  # fmt: skip
    strided = sum(1 << cpu for cpu in range(0, 112, 4))
    assert cpus_text(strided) == "0,4,…,108"
    assert cpus_text(strided, full=True).endswith("104,108")
    assert cpus_text(0) == "-"
    ragged = strided | 1 << 200
    assert cpus_text(ragged).endswith(",…")
    assert len(cpus_text(ragged)) <= 36


def test_uncore_groups_are_the_kubelets() -> None:
    """A core without an uncore cache beside cores that have one is in the group of its socket's number."""
    cores = (Core(0, 0, (0,), (0,)), Core(0, 1, (1,), (0,)), Core(0, 2, (2,)), Core(0, 3, (3,)))
    text = to_text(Machine(nodes=(NUMANode(0, 1 << 30, cores=cores),)), wide=True)
    assert "Uncore      1 group of 4 CPUs" in text
    assert [line.split()[4] for line in text.splitlines() if line[:1].isdigit()][-4:] == ["0"] * 4


def test_overlapping_nodes_are_said() -> None:
    """Where NUMA nodes share CPUs, the number of CPUs is theirs and a sentence gives the kubelet's count."""
    shared = Core(0, 0, (0, 1))
    machine = Machine(nodes=(NUMANode(0, 1, cores=(shared,)), NUMANode(1, 1, cores=(shared, Core(0, 1, (2,))))))
    assert "CPUs        3 (0-2); NUMA nodes overlap: the kubelet counts 5" in to_text(machine)


def test_physical_cores_are_counted_as_cadvisor_does(shared: Path) -> None:
    """num_physical_cores is the number of core ids, as in recorded MachineInfo of two sockets."""
    text = (shared / "machineinfo" / "generated" / "nto-master-bare-metal.json").read_text()
    recorded = json.loads(text)
    recorded = recorded.get("machineinfo", recorded)
    assert to_machineinfo(parse_machine(text))["num_physical_cores"] == recorded["num_physical_cores"] == 28


def test_cpus_that_no_node_lists(tmp_path: Path) -> None:
    """The page says what follows from the machine; a file written from it says the same, and no more."""
    line = "assumed: a kubelet counts 4 CPUs and gives out 0-1, because no NUMA node lists the others"
    written = tmp_path / "machine.yaml"
    text = "kind: Machine\nnumCores: 4\nnodes:\n- id: 0\n  cores:\n  - {socket: 0, core: 0, threads: [0, 1]}\n"
    written.write_text("apiVersion: podslice.io/v1alpha1\n" + text)
    assert run("--from", str(written)).stdout.count(line) == 1
    once = run("--from", str(written), "-o", "yaml").stdout
    assert line not in once
    written.write_text(once)
    assert run("--from", str(written), "-o", "yaml").stdout == once
    assert run("--from", str(written)).stdout.count(line) == 1
