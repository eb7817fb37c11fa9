"""Taking memory for containers: nodes, ledgers, init containers (memory-device 1.8 to 1.10)."""

from __future__ import annotations

import msgspec
import pytest

from podslice.machine.model import HugePages
from podslice.node.topology.hint import Hint
from podslice.values.errors import AdmissionError
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.memory.helpers import (
    ANYWHERE,
    HUGE,
    POD_LEVEL,
    GiB,
    admit,
    check_ledger,
    counted,
    machine,
    manager,
    memory,
    near,
    pod,
    remove,
    restarted,
    sizes,
    start,
    used,
)

BOTH = pytest.mark.parametrize("quirks", [PODSLICE, KUBELET_1_36], ids=["podslice", "kubelet"])
NO_NODE = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
NO_EXTENSION = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
WORSE_DEFAULT = "[memorymanager] failed to find the default preferred hint"
WORSE_EXTENSION = "[memorymanager] failed to find the extended preferred hint"
VIOLATION = "[memorymanager] preferred hint violates NUMA node allocation"


@BOTH
def test_affinity_is_followed(quirks):
    """Memory and huge pages come from the nodes of the affinity, and every node counts each of them."""
    memory_manager = manager(machine(10, 10, huge={0: 2, 1: 2}), quirks=quirks)
    assert admit(memory_manager, pod("u", memory("3Gi", huge="1Gi")), near(1)) == ""
    assert sizes(memory_manager, "u") == {"c0": {"memory": 3, HUGE: 1}}
    assert used(memory_manager) == [0, 3]
    assert used(memory_manager, HUGE) == [0, 1]
    assert memory_manager.machine_state[1].number_of_assignments == 2
    assert memory_manager.numa_nodes("u", "c0") == 0b10
    check_ledger(memory_manager)


@BOTH
def test_group_fills_lower_nodes_first(quirks):
    """A container on two nodes makes them a group, and takes from the lower one first."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    assert admit(memory_manager, pod("u", memory("12Gi")), near(0, 1)) == ""
    assert used(memory_manager) == [9, 3]
    assert [state.cells for state in memory_manager.machine_state.values()] == [[0, 1], [0, 1]]
    remove(memory_manager, "u")
    assert used(memory_manager) == [0, 0]
    assert [state.cells for state in memory_manager.machine_state.values()] == [[0], [1]]


def test_without_affinity_the_best_node_is_taken():
    """No affinity means the narrowest, lowest set of nodes with room."""
    memory_manager = manager(machine(10, 9, 9))
    assert admit(memory_manager, pod("u", memory("8Gi")), ANYWHERE) == ""
    assert admit(memory_manager, pod("v", memory("8Gi")), ANYWHERE) == ""
    assert used(memory_manager) == [8, 8, 0]


def test_small_affinity_is_extended():
    """An affinity without room grows to the best larger set."""
    memory_manager = manager(machine(10, 9, 9))
    assert admit(memory_manager, pod("u", memory("12Gi")), near(1, preferred=False)) == ""
    assert memory_manager.numa_nodes("u", "c0") == 0b11


NODE_0 = (("3Gi", near(0)),)
GROUP_1_2 = (("5Gi", near(0)), ("10Gi", near(1, 2)))
REFUSALS = [
    ("nothing fits", (), "99Gi", Hint(None, False), NO_NODE),
    ("default is worse", GROUP_1_2, "5Gi", Hint(None, True), WORSE_DEFAULT),
    ("no larger set", NODE_0, "26Gi", near(0), NO_EXTENSION),
    ("larger set is worse", GROUP_1_2, "5Gi", near(1), WORSE_EXTENSION),
    ("node used alone", NODE_0, "1Gi", near(0, 1), VIOLATION),
    ("node of another group", GROUP_1_2, "1Gi", near(0, 1), VIOLATION),
]


@BOTH
@pytest.mark.parametrize(
    ("others", "amount", "affinity", "expected"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_refusals(quirks, others, amount, affinity, expected):
    """Each way an allocation can fail has upstream's text, counts an error and ledgers nothing."""
    memory_manager = manager(machine(10, 9, 9), quirks=quirks)
    for number, (taken, where) in enumerate(others):
        assert admit(memory_manager, pod(f"other{number}", memory(taken)), where) == ""
    before = memory_manager.encode()
    assert admit(memory_manager, pod("u", memory(amount)), affinity) == expected
    assert memory_manager.encode() == before
    assert counted(memory_manager)["memory_manager_pinning_errors_total"] == 1


@BOTH
def test_init_memory_is_reused(quirks):
    """Init 3Gi, then app 5Gi: 5Gi are booked, and the records add up to them (memory-device 1.10)."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    assert admit(memory_manager, pod("u", memory("5Gi"), init=(memory("3Gi"),)), near(1)) == ""
    assert sizes(memory_manager, "u") == {"i0": {"memory": 0}, "c0": {"memory": 5}}
    assert used(memory_manager) == [0, 5]
    assert memory_manager.machine_state[1].number_of_assignments == 2
    check_ledger(memory_manager)


@BOTH
def test_init_memory_is_freed_when_the_next_container_starts(quirks):
    """Memory that the app did not take over is free once it starts; sidecars keep theirs."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    described = pod("u", memory("2Gi"), init=(memory("3Gi"), memory("4Gi")), sidecars=(memory("1Gi"),), order="is")
    assert admit(memory_manager, described, near(1)) == ""
    assert used(memory_manager) == [0, 4]
    for name in ("i0", "i1"):
        start(memory_manager, described, name)
    assert used(memory_manager) == [0, 4]
    start(memory_manager, described, "s0")
    start(memory_manager, described, "c0")
    assert sizes(memory_manager, "u") == {"s0": {"memory": 1}, "c0": {"memory": 2}}
    assert used(memory_manager) == [0, 3]
    check_ledger(memory_manager)


@BOTH
@pytest.mark.parametrize("order", ["si", "is"])
def test_init_containers_beside_sidecars(quirks, order):
    """A plain init container has memory of its own before and after sidecars."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    described = pod("u", memory("1Gi"), init=(memory("3Gi"),), sidecars=(memory("2Gi"),), order=order)
    assert admit(memory_manager, described, near(1)) == ""
    assert set(sizes(memory_manager, "u")) == {"i0", "s0", "c0"}
    assert used(memory_manager) == [0, 5 if order == "si" else 3]
    check_ledger(memory_manager)


@pytest.mark.parametrize(("quirks", "expected"), [(PODSLICE, 2), (KUBELET_1_36, 6)], ids=["podslice", "kubelet"])
def test_finished_init_containers_after_a_restart(quirks, expected):
    """Init containers that have ended stay ended; upstream ledgers their memory again (memory-device 4.18)."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    described = pod("u", memory("2Gi"), init=(memory("4Gi"),))
    assert admit(memory_manager, described, near(1)) == ""
    start(memory_manager, described, "c0")
    assert used(memory_manager) == [0, 2]
    fresh = restarted(memory_manager)
    assert admit(fresh, described, near(1)) == ""
    assert used(fresh) == [0, expected]


def test_init_container_before_shared_containers_stays_ended():
    """An init container has ended when the runtime knows a later container, even one without memory."""
    memory_manager = manager(machine(10, 9), gates=POD_LEVEL)
    described = pod("u", {}, init=(memory("4Gi"),), budget={"cpu": "2", "memory": "6Gi"}, gates=POD_LEVEL)
    memory_manager.context.activate(described)
    for container in described.containers:
        memory_manager.allocate(described, container, near(1))
    start(memory_manager, described, "c0")
    assert memory_manager.assignments == {}
    memory_manager.allocate(described, described.containers[0], near(1))
    assert memory_manager.container_hints(described, described.containers[0]) is None
    assert memory_manager.assignments == {}


def test_init_container_of_a_running_pod_stays_ended():
    """Before its sources are ready a kubelet admits what runs: an init container without memory has ended, though the
    runtime names no later container and none has memory."""
    memory_manager = manager(machine(10, 9), gates=POD_LEVEL)
    memory_manager.context.sources_ready = False
    described = pod("u", {}, init=(memory("4Gi"),), budget={"cpu": "2", "memory": "6Gi"}, gates=POD_LEVEL)
    memory_manager.context.activate(described)
    for container in described.containers:
        memory_manager.allocate(described, container, near(1))
    assert memory_manager.assignments == {}


@pytest.mark.parametrize(("quirks", "short"), [(PODSLICE, False), (KUBELET_1_36, True)], ids=["podslice", "kubelet"])
def test_admitting_again_ledger_enough(quirks, short):
    """A container that is new in a pod admitted again is booked in full; upstream counts init memory that was given
    back long ago (memory-device 4.7, 4.9)."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    described = pod("u", memory("1Gi"), init=(memory("4Gi"),))
    assert admit(memory_manager, described, near(1)) == ""
    start(memory_manager, described, "c0")
    grown = pod("u", memory("1Gi"), memory("2Gi"), init=(memory("4Gi"),))
    memory_manager.context.activate(grown)
    memory_manager.allocate(grown, grown.containers[-1], near(1))
    assert sizes(memory_manager, "u") == {"c0": {"memory": 1}, "c1": {"memory": 2}}
    assert used(memory_manager) == [0, 1 if short else 3]


@pytest.mark.parametrize(
    ("quirks", "nodes", "cells"),
    [(PODSLICE, 0b11, [[0, 1], [0, 1]]), (KUBELET_1_36, 0b10, [[0, 1], [1]])],
    ids=["podslice", "kubelet"],
)
def test_single_node_of_a_group(quirks, nodes, cells):
    """An affinity inside a group uses the whole group; upstream breaks it (memory-device 4.5)."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    assert admit(memory_manager, pod("group", memory("12Gi")), near(0, 1)) == ""
    assert admit(memory_manager, pod("u", memory("1Gi")), near(1, preferred=False)) == ""
    assert memory_manager.numa_nodes("u", "c0") == nodes
    assert [state.cells for state in memory_manager.machine_state.values()] == cells


def test_missing_huge_page_size():
    """Huge pages that only some nodes have come from those, and the state survives a restart (memory-device 4.1)."""
    memory_manager = manager(machine(10, 9, huge={1: 2}))
    assert admit(memory_manager, pod("u", memory("12Gi", huge="2Gi")), ANYWHERE) == ""
    assert used(memory_manager) == [9, 3]
    assert memory_manager.machine_state[1].memory_map[HUGE].free == 0
    fresh = restarted(memory_manager)
    assert fresh.machine_state == memory_manager.machine_state
    check_ledger(fresh)


def test_unknown_huge_page_size_of_zero():
    """Zero huge pages of a size that no node has are no reason to refuse a pod, before or after a restart."""
    memory_manager = manager(machine(10, 9))
    assert admit(memory_manager, pod("u", memory("1Gi", huge="0")), ANYWHERE) == ""
    assert restarted(memory_manager).assignments == memory_manager.assignments
    assert admit(memory_manager, pod("v", memory("1Gi", huge="1Gi")), ANYWHERE) == NO_NODE


@pytest.mark.parametrize(("quirks", "expected"), [(PODSLICE, ""), (KUBELET_1_36, NO_NODE)], ids=["podslice", "kubelet"])
def test_shared_container_in_container_scope(quirks, expected):
    """A container that shares its pod's memory needs none of its own; upstream refuses it (memory-device 4.2)."""
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL)
    described = pod("u", memory("1Gi"), {}, budget={"cpu": "2", "memory": "4Gi"}, gates=POD_LEVEL)
    memory_manager.context.activate(described)
    own, shared = described.containers
    memory_manager.allocate(described, own, ANYWHERE)
    try:
        memory_manager.allocate(described, shared, ANYWHERE)
        message = ""
    except AdmissionError as refusal:
        message = refusal.message
    assert message == expected
    assert set(sizes(memory_manager, "u")) == {"c0"}


@BOTH
def test_metrics(quirks):
    """Requests are counted per container, errors per refusal; the others only with PodLevelResourceManagers."""
    for gates, more in (
        ({}, {}),
        (
            POD_LEVEL,
            {
                "resource_manager_allocations_total{resource_name=memory,source=node}": 2,
                "resource_manager_allocation_errors_total{resource_name=memory,source=node}": 1,
                "resource_manager_container_assignments{assignment_type=node_exclusive,resource_name=memory}": 1,
            },
        ),
    ):
        memory_manager = manager(machine(10, 9, huge={0: 1, 1: 1}), quirks=quirks, gates=gates)
        admit(memory_manager, pod("u", memory("1Gi", huge="1Gi"), gates=gates), near(0))
        admit(memory_manager, pod("v", memory("99Gi"), gates=gates), near(1))
        assert counted(memory_manager) == {
            "memory_manager_pinning_requests_total": 2,
            "memory_manager_pinning_errors_total": 1,
            **more,
        }


def test_two_page_sizes():
    """Every huge page size has its own table on its node."""
    node = machine(10).nodes[0]
    sizes_ki = (HugePages(2048, 512), HugePages(1 << 20, 2))
    hardware = msgspec.structs.replace(machine(10), nodes=(msgspec.structs.replace(node, hugepages=sizes_ki),))
    memory_manager = manager(hardware)
    described = pod("u", {"memory": "1Gi", "hugepages-2Mi": "512Mi", HUGE: "2Gi"})
    assert admit(memory_manager, described) == ""
    tables = memory_manager.machine_state[0].memory_map
    assert {name: table.free for name, table in tables.items()} == {
        "memory": 5 * GiB,
        "hugepages-2Mi": GiB // 2,
        HUGE: 0,
    }
    assert [block.type for block in memory_manager.blocks("u", "c0")] == [HUGE, "hugepages-2Mi", "memory"]
