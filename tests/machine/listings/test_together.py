"""Several sources about one node: listings with a Node object, a description of kubectl, a list of GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podslice.host.device_files import load_devices
from podslice.host.machine_files import load_described, load_machine, parse_described
from podslice.machine.listings.nvidia_topo import from_nvidia_topo
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node_objects.describe_text import is_node_description, parse_node_description
from podslice.values.errors import InputError
from tests.machine.listings import printed
from tests.shell import podslice

MACHINE = from_synthetic("pack:2 numa:1(memory=188GiB) l3:1 core:24 pu:2(indexes=48*2:2*24:1*2)")
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "trade-7", "labels": {"kubernetes.io/arch": "amd64"}},
    "status": {
        "capacity": {"cpu": "96", "memory": "394264576Ki", "hugepages-1Gi": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "94", "memory": "384264576Ki", "hugepages-1Gi": "8Gi", "pods": "110"},
    },
}
DESCRIPTION = """\
Name:               trade-7
Roles:              <none>
Labels:             beta.kubernetes.io/os=linux
                    feature.node.kubernetes.io/memory-numa=true
                    kubernetes.io/hostname=trade-7
Annotations:        node.alpha.kubernetes.io/ttl: 0
CreationTimestamp:  Fri, 27 Nov 2026 10:00:00 +0000
Taints:             <none>
Unschedulable:      false
Conditions:
  Type             Status  LastHeartbeatTime  Reason  Message
  ----             ------  -----------------  ------  -------
  MemoryPressure   False   Fri, 27 Nov 2026   KubeletHasSufficientMemory   kubelet has sufficient memory available
Capacity:
  cpu:                96
  ephemeral-storage:  101430960Ki
  hugepages-1Gi:      8Gi
  memory:             394264576Ki
  nvidia.com/gpu:     2
  pods:               110
Allocatable:
  cpu:                94
  ephemeral-storage:  93478772582
  hugepages-1Gi:      8Gi
  memory:             384264576Ki
  nvidia.com/gpu:     2
  pods:               110
System Info:
  Machine ID:                 0123
  Kernel Version:             6.1.0
  OS Image:                   Debian GNU/Linux 12 (bookworm)
  Operating System:           linux
  Architecture:               amd64
  Kubelet Version:            v1.36.2
Non-terminated Pods:          (1 in total)
  Namespace                   Name    CPU Requests  CPU Limits
  ---------                   ----    ------------  ----------
  default                     a       1 (1%)        1 (1%)
Events:              <none>
"""
GPUS = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPXB\t0,2,4,6,8,10\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t1,3,5,7,9,11\t1\t\tN/A
NIC0\tPXB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files of a ticket."""
    for name, text in {
        "lscpu.txt": printed.lscpu_e(MACHINE),
        "numactl.txt": printed.numactl(MACHINE),
        "node.json": json.dumps(NODE),
        "describe.txt": DESCRIPTION,
        "gpus.txt": GPUS,
        "machine.yaml": "",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("node", ["node.json", "describe.txt"])
def test_a_node_object_and_lscpu(folder: Path, node: str) -> None:
    """Places of CPUs come from lscpu, the kubelet's reservations from the Node, memory of nodes from numactl."""
    found = load_described(folder / "lscpu.txt", folder / node, folder / "numactl.txt")
    assert cpu_topology(found.machine).numa_nodes == cpu_topology(MACHINE).numa_nodes
    assert cpu_topology(found.machine).cores == cpu_topology(MACHINE).cores
    assert found.machine.name == "trade-7"
    assert [one.bytes >> 30 for node in found.machine.nodes for one in node.hugepages] == [4, 4]
    assert found.fields == load_described(folder / node).fields
    assert not any("NUMA node" in line and "one" in line for line in map(str, found.assumed) if "huge" not in line)


def test_gpus_are_on_their_nodes(folder: Path) -> None:
    """nvidia-smi says where GPUs are; without CPUs beside it, it is not a machine."""
    found = load_described(folder / "lscpu.txt", folder / "gpus.txt")
    assert found.devices is not None
    (resource,) = found.devices.resources
    assert (resource.resource, [device.numa for device in resource.devices]) == ("nvidia.com/gpu", [(0,), (1,)])
    with pytest.raises(InputError, match=r"gpus\.txt: lists devices, not CPUs"):
        load_described(folder / "gpus.txt")


def test_two_lists_of_gpus(folder: Path) -> None:
    """A second list is not passed over: it says the same, or is refused."""
    (folder / "same.txt").write_text(GPUS)
    (folder / "other.txt").write_text("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-63\t1\n")
    assert load_described(folder / "lscpu.txt", folder / "gpus.txt", folder / "same.txt").devices
    with pytest.raises(InputError, match=r"gpus\.txt and \S*other\.txt list different devices"):
        load_described(folder / "lscpu.txt", folder / "gpus.txt", folder / "other.txt")


@pytest.mark.parametrize("first", ["Roles:", "Labels:", "Taints:", "Conditions:", "Capacity:"])
def test_a_description_without_its_beginning(folder: Path, first: str) -> None:
    """The name is on the first line; the error says which command prints all of it."""
    (folder / "cut.txt").write_text(DESCRIPTION[DESCRIPTION.index(first) :])
    with pytest.raises(InputError) as caught:
        load_described(folder / "cut.txt")
    assert str(caught.value) == (
        f"{folder / 'cut.txt'}: is a description of a node that does not begin with Name: "
        "(give kubectl describe node from its first line to its last)"
    )


@pytest.mark.parametrize("last", ["\nCapacity:", "\nAllocatable:"])
def test_a_description_without_its_end(last: str) -> None:
    """Without amounts it describes no node."""
    with pytest.raises(InputError, match="a description of a node that breaks off before Allocatable:"):
        parse_described(DESCRIPTION[: DESCRIPTION.index(last) + 1], source="cut.txt")


@pytest.mark.parametrize(
    ("affinity", "nodes"),
    [
        pytest.param("0-1", (0, 1), id="range"),
        pytest.param("0-3", (0, 1, 2, 3), id="socket"),
        pytest.param("1,3", (1, 3), id="list"),
        pytest.param("N/A", None, id="none"),
    ],
)
def test_numa_affinity_of_a_gpu(affinity: str, nodes: tuple[int, ...] | None) -> None:
    """A GPU may be near several NUMA nodes, or near none that the driver knows."""
    text = f"\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-63\t{affinity}\n"
    assert from_nvidia_topo(text).resources[0].devices[0].numa == nodes


@pytest.mark.parametrize(
    ("cells", "numa"),
    [
        pytest.param("0-63\t0\t\tN/A", (0,), id="all"),
        pytest.param("\t1\t\tN/A", (1,), id="no cpus"),
        pytest.param("0-63\t\t\tN/A", None, id="no node"),
        pytest.param("        1               N/A", (1,), id="no cpus, tabs pasted as spaces"),
    ],
)
def test_blank_cells_of_a_gpu(cells: str, numa: tuple[int, ...] | None) -> None:
    """A blank for the CPUs, as in a job with few of them, does not move the NUMA node into another column."""
    text = f"\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPIX\t{cells}\nNIC0\tPIX\t X \n"
    assert from_nvidia_topo(text).resources[0].devices[0].numa == numa


def test_gpus_as_devices(folder: Path) -> None:
    """--devices takes the table as well."""
    found = load_devices(str(folder / "gpus.txt"))
    assert found == load_described(folder / "lscpu.txt", folder / "gpus.txt").devices


@pytest.mark.parametrize("affinity", ["9" * 5000, "3-1", "0-5000", "0-"])
def test_numa_affinity_that_is_none(affinity: str) -> None:
    """A text that is not a list of NUMA nodes is refused in a line."""
    with pytest.raises(InputError, match="NUMA nodes"):
        from_nvidia_topo(f"\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-63\t{affinity}\n")


def test_a_whole_machine_is_compared(folder: Path) -> None:
    """A described machine with another numbering than lscpu printed is an error that names both."""
    with pytest.raises(InputError) as caught:
        load_described("pack:2 numa:1(memory=188GiB) core:24 pu:2", folder / "lscpu.txt")
    assert f"the text and {folder / 'lscpu.txt'} disagree: " in str(caught.value)


def test_a_captured_machine_keeps_its_warnings(folder: Path) -> None:
    """The assumption about huge pages stands beside the capture's warnings."""
    (folder / "m.yaml").write_text(
        "apiVersion: podslice.io/v1alpha1\nkind: Machine\nwarnings: [a warning of the capture]\nnodes:\n"
        + "".join(
            f"- {{id: {node.id}, memory: {node.memory >> 10}Ki, cores: ["
            + ", ".join(f"{{socket: {c.socket}, core: {c.core}, threads: {list(c.threads)}}}" for c in node.cores)
            + "]}\n"
            for node in MACHINE.nodes
        )
    )
    found = load_described(folder / "m.yaml", folder / "node.json")
    assert found.machine.warnings == ("a warning of the capture",)
    (one,) = found.machine.assumptions
    assert (one.about, one.text[:44]) == ("hugepages", "huge pages are the same on every NUMA node, ")


def test_two_nodes_are_no_node(folder: Path) -> None:
    """Two objects that each describe a node are not merged."""
    with pytest.raises(InputError, match="each describe a node"):
        load_described(folder / "node.json", folder / "describe.txt")


def test_every_command_takes_them(folder: Path, tmp_path: Path) -> None:
    """`--from` twice is one machine; what was assumed is printed with the answer."""
    sources = ("--from", folder / "lscpu.txt", "--from", folder / "numactl.txt")
    for words in (("admit", "examples/small.yaml"), ("explain", "examples/small.yaml"), ("topology",)):
        answer = podslice(*words, *sources)
        assert answer.returncode == 0, answer.stderr
        assert "the memory of NUMA nodes is whole MiB, as printed" in answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("text", "program"),
    [
        pytest.param("               total        used        free\nMem: 8 1 7\n", "free", id="free"),
        pytest.param("MemTotal: 8 kB\n", "/proc/meminfo", id="meminfo"),
        pytest.param("NAME  STATUS   ROLES  AGE\nn1 Ready <none> 1d\n", "kubectl get nodes", id="get"),
        pytest.param("00:1f.0 ISA bridge: Intel\n", "lspci", id="lspci"),
    ],
)
def test_a_text_that_says_nothing_of_cpus(tmp_path: Path, text: str, program: str) -> None:
    """The program is named, and what to give in place of its output."""
    (tmp_path / "t").write_text(text)
    with pytest.raises(InputError) as caught:
        load_machine(tmp_path / "t")
    assert f"is the output of {program}, " in str(caught.value)
    assert "lscpu -e" in str(caught.value)


def test_lines_left_out_of_a_description() -> None:
    """A remark between the sections, where somebody cut lines, is not a part of the node's name."""
    text = "Name:   node-7\n[ ... lines removed ... ]\nCapacity:\n cpu:  4\nAllocatable:\n cpu:  4\n"
    assert is_node_description(text)
    assert parse_node_description(text)["metadata"]["name"] == "node-7"
