"""160 captured machines are read as a kubelet and as independent tools read them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from podslice.core.machine.machineinfo import from_machineinfo
from podslice.core.machine.model import Machine
from podslice.core.machine.topology import CPUTopology, TopologyError
from podslice.host.machines import load_snapshot

_SHARED = Path(os.environ.get("PODSLICE_SHARED", Path(__file__).resolve().parents[3] / "shared"))
_INDEX = _SHARED / "topologies" / "index.json"
MACHINES: list[dict[str, Any]] = json.loads(_INDEX.read_text())["machines"] if _INDEX.exists() else []

pytestmark = pytest.mark.skipif(not MACHINES, reason="needs the shared folder beside the checkout")


def kubelet_facts(machine: Machine) -> dict[int, dict[str, int]]:
    try:
        topology = CPUTopology(machine)
    except TopologyError:
        return {}
    return {
        cpu: {
            "core": topology.core_of[cpu],
            "socket": topology.socket_of[cpu],
            "node": topology.numa_of[cpu],
            "uncore": topology.uncore_of[cpu],
        }
        for cpu in topology.core_of
    }


@pytest.mark.parametrize("entry", MACHINES, ids=lambda entry: entry["name"])
def test_captured_machine(entry: dict[str, Any]) -> None:
    """The kubelet's facts agree for every CPU, the hardware's except where the tools themselves disagree."""
    expected = json.loads((_SHARED / "topologies" / entry["expected"]).read_text())
    machine = load_snapshot(str(_SHARED / "topologies" / entry["file"]))
    assert kubelet_facts(machine) == {c["cpu"]: c["kubelet"] for c in expected["cpus"] if c.get("kubelet")}
    skipped = set(entry["disagreeing_fields"])
    ours = {c.cpu: c for c in machine.logical_cpus}
    for cpu in expected["cpus"]:
        for field in {"online", "core", "socket", "node", "l3"} - skipped:
            assert getattr(ours[cpu["cpu"]], field) == cpu.get(field), f"CPU {cpu['cpu']} {field}"
    nodes = {node.id: node for node in machine.nodes}
    for node in expected["nodes"]:
        if node["synthesised_by_hwloc"]:
            continue
        mine = nodes[node["id"]]
        assert mine.memory == (node["memory_bytes"] or 0)
        assert {str(p.page_size_ki): p.num_pages for p in mine.hugepages} == (node["hugepages_kb"] or {})
        if "distances" not in skipped:
            assert (list(mine.distances) if mine.distances else None) == node["distances"]


@pytest.mark.parametrize("entry", MACHINES, ids=lambda entry: entry["name"])
def test_kubelet_counters(entry: dict[str, Any]) -> None:
    """The topology's counters are the kubelet's."""
    summary = json.loads((_SHARED / "topologies" / entry["expected"]).read_text())["kubelet_summary"]
    machine = load_snapshot(str(_SHARED / "topologies" / entry["file"]))
    if summary is None:
        with pytest.raises(TopologyError, match="could not detect number of cpus"):
            CPUTopology(machine)
        return
    topology = CPUTopology(machine)
    assert summary == {
        "NumCPUs": topology.num_cpus,
        "NumCores": topology.num_cores,
        "NumUncoreCache": len(topology.uncore_caches),
        "NumSockets": topology.num_sockets,
        "NumNUMANodes": len(topology.numa_nodes),
    }


@pytest.mark.parametrize(
    "path", sorted((_SHARED / "machineinfo" / "generated").glob("*.json")) if MACHINES else [], ids=lambda p: p.stem
)
def test_machineinfo(path: Path) -> None:
    """A kubelet's MachineInfo gives the topology that kubelet works with."""
    data = json.loads(path.read_text())
    if not data.get("kubelet_topology"):
        pytest.skip("this kubelet failed")
    details = data["kubelet_topology"]["CPUDetails"] or {}
    expected = {
        int(cpu): {
            "core": facts["CoreID"],
            "socket": facts["SocketID"],
            "node": facts["NUMANodeID"],
            "uncore": facts["UncoreCacheID"],
        }
        for cpu, facts in details.items()
    }
    assert kubelet_facts(from_machineinfo(data["machineinfo"])) == expected
