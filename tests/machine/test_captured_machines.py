"""Every captured machine is read with the facts that independent tools and Kubernetes' own discovery reported."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from podslice.host.discover import discover_snapshot
from podslice.host.machine_files import dump_machine, load_machine
from podslice.machine.model import CPUTopology, Machine, TopologyError
from podslice.values.cpuset import format_bits

SHARED = Path(os.environ.get("PODSLICE_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TOPOLOGIES = SHARED / "topologies"


def _index() -> list[dict[str, Any]]:
    try:
        return json.loads((TOPOLOGIES / "index.json").read_text())["machines"]
    except OSError:
        return []


INDEX = {entry["name"]: entry for entry in _index()}
NAMES = list(INDEX) or [pytest.param("", marks=pytest.mark.skip("needs the shared folder beside the checkout"))]
every_machine = pytest.mark.parametrize("name", NAMES)


@functools.cache
def machine_of(name: str) -> Machine:
    return discover_snapshot(TOPOLOGIES / INDEX[name]["file"])


@functools.cache
def read_expected(name: str) -> dict[str, Any]:
    return json.loads((TOPOLOGIES / INDEX[name]["expected"]).read_text())


def group_of(machine: Machine, kind: str) -> dict[int, tuple[int, int]]:
    """For each CPU the name (lowest CPU) and id of its group."""
    return {cpu: (min(g.cpus), g.id) for g in machine.groups_of(kind) for cpu in g.cpus}


def test_all_machines_are_there(shared: Path) -> None:
    """No captured machine is left out of these tests."""
    assert len(INDEX) == 160


@pytest.mark.slow
@every_machine
def test_kubelet_facts(name: str) -> None:
    """Core, socket, node and uncore cache of every CPU, and the counters, are those of Kubernetes' own discovery."""
    expected = read_expected(name)
    if expected["kubelet_summary"] is None:
        with pytest.raises(TopologyError) as refusal:
            CPUTopology(machine_of(name))
        assert str(refusal.value) == expected["kubelet_errors"]["kubelet_discover"]
        assert machine_of(name).warnings
        return
    topology = CPUTopology(machine_of(name))
    seen = {
        cpu: {
            "core": topology.core_of[cpu],
            "socket": topology.socket_of[cpu],
            "node": topology.numa_of[cpu],
            "uncore": topology.uncore_of[cpu],
        }
        for cpu in topology.numa_of
    }
    assert seen == {cpu["cpu"]: cpu["kubelet"] for cpu in expected["cpus"] if "kubelet" in cpu}
    assert expected["kubelet_summary"] == {
        "NumCPUs": topology.num_cpus,
        "NumCores": topology.num_cores,
        "NumUncoreCache": len(topology.uncore_caches),
        "NumSockets": topology.num_sockets,
        "NumNUMANodes": len(topology.numa_nodes),
    }


@pytest.mark.slow
@every_machine
def test_cpu_facts(name: str) -> None:
    """Online state, core, socket, node, L3, die, book, drawer and the kernel's ids of every CPU are those of hwloc and
    lscpu, but for the fields on which the tools themselves disagree."""
    machine, expected = machine_of(name), read_expected(name)
    skipped = set(INDEX[name]["disagreeing_fields"])
    groups = {kind: group_of(machine, kind) for kind in ("core", "package", "die", "book", "drawer")}
    l3 = {cpu: min(cache.cpus) for cache in machine.caches if cache.level == 3 for cpu in cache.cpus}
    node = {cpu: n.id for n in machine.kernel_nodes for cpu in n.cpus}
    nothing = (None, None)
    for cpu in expected["cpus"]:
        number = cpu["cpu"]
        assert cpu["online"] == (number not in machine.offline), number
        if not cpu["online"]:
            continue
        ours = {
            "core": groups["core"].get(number, nothing)[0],
            "socket": groups["package"].get(number, nothing)[0],
            "node": node.get(number),
            "l3": l3.get(number),
            "core_id": groups["core"].get(number, nothing)[1],
            "package_id": groups["package"].get(number, nothing)[1],
            "die": groups["die"].get(number, nothing)[0],
            "book": groups["book"].get(number, nothing)[1],
            "drawer": groups["drawer"].get(number, nothing)[1],
        }
        for field, value in cpu.items():
            if field not in ours or field in skipped or not _reported(expected, field, value):
                continue
            assert ours[field] == (int(value) if field == "drawer" else value), (number, field)


def _reported(expected: dict[str, Any], field: str, value: Any) -> bool:
    """Whether any tool had an answer; a missing L3 is one."""
    if field == "node":
        return value is not None or not expected["notes"]["node"].endswith("by ")
    return value is not None or field not in ("core_id", "package_id")


@pytest.mark.slow
@every_machine
def test_node_facts(name: str) -> None:
    """Ids, CPUs, memory, distances and huge pages of every NUMA node are those of the tools."""
    machine, expected = machine_of(name), read_expected(name)
    skipped = set(INDEX[name]["disagreeing_fields"])
    nodes = {node.id: node for node in machine.kernel_nodes}
    assert sorted(nodes) == sorted(node["id"] for node in expected["nodes"])
    by_nobody = expected["notes"]["node"].endswith("by ")
    for node in expected["nodes"]:
        ours = nodes[node["id"]]
        if "node" not in skipped and not by_nobody:
            assert str(ours.cpus) == node["cpus"]
        if node["memory_bytes"] is not None:
            assert ours.memory == node["memory_bytes"]
        if "distances" not in skipped:
            assert (None if ours.distances is None else list(ours.distances)) == node["distances"]
        pages = {str(pool.page_size_ki): pool.num_pages for pool in ours.hugepages}
        assert pages == (node["hugepages_kb"] or {})


@pytest.mark.slow
@every_machine
def test_index_facts(name: str) -> None:
    """Offline and isolated CPUs, core types and the memory of the machine are those of the index."""
    machine, entry = machine_of(name), INDEX[name]
    assert str(machine.offline) == entry["offline_cpus"]
    assert str(machine.isolated) == (entry["isolated_cpus"] or "")
    assert bool(machine.core_types) == bool(entry["hybrid"])
    for kind in entry["frequency_kinds"] or ():
        assert (int(kind["LinuxCapacity"]), kind["cpus"]) in [(t.capacity, str(t.cpus)) for t in machine.core_types]
    if entry["has_meminfo"] and entry["memory_total_bytes"]:
        assert machine.memory == entry["memory_total_bytes"]


@pytest.mark.slow
@every_machine
def test_full_form_carries_everything(name: str) -> None:
    """A captured machine written as YAML or JSON and read again is the same machine."""
    machine = machine_of(name)
    assert load_machine(dump_machine(machine, "yaml")) == machine
    assert load_machine(dump_machine(machine, "json")) == machine


def _machineinfo_files() -> list[Path]:
    return sorted((SHARED / "machineinfo" / "generated").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", _machineinfo_files(), ids=lambda path: path.stem)
def test_discovery_is_cadvisors(path: Path) -> None:
    """Discovery gives the nodes, cores, threads, caches, memory and huge pages of cAdvisor's MachineInfo."""
    recorded = json.loads(path.read_text())
    snapshot = SHARED / recorded["snapshot"]
    if not snapshot.exists():
        pytest.skip("its snapshot is not in the shared folder")
    theirs = load_machine(path)
    ours = discover_snapshot(snapshot)
    assert (ours.num_cores, ours.num_sockets) == (theirs.num_cores, theirs.num_sockets)
    assert ours.memory_capacity == theirs.memory_capacity
    assert (ours.hugepages or ()) == theirs.hugepages
    assert [node.id for node in ours.nodes] == [node.id for node in theirs.nodes]
    for our_node, their_node in zip(ours.nodes, theirs.nodes, strict=True):
        assert _outline(our_node) == _outline(their_node)


def _outline(node: Any) -> tuple[Any, ...]:
    """cAdvisor's recording sorts the threads of a core as it pleases; nothing depends on their order."""
    cores = [(core.socket, core.core, sorted(core.threads), core.uncore_caches) for core in node.cores]
    return node.memory, node.hugepages, node.distances, cores


@pytest.mark.parametrize("path", _machineinfo_files(), ids=lambda path: path.stem)
def test_recorded_machineinfo_gives_recorded_topology(path: Path) -> None:
    """The CPU topology built from recorded MachineInfo is the one Kubernetes built from it."""
    recorded = json.loads(path.read_text())["kubelet_topology"]
    if recorded is None:
        pytest.skip("Kubernetes refused this machine")
    topology = CPUTopology(load_machine(path))
    assert {
        str(cpu): {
            "NUMANodeID": topology.numa_of[cpu],
            "SocketID": topology.socket_of[cpu],
            "CoreID": topology.core_of[cpu],
            "UncoreCacheID": topology.uncore_of[cpu],
        }
        for cpu in topology.numa_of
    } == recorded["CPUDetails"]
    assert topology.num_cpus == recorded["NumCPUs"]
    assert topology.num_sockets == recorded["NumSockets"]


def test_s390x_kubelets_tell_ledger_apart(shared: Path) -> None:
    """On s390x itself cores with equal ids in different ledgers are different cores."""
    from podslice.host.discover import discover
    from podslice.host.snapshot import open_snapshot

    fs = open_snapshot(TOPOLOGIES / INDEX["lscpu-s390-lpar"]["file"])
    assert CPUTopology(discover(fs)).num_cores == 5
    topology = CPUTopology(discover(fs, system_z=True))
    assert topology.num_cores == 7
    assert format_bits(topology.all_cpus) == format_bits(CPUTopology(discover(fs)).all_cpus)
