"""Every form a machine comes in, and back again."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import InputError, Machine
from podslice.core.machine.hwloc_xml import from_hwloc_xml
from podslice.core.machine.machineinfo import from_machineinfo, to_machineinfo
from podslice.core.machine.shape import Shape, expand
from podslice.core.machine.synthetic import from_synthetic, to_synthetic
from podslice.core.machine.topology import CPUTopology
from podslice.gallery import load_gallery, names
from podslice.host.filesystem import MemoryRoot, open_root
from podslice.host.machines import load_machine, machine_from_dict, machine_to_dict, parse_machine
from podslice.host.sysfs import discover


def grouping(machine: Machine) -> list[tuple[int, int, int, int]]:
    """(CPU, core, socket, NUMA node) of every CPU: what no format may lose."""
    t = CPUTopology(machine)
    return [(cpu, t.core_of[cpu], t.socket_of[cpu], t.numa_of[cpu]) for cpu in sorted(t.core_of)]


SHAPES = st.builds(
    Shape,
    sockets=st.integers(1, 4),
    numa_per_socket=st.integers(1, 4),
    cores_per_numa=st.integers(1, 6),
    threads_per_core=st.integers(1, 4),
    numbering=st.sampled_from(["linux", "consecutive"]),
    cores_per_l3=st.integers(0, 3),
    memory_per_numa=st.sampled_from(["1Gi", "96Gi"]),
)


@settings(max_examples=150, deadline=None)
@given(shape=SHAPES)
def test_round_trips(shape: Shape) -> None:
    """A regular machine survives our YAML, MachineInfo JSON and a synthetic string."""
    machine = expand(shape)
    assert machine_from_dict(json.loads(json.dumps(machine_to_dict(machine)))) == machine
    assert grouping(from_machineinfo(json.loads(json.dumps(to_machineinfo(machine))))) == grouping(machine)
    again = from_synthetic(to_synthetic(machine))
    assert grouping(again) == grouping(machine)
    assert [node.memory for node in again.nodes] == [node.memory for node in machine.nodes]


@pytest.mark.parametrize(
    ("text", "cpus", "nodes", "sockets"),
    [
        pytest.param("pack:2 numa:2 core:8 pu:2", 64, 4, 2, id="levels"),
        pytest.param("2 4 2", 16, 1, 2, id="numbers only"),
        pytest.param("Package:1 NUMANode:2(memory=8GiB) L3:2 L2:2 L1d:1 Core:1 PU:2", 16, 2, 1, id="aliases, caches"),
        pytest.param("pack:2 [numa(memory=16GB)] core:4 pu:1", 8, 2, 2, id="attached memory"),
        pytest.param("core:4 pu:2", 8, 1, 1, id="no package"),
    ],
)
def test_synthetic(text: str, cpus: int, nodes: int, sockets: int) -> None:
    """hwloc's synthetic strings give the machine they describe."""
    machine = from_synthetic(text)
    assert (machine.cpu_count, len(machine.nodes), machine.socket_count) == (cpus, nodes, sockets)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param("pack:2 core", "is not a level", id="no count"),
        pytest.param("pack:2 core:0 pu:1", "is not a level", id="zero"),
        pytest.param("pack:2 wheel:4 pu:1", "unknown level 'wheel'", id="unknown"),
        pytest.param("pack:2 core:4", "does not end with processing units", id="no pu"),
        pytest.param("pack:100 core:100 pu:100", "are more than", id="absurd"),
    ],
)
def test_bad_synthetic(text: str, problem: str) -> None:
    """A wrong synthetic string is one line that says what is wrong."""
    with pytest.raises(InputError, match=problem) as error:
        from_synthetic(text)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(shutil.which("lstopo-no-graphics") is None, reason="needs hwloc's lstopo")
@pytest.mark.parametrize("text", ["pack:2 numa:2 l3:1 core:4 pu:2", "pack:1 core:6 pu:1", "pack:4 l3:2 core:2 pu:2"])
def test_hwloc_xml_from_lstopo(text: str) -> None:
    """XML that hwloc writes for a synthetic machine gives the same machine as the string."""
    xml = subprocess.run(
        ["lstopo-no-graphics", "-i", text, "--of", "xml"], capture_output=True, text=True, check=True
    ).stdout
    assert grouping(from_hwloc_xml(xml)) == grouping(from_synthetic(text))


XML = """<?xml version="1.0"?><topology version="2.0"><object type="Machine" cpuset="0x0000000f">
<object type="Package" os_index="0" cpuset="0x0000000f"><object type="NUMANode" os_index="3" cpuset="0x0000000f"
local_memory="1024"><page_type size="4096" count="1"/><page_type size="2097152" count="7"/></object>
<object type="Core" os_index="0" cpuset="0x00000005"><object type="PU" os_index="0" cpuset="0x00000001"/></object>
<object type="Core" os_index="1" cpuset="0x0000000a"/></object></object>
<distances2 type="NUMANode" nbobjs="1"><indexes length="1">3</indexes><u64values length="2">10</u64values></distances2>
</topology>"""


def test_hwloc_xml() -> None:
    """Node ids, siblings, memory, huge pages and distances come from the XML."""
    (node,) = from_hwloc_xml(XML).nodes
    assert (node.id, node.memory, node.distances) == (3, 1024, (10,))
    assert [(pool.page_size_ki, pool.num_pages) for pool in node.hugepages] == [(2048, 7)]
    assert [core.threads for core in node.cores] == [(0, 2), (1, 3)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("<topology", "is not XML", id="xml"),
        pytest.param("<html/>", "is not hwloc XML", id="other xml"),
        pytest.param('<!DOCTYPE a [<!ENTITY b "c">]><topology/>', "declares XML entities", id="entities"),
        pytest.param("{", "is not valid YAML", id="json"),
        pytest.param('{"topology": 3}', "topology: has no list", id="machineinfo"),
        pytest.param("sockets: two", "sockets: expected `int`", id="kind"),
        pytest.param("socket: 2", "unknown field `socket`", id="field"),
        pytest.param(
            "{sockets: 1, coresPerNuma: 1, memoryPerNuma: lots}", "memoryPerNuma: 'lots' is not a size", id="size"
        ),
        pytest.param("sockets: -1", "sockets: -1 is not a positive number", id="negative"),
        pytest.param("nodes: [{id: 0}, {id: 0}]", "same id", id="twice"),
        pytest.param("[1, 2]", "is no machine description", id="list"),
    ],
)
def test_bad_descriptions(text: str, problem: str) -> None:
    """A wrong machine description names the field and the value."""
    with pytest.raises(InputError, match=problem):
        parse_machine(text)


@pytest.mark.parametrize("name", names())
def test_gallery(name: str) -> None:
    """Every machine of the gallery loads and says what it is and where the facts come from."""
    machine = load_gallery(name)
    assert machine.description
    assert machine.source
    assert machine.architecture
    assert CPUTopology(machine).all_cpus.bit_count() == machine.cpu_count


@pytest.mark.parametrize(
    ("name", "cpus", "nodes"),
    [("epyc-9654-nps4", 384, 8), ("epyc-9654-nps1", 384, 2), ("gb200-34-nodes", 144, 34),
     ("power10-s1022-smt8", 320, 2),
     ("core-i9-13900k", 32, 1), ("xeon-8490h-8s", 960, 8), ("laptop-i5-8250u", 8, 1)],
)  # fmt: skip
def test_gallery_counts(name: str, cpus: int, nodes: int) -> None:
    """Well-known machines have the CPUs and NUMA nodes their makers state."""
    machine = load_gallery(name)
    assert (machine.cpu_count, len(machine.nodes)) == (cpus, nodes)


def test_unknown_machine_names_close_ones() -> None:
    """A misspelt machine is answered with what was probably meant."""
    with pytest.raises(InputError, match="did you mean epyc-9654-nps4"):
        load_gallery("epyc-9654-nps5")


def _cpu(number: int, core: int, package: int) -> dict[str, str]:
    directory = f"sys/devices/system/cpu/cpu{number}/topology"
    return {f"{directory}/core_id": f"{core}\n", f"{directory}/physical_package_id": f"{package}\n"}


def test_discovery_fallbacks() -> None:
    """Offline CPUs are left out, memory-only nodes stay, packages stand in for missing NUMA directories."""
    node = "sys/devices/system/node"
    files = {
        **_cpu(0, 0, 0), **_cpu(1, 1, 0), **_cpu(2, 0, 0), **_cpu(3, 1, 0),
        "sys/devices/system/cpu/online": "0-2\n",
        f"{node}/node0/cpumap": "f\n", f"{node}/node0/distance": "10 20\n",
        f"{node}/node0/meminfo": "Node 0 MemTotal: 2048 kB\n",
        f"{node}/node0/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
        f"{node}/node8/cpumap": "0\n", f"{node}/node8/distance": "20 10\n",
    }  # fmt: skip
    machine = discover(MemoryRoot(files))
    assert [node.id for node in machine.nodes] == [0, 8]
    assert [core.threads for core in machine.nodes[0].cores] == [(0, 2), (1,)]
    assert (machine.nodes[0].memory, machine.nodes[0].hugepages[0].num_pages) == (2 << 20, 3)
    assert str(machine.offline) == "3"
    packages = discover(MemoryRoot({**_cpu(0, 0, 0), **_cpu(1, 0, 5)}))
    assert [node.id for node in packages.nodes] == [0, 5]


def test_broken_number_gives_no_cpus_but_a_reason() -> None:
    """Where cAdvisor gives up, the kubelet sees no CPUs; we say why."""
    machine = discover(MemoryRoot({**_cpu(0, 0, 0), "sys/devices/system/cpu/cpu0/topology/core_id": "x"}))
    assert machine.cpu_count == 0
    assert "core_id reads 'x'" in machine.warnings[-1]


def test_snapshots(tmp_path: Path) -> None:
    """Tars are read from whatever folder they were packed in, and never reach outside of themselves."""
    archive = tmp_path / "snap.tar"
    with tarfile.open(archive, "w") as tar:
        for name, text in {**{f"host/{k}": v for k, v in _cpu(0, 0, 0).items()}, "../sys/evil": "x"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    root = open_root(archive)
    assert root.read("sys/evil") is None
    assert load_machine(str(archive)).cpu_count == 1
    (tmp_path / "bad.tar").write_text("x")
    with pytest.raises(InputError, match="is not a readable snapshot"):
        open_root(tmp_path / "bad.tar")
    with pytest.raises(InputError, match="has no sys directory"):
        open_root(tmp_path)
