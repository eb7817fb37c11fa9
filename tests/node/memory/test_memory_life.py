"""The Memory Manager from start to restart: configuration, validation, undoing, cleaning up
(memory-device 1.3, 1.12, 1.14)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from podslice.machine.memory import Block
from podslice.machine.model import Machine, NUMANode
from podslice.node.memory.checkpoint import MemoryCheckpoint, encode, load
from podslice.node.memory.manager import MemoryManager
from podslice.values.errors import StartError
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.memory.helpers import (
    ANYWHERE,
    HUGE,
    POD_LEVEL,
    GiB,
    admit,
    check_ledger,
    config,
    machine,
    manager,
    memory,
    near,
    pod,
    remove,
    restarted,
    start,
    used,
)

BOTH = pytest.mark.parametrize("quirks", [PODSLICE, KUBELET_1_36], ids=["podslice", "kubelet"])
RESERVED = {0: {"memory": "1Gi"}}
DIFFERENT = "start memory manager error: [memorymanager] the expected machine state is different from the real one"


@BOTH
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("BestEffort", 'policy "BestEffort" is not available for platform "linux"'),
        ("static", 'unknown policy: "static"'),
    ],
)
def test_policies_that_do_not_start(quirks, policy, expected):
    """Policies this platform does not have stop the kubelet with upstream's text."""
    with pytest.raises(StartError) as error:
        manager(machine(4), quirks=quirks, settings=config(RESERVED, memory_manager_policy=policy))
    assert (error.value.stage, error.value.message) == ("memoryManager", expected)


def test_policy_none_keeps_its_file():
    """Policy None decides nothing, and its file remembers that."""
    memory_manager = manager(machine(4), settings=config({}, memory_manager_policy="None"))
    described = pod("u", memory("1Gi"))
    assert memory_manager.container_hints(described, described.containers[0]) is None
    assert memory_manager.pod_hints(described) is None
    assert admit(memory_manager, described) == ""
    assert memory_manager.numa_nodes("u", "c0") == 0
    assert memory_manager.allocatable == []
    assert memory_manager.encode().startswith(b'{"policyName":"None","machineState":{},"checksum":')


@BOTH
def test_static_needs_reserved_memory(quirks):
    """Policy Static does not start without memory for the system."""
    with pytest.raises(StartError, match="you should specify the system reserved memory"):
        manager(machine(4), quirks=quirks, settings=config({}))


@BOTH
def test_fresh_machine(quirks):
    """Huge pages are not part of allocatable memory, and reservations come off their node (memory-device 1.4)."""
    memory_manager = manager(machine(10, 9, huge={0: 2, 1: 0}), quirks=quirks)
    assert memory_manager.allocatable == [
        Block((0,), HUGE, 2 * GiB),
        Block((0,), "memory", 7 * GiB),
        Block((1,), "memory", 9 * GiB),
    ]
    table = memory_manager.machine_state[0].memory_map["memory"]
    assert (table.total, table.system_reserved, table.free) == (10 * GiB, GiB, 7 * GiB)
    assert memory_manager.filed is None


def test_reservation_larger_than_the_node():
    """A reservation a node cannot hold does not start; upstream invents memory (memory-device 4.9)."""
    settings = config({0: {"memory": "3Gi"}, 1: {"memory": "1Gi"}})
    hardware = machine(4, 9, huge={0: 2})
    with pytest.raises(StartError, match=r"reservedMemory: 3221225472 bytes of memory cannot .* NUMA node 0"):
        manager(hardware, settings=settings)
    upstream = manager(hardware, settings=settings, quirks=KUBELET_1_36)
    assert upstream.machine_state[0].memory_map["memory"].free == (1 << 64) - GiB


def test_negative_reservation():
    """A negative reservation does not start; upstream adds it to the node's memory (memory-device 4.10)."""
    settings = config({0: {"memory": "-1Gi"}, 1: {"memory": "2Gi"}})
    with pytest.raises(StartError, match="cannot be reserved on NUMA node 0"):
        manager(machine(4, 4), settings=settings)


def test_machines_out_of_reach():
    """Node ids that fit no mask are refused at start, not at the first pod."""
    hardware = Machine(tuple(NUMANode(id=node, memory=4 * GiB) for node in (0, 64)))
    with pytest.raises(StartError, match="between 0 and 63"):
        manager(hardware)


# Restart


@BOTH
def test_restart_restores_everything(quirks):
    """A new kubelet on the same file has the same ledgers and writes the same file."""
    memory_manager = manager(machine(10, 9, huge={0: 2, 1: 2}), quirks=quirks)
    assert admit(memory_manager, pod("u", memory("12Gi", huge="1Gi"), init=(memory("1Gi"),)), near(0, 1)) == ""
    fresh = restarted(memory_manager)
    assert fresh.machine_state == memory_manager.machine_state
    assert fresh.assignments == memory_manager.assignments
    assert fresh.encode() == memory_manager.encode()


@BOTH
@pytest.mark.parametrize("drift", [-GiB, GiB])
def test_changed_memory_does_not_start(quirks, drift):
    """A machine whose memory changed since the file was written is refused, even without pods (memory-device 1.14)."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    changed = Machine((memory_manager.rules.machine.nodes[0], replace(machine(9, 9).nodes[1], memory=9 * GiB + drift)))
    with pytest.raises(StartError) as error:
        manager(changed, quirks=quirks, state=memory_manager.encode())
    assert (error.value.stage, error.value.message) == ("startMemoryManager", DIFFERENT)


def broken(change) -> bytes:
    """The file of a node with one pod on node 1, changed and with a new checksum."""
    memory_manager = manager(machine(10, 9))
    assert admit(memory_manager, pod("u", memory("2Gi")), near(1)) == ""
    checkpoint = load(memory_manager.encode(), pod_level=False)
    change(checkpoint)
    return encode(checkpoint, "v1")


def _drop_machine(checkpoint: MemoryCheckpoint) -> None:
    checkpoint.machine_state = {}


def _with_block(block: Block):
    def change(checkpoint: MemoryCheckpoint) -> None:
        checkpoint.entries = {"u": {"c0": [block]}}

    return change


def _miscount(checkpoint: MemoryCheckpoint) -> None:
    state = checkpoint.machine_state[0]
    checkpoint.machine_state[0] = replace(state, number_of_assignments=state.number_of_assignments + 1)


def _regroup(checkpoint: MemoryCheckpoint) -> None:
    checkpoint.machine_state[0] = replace(checkpoint.machine_state[0], cells=[0, 1])


WHO = "start memory manager error: [memorymanager] (pod: u, container: c0) the memory assignment uses "
BROKEN = [
    (
        "no machine",
        _drop_machine,
        "start memory manager error: [memorymanager] machine state can not be empty when it has memory assignments",
    ),
    ("unknown node", _with_block(Block((7,), "memory", GiB)), f"{WHO}the NUMA that does not exist"),
    ("unknown type", _with_block(Block((1,), HUGE, GiB)), f"{WHO}memory resource that does not exist"),
    ("other size", _with_block(Block((1,), "memory", GiB)), DIFFERENT),
    ("other node", _with_block(Block((0,), "memory", 2 * GiB)), DIFFERENT),
    ("count", _miscount, DIFFERENT),
    ("group", _regroup, DIFFERENT),
]


@BOTH
@pytest.mark.parametrize(("change", "expected"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_broken_states_do_not_start(quirks, change, expected):
    """A file whose ledgers do not add up is refused with upstream's text."""
    with pytest.raises(StartError) as error:
        manager(machine(10, 9), quirks=quirks, state=broken(change))
    assert error.value.message == expected


@BOTH
def test_other_policy_in_the_file(quirks):
    """Switching the policy needs the file deleted first, and says so."""
    file = manager(machine(10, 9), quirks=quirks).encode()
    with pytest.raises(StartError, match='configured policy "None" differs from state checkpoint policy "Static"'):
        manager(machine(10, 9), state=file, settings=config({}, memory_manager_policy="None"))


def in_a_group(quirks):
    """A manager with 3 GiB left on NUMA nodes 0 and 1, of a pod that came after a larger one that is gone."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    for uid, amount in (("a", "12Gi"), ("b", "3Gi")):
        assert admit(memory_manager, pod(uid, memory(amount)), near(0, 1)) == ""
    remove(memory_manager, "a")
    return memory_manager


def test_order_in_a_group_does_not_matter():
    """Upstream's ledgers say another node of a group after other pods came and went; only sums count at a restart."""
    memory_manager = in_a_group(KUBELET_1_36)
    assert used(memory_manager) == [0, 3]
    check_ledger(memory_manager)
    assert restarted(memory_manager).encode() == memory_manager.encode()


def test_ledger_of_a_group_know_no_history():
    """The blocks of a group are charged as if they had come first, so a pod that comes and goes leaves no trace."""
    memory_manager = in_a_group(PODSLICE)
    assert used(memory_manager) == [3, 0]
    before = memory_manager.encode()
    assert admit(memory_manager, pod("c", memory("11Gi")), near(0, 1)) == ""
    remove(memory_manager, "c")
    assert memory_manager.encode() == before
    assert restarted(memory_manager).encode() == before


def test_ledger_of_a_kubelet_are_settled_at_start():
    """A state file with the history of a kubelet's pods in its ledgers opens with the same sums, without the
    history."""
    file = in_a_group(KUBELET_1_36).encode()
    opened = manager(machine(10, 9), state=file)
    assert used(opened) == [3, 0]
    check_ledger(opened)


@pytest.mark.parametrize(("quirks", "kept"), [(PODSLICE, False), (KUBELET_1_36, True)], ids=["podslice", "kubelet"])
def test_pod_entry_without_containers(quirks, kept):
    """An entry that an interrupted admission wrote is dropped at start; upstream keeps it for ever (memory-device
    4.9)."""
    checkpoint = load(manager(machine(10, 9), gates=POD_LEVEL).encode(), pod_level=True)
    checkpoint.pod_entries = {"u": [Block((0,), "memory", GiB)]}
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL, state=encode(checkpoint, "v2"))
    assert ("u" in memory_manager.pod_assignments) is kept
    assert used(memory_manager) == [0, 0]


# Cleaning up and undoing


@BOTH
def test_gone_pods_are_cleaned_up_at_the_next_decision(quirks):
    """Memory of pods that are gone is free at the next hints or allocation, not before, and only with all sources."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    assert admit(memory_manager, pod("u", memory("9Gi")), near(0)) == ""
    memory_manager.context.deactivate("u")
    assert used(memory_manager) == [9, 0]
    memory_manager.context.sources_ready = False
    memory_manager.remove_stale()
    assert used(memory_manager) == [9, 0]
    memory_manager.context.sources_ready = True
    assert admit(memory_manager, pod("v", memory("9Gi")), near(0)) == ""
    assert set(memory_manager.assignments) == {"v"}


@BOTH
def test_container_that_left_the_specification(quirks):
    """A pod admitted again without one of its containers gives that container's memory back."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    assert admit(memory_manager, pod("u", memory("1Gi"), memory("2Gi")), near(0)) == ""
    assert admit(memory_manager, pod("u", memory("1Gi")), near(0)) == ""
    assert used(memory_manager) == [1, 0]


@BOTH
def test_removal_by_container_id(quirks):
    """A container is released by its runtime id; unknown ids are ignored."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    described = pod("u", memory("1Gi"), memory("2Gi"))
    assert admit(memory_manager, described, near(0)) == ""
    start(memory_manager, described, "c1")
    memory_manager.remove_container("u", "u/c1")
    memory_manager.remove_container("u", "u/c1")
    memory_manager.remove_container("u", "nobody")
    assert used(memory_manager) == [1, 0]


def undone(memory_manager: MemoryManager, described, affinity) -> str:
    """Admit, and put the state back afterwards whatever happened."""
    memory_manager.context.activate(described)
    memory_manager.remove_stale()
    before = memory_manager.state
    message = admit(memory_manager, described, affinity)
    memory_manager.state = before
    memory_manager.context.deactivate(described.uid)
    return message


@pytest.mark.parametrize("gates", [{}, POD_LEVEL], ids=["containers", "pod"])
@pytest.mark.parametrize("affinity", [near(0), near(0, 1), ANYWHERE], ids=["node", "group", "any"])
def test_undo(gates, affinity):
    """After an admission is undone nothing is left of it, not even a reason to write the file."""
    memory_manager = manager(machine(10, 9), gates=gates)
    file, content = memory_manager.encode(), memory_manager.file_content
    budget = {"budget": {"cpu": "4", "memory": "9Gi"}} if gates else {}
    described = pod("u", memory("3Gi"), init=(memory("4Gi"),), gates=gates, **budget)
    assert undone(memory_manager, described, affinity) == ""
    assert memory_manager.encode() == file
    assert memory_manager.file_content == content
    check_ledger(memory_manager)


def test_undo_keeps_what_gone_pods_gave_back():
    """Undoing one pod does not bring back the memory of another that left just before."""
    memory_manager = manager(machine(10, 9))
    assert admit(memory_manager, pod("gone", memory("9Gi")), near(0)) == ""
    memory_manager.context.deactivate("gone")
    assert undone(memory_manager, pod("u", memory("99Gi")), near(0)) != ""
    assert used(memory_manager) == [0, 0]
    check_ledger(memory_manager)


def test_undo_of_a_running_pod():
    """A running pod whose second admission is undone has what it had."""
    memory_manager = manager(machine(10, 9))
    described = pod("u", memory("3Gi"), init=(memory("4Gi"),))
    assert admit(memory_manager, described, near(1)) == ""
    file = memory_manager.encode()
    memory_manager.context.activate(described)
    before = memory_manager.state
    assert admit(memory_manager, described, near(0)) == ""
    memory_manager.state = before
    assert memory_manager.encode() == file
