"""Other numberings of a machine, and which of them owners in state files fit."""

from __future__ import annotations

import json

import pytest

from podslice.evidence.numbering import one_line, other_numberings, with_nodes
from podslice.evidence.owners import Owner, PlacementRules, find_misplaced, read_owners
from podslice.machine.gallery import load_gallery
from podslice.machine.model import CPUTopology, Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints.content import read_content
from podslice.node.cpu.checkpoint import CPUCheckpoint, encode
from podslice.values.cpuset import parse_bits

SHAPE = "pack:2 numa:1(memory=64GiB) core:4 pu:2"
SIBLINGS = f"{SHAPE}(indexes=1*2:2*4:8*2)"
LINUX = f"{SHAPE}(indexes=2*4:8*2:1*2)"
IN_TURNS = f"{SHAPE}(indexes=8*2:2*4:1*2)"
ALIGNED = PlacementRules("single-numa-node", pod_scope=False, whole_cores=False)


def shape(machine: Machine) -> tuple[object, object]:
    topology = CPUTopology(machine)
    return topology.numa_nodes, topology.cores


def owner(cpus: str, uid: str = "u", memory: int = 0, devices: int = 0) -> Owner:
    return Owner(uid, "c", parse_bits(cpus), memory, devices)


@pytest.mark.parametrize("given", [SIBLINGS, LINUX, IN_TURNS])
def test_usual_numberings_are_among_the_others(given: str) -> None:
    """Whatever the machine is given as, the two other usual numberings are tried, the given one is not, and each can be
    given as one line."""
    machine = from_synthetic(given)
    others = list(other_numberings(machine))
    found = [shape(one.machine) for one in others]
    assert [shape(from_synthetic(text)) in found for text in (SIBLINGS, LINUX, IN_TURNS)] == [
        text != given for text in (SIBLINGS, LINUX, IN_TURNS)
    ]
    for one in others:
        text = one_line(one)
        assert "(indexes=" in text
        assert shape(from_synthetic(text)) == shape(one.machine)


def test_names_of_numberings() -> None:
    """A numbering says in words how it counts."""
    names = {one.text for one in other_numberings(from_synthetic(SIBLINGS))}
    assert "NUMA nodes in turns, first threads of all cores first" in names
    assert "NUMA node by NUMA node, first threads of all cores first" in names


@pytest.mark.parametrize("name", ["xeon-8480-2s", "epyc-9654-nps4"])
def test_machines_of_the_gallery_can_be_renumbered(name: str) -> None:
    """Every other numbering keeps the CPUs, and the number of CPUs of each NUMA node and core."""
    machine = load_gallery(name)
    before = CPUTopology(machine)
    for one in other_numberings(machine):
        after = CPUTopology(one.machine)
        assert after.all_cpus == before.all_cpus
        assert {k: v.bit_count() for k, v in after.numa_nodes.items()} == {
            k: v.bit_count() for k, v in before.numa_nodes.items()
        }
        assert len(after.cores) == len(before.cores)


def test_a_machine_with_gaps_is_not_renumbered() -> None:
    """Where CPUs are offline the numbers follow no order that could be tried."""
    assert list(other_numberings(from_synthetic("pack:1 numa:1 core:2 pu:2(indexes=0,1,2,5)"))) == []


def test_nodes_of_a_state_file() -> None:
    """Cores are divided over as many NUMA nodes as the file has, where they can be."""
    one = from_synthetic("pack:1 numa:1(memory=64GiB) core:8 pu:2")
    two = with_nodes(one, {0: 1 << 30, 1: 2 << 30})
    assert two is not None
    assert [(node.id, node.memory, len(node.cores)) for node in two.nodes] == [(0, 1 << 30, 4), (1, 2 << 30, 4)]
    assert with_nodes(one, {0: 1, 1: 1, 2: 1}) is None
    assert with_nodes(one, {}) is None


@pytest.mark.parametrize(
    ("rules", "held", "why"),
    [
        (ALIGNED, owner("0-3"), ""),
        (ALIGNED, owner("6-9"), "its CPUs lie on NUMA 0-1"),
        (ALIGNED, owner("0-3", memory=0b10), "its CPUs lie on NUMA 0, its memory on NUMA 1"),
        (ALIGNED, owner("0-3", devices=0b10), "its CPUs lie on NUMA 0, its devices on NUMA 1"),
        (ALIGNED._replace(policy="restricted"), owner("0-9"), ""),
        (ALIGNED._replace(policy="restricted"), owner("6-9"), "its CPUs lie on NUMA 0-1"),
        (
            ALIGNED._replace(policy="restricted"),
            owner("0-9", memory=0b01),
            "its CPUs lie on NUMA 0-1, its memory on NUMA 0",
        ),
        (ALIGNED._replace(policy="best-effort"), owner("6-9"), ""),
        (ALIGNED._replace(policy="none", whole_cores=True), owner("0-3"), ""),
        (ALIGNED._replace(policy="none", whole_cores=True), owner("1-4"), "its CPUs are not whole cores"),
    ],
)
def test_owners_are_where_rules_put_them(rules: PlacementRules, held: Owner, why: str) -> None:
    """Each rule of a policy about CPUs, memory and devices, with one owner that keeps it and one that breaks it."""
    found = find_misplaced([held], CPUTopology(from_synthetic(SIBLINGS)), rules)
    assert [one.why for one in found] == [why] * bool(why)


def test_pod_scope_counts_the_pod() -> None:
    """Containers on a NUMA node each are fine in scope container, and not in scope pod."""
    held = [owner("0-1"), owner("8-9")._replace(container="d")]
    topology = CPUTopology(from_synthetic(SIBLINGS))
    assert not find_misplaced(held, topology, ALIGNED)
    assert len(find_misplaced(held, topology, ALIGNED._replace(pod_scope=True))) == 1


def test_owners_of_a_file_with_pods_as_a_whole() -> None:
    """Containers that divide the CPUs of their pod count with it, once."""
    file = encode(CPUCheckpoint("static", "8-15", {"u": {"a": "0-1", "b": "2-3"}}, {"u": parse_bits("0-7")}), "v3")
    owners = read_owners({"cpu_manager_state": read_content(file)})
    assert owners == (Owner("u", "", parse_bits("0-7")),)


def test_node_ids_that_no_machine_has() -> None:
    """Ids of a damaged file make no mask of their size."""
    block = {"numaAffinity": [999_999_999], "type": "memory", "size": 1}
    memory = {"policyName": "Static", "machineState": {}, "entries": {"u": {"c": [block]}}, "checksum": 0}
    files = {
        "cpu_manager_state": encode(CPUCheckpoint("static", "2-15", {"u": {"c": "0-1"}}), "v2"),
        "memory_manager_state": json.dumps(memory).encode(),
    }
    [held] = read_owners({name: read_content(data) for name, data in files.items()})
    assert held == owner("0-1")
