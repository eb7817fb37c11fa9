"""Plans of moves: as short as possible, valid at every step, and the pod fits afterwards."""

from __future__ import annotations

import msgspec
import pytest

from podslice import Node
from podslice.advise.defrag.groups import find_movable_groups
from podslice.advise.defrag.largest import largest_pod, probe_pod
from podslice.advise.defrag.plan import Plan, apply_move, defragment, problem_with
from podslice.advise.trial.trial import Trial
from podslice.node.checkpoints.names import DEVICE_STATE_FILE
from podslice.state_files.consequence import NodeFacts
from podslice.state_files.verify import verify
from podslice.values.cpuset import CPUSet
from podslice.values.quantity import Quantity
from tests.advise.defrag.brute_force import fewest_by_force
from tests.advise.defrag.nodes import fragmented, pod
from tests.conftest import make_node

TINY = ("pack:1 numa:2(memory=2GiB) core:2 pu:2", "pack:1 numa:3(memory=2GiB) core:3 pu:1")
SMALL = "pack:2 numa:2(memory=8GiB) core:4 pu:2"
LARGE = "pack:2 numa:4(memory=64GiB) core:16 pu:2"


def checked(node: Node, wanted: object, plan: Plan) -> None:
    """Apply a plan to the node itself, checking the state files after every move, and admit the pod."""
    kubelet = node.kubelet
    facts = NodeFacts(node.machine, kubelet.manager.cpu.reserved, {})
    for move in plan.moves:
        before = kubelet.manager.cpu.state.default.bit_count()
        apply_move(node, move)
        assert kubelet.manager.cpu.state.default.bit_count() == before > 0
        for name, data in node.files.items():
            found = [finding for finding in verify(data, facts)[1] if finding.level == "error"]
            assert not found, (name, found)
    files = {name: data for name, data in node.files.items() if name != DEVICE_STATE_FILE}
    again = Node(
        node.machine, kubelet.config, devices=kubelet.devices, files=dict(node.files), predicates=kubelet.predicates
    )
    assert not again.readmit([admission.spec for admission in kubelet.active.values()])
    assert {name: again.files[name] for name in files} == files
    assert node.admit(wanted).admitted  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", TINY)
@pytest.mark.parametrize("seed", range(60, 110))
def test_plans_are_as_short_as_brute_force_finds(seed: int, machine: str) -> None:
    """On tiny machines no sequence of valid moves, whatever CPUs it picks, is shorter than the plan."""
    memory = seed % 3 == 0
    node, pods = fragmented(seed, machine, pods=8, sizes="112", memory=memory)
    if len(find_movable_groups(node.view)) > (3 if memory else 5):
        return
    for wanted in pods:
        plan = defragment(node, wanted)
        assert plan.proven
        if plan.at_least or plan.moves:
            most = plan.container_moves if plan.fits else 3
            assert fewest_by_force(node, wanted, most) == (most if plan.fits else None)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.slow
def test_plans_work_on_the_node_itself(seed: int) -> None:
    """Every plan, applied move by move to the production state, keeps the files faultless and admits the pod."""
    node, pods = fragmented(seed, SMALL, pods=40, sizes="1124", memory=seed % 2 == 0, leave=4)
    for wanted in pods:
        before = dict(node.files)
        plan = defragment(node, wanted, limit=300)
        assert dict(node.files) == before, "planning changed the node"
        if plan.fits:
            checked(node, wanted, plan)


def _fragmented() -> Node:
    """Return two NUMA nodes of 16 CPUs with pods of three CPUs each, and six and seven CPUs free."""
    node = make_node("pack:2 numa:1(memory=64GiB) core:16 pu:1", topology_manager_policy="single-numa-node")
    for number in range(10):
        assert node.admit(pod(f"p{number}", "3")).admitted
    for number in (0, 1, 5, 6):
        node.remove(f"p{number}")
    return node


def test_one_move_makes_room() -> None:
    """A pod of nine CPUs finds seven and six free on two NUMA nodes; one move of three CPUs is enough."""
    node = _fragmented()
    wanted = pod("big", "9")
    assert not node.admit(wanted).admitted
    plan = defragment(node, wanted)
    assert (plan.fits, plan.container_moves, plan.at_least, plan.proven) == (True, 1, 1, True)
    checked(node, wanted, plan)


def test_nothing_to_do_for_a_pod_that_fits() -> None:
    """A pod that fits needs no moves."""
    assert defragment(_fragmented(), pod("small", "2")) == Plan(True, (), 0, 0, True, CPUSet((1, 2)))


def test_impossible_is_proven() -> None:
    """More CPUs than a NUMA node has cannot be gained by moves, and the answer says so."""
    plan = defragment(_fragmented(), pod("huge", "17"))
    assert not plan.fits
    assert plan.proven


@pytest.mark.slow
def test_pods_with_devices_stay() -> None:
    """A container that holds a device is never moved."""
    node, _ = fragmented(3, SMALL, pods=40, sizes="11", memory=False)
    for seed in range(40):
        node, pods = fragmented(seed, SMALL, pods=40, sizes="1124", memory=False, leave=4)
        if not node.kubelet.devices:
            continue
        holders = {uid for uid in node.kubelet.active if node.kubelet.manager.device.holds_devices(uid)}
        moved = {move.uid for wanted in pods for move in defragment(node, wanted, limit=500).moves}
        pinned = {uid for uid in holders if len(node.kubelet.active[uid].containers) == 1}
        assert not moved & pinned


def test_bounded_search_says_what_is_not_proven() -> None:
    """With a very low limit of states a plan may still be found, and the answer does not claim that it is minimal."""
    node = make_node("pack:2 numa:1(memory=64GiB) core:16 pu:1", topology_manager_policy="single-numa-node")
    for number in range(14):
        assert node.admit(pod(f"q{number}", "2")).admitted
    for number in (1, 5, 8, 12):
        node.remove(f"q{number}")
    wanted = pod("big", "8")
    exact = defragment(node, wanted)
    assert exact.proven
    assert exact.fits
    bounded = defragment(node, wanted, limit=1)
    assert not bounded.proven or bounded.container_moves == exact.container_moves
    assert bounded.at_least <= exact.container_moves


def test_large_nodes_get_a_plan() -> None:
    """On 256 CPUs with many pods a plan is found, and applied, for a pod nearly as large as a NUMA node."""
    node, _ = fragmented(4, LARGE, pods=80, sizes="2444", memory=False, leave=4)
    wanted = pod("big", "24")
    plan = defragment(node, wanted, limit=2000)
    assert plan.fits
    checked(node, wanted, plan)


@pytest.mark.slow
def test_several_large_containers_get_a_plan() -> None:
    """Three containers that need most of three NUMA nodes: the search makes room for all of them, not only for one."""
    node, _ = fragmented(4, LARGE, pods=80, sizes="2444", memory=False, leave=4)
    wanted = pod("big", "20", "20", "20")
    plan = defragment(node, wanted, limit=700)
    assert plan.fits
    assert plan.container_moves > 1
    checked(node, wanted, plan)


def test_more_than_is_free_is_proven() -> None:
    """Moves free no CPUs, so a pod whose containers together ask for more than is free is refused at once."""
    node, _ = fragmented(4, LARGE, pods=80, sizes="2444", memory=False, leave=4)
    free = len(node.assignable_cpus)
    parts = [str(free // 8 + 1)] * 8
    plan = defragment(node, pod("wide", *parts), limit=1)
    assert (plan.fits, plan.proven) == (False, True)


def test_largest_pod() -> None:
    """Thirteen CPUs are free, nowhere more than seven together; moving makes room for more."""
    node = _fragmented()
    found = largest_pod(node, probe_pod(Quantity.parse("1Mi")), lambda wanted: defragment(node, wanted, limit=5000))
    assert isinstance(found.plan, Plan)
    free = len(node.assignable_cpus)
    assert found.now < found.after <= free
    assert found.proven
    for size in range(found.after + 1, free + 1):
        assert not defragment(node, pod("more", str(size), memory="1Mi")).fits
    checked(node, pod("largest", str(found.after), memory="1Mi"), found.plan)


def test_a_spoilt_plan_is_noticed() -> None:
    """The check of plans reports CPUs that are not free, and a pod that does not fit afterwards."""
    node = _fragmented()
    wanted = pod("big", "9")
    (move,) = defragment(node, wanted).moves
    taken = next(
        bits
        for uid, named in node.kubelet.manager.cpu.state.assignments.items()
        if uid != move.uid
        for bits in named.values()
    )
    container = msgspec.structs.replace(move.containers[0], cpus_after=CPUSet.from_bits(taken))
    spoilt = msgspec.structs.replace(move, containers=(container,))
    assert "not free" in problem_with(Trial.of(node), [spoilt], wanted)
    assert "refused" in problem_with(Trial.of(node), [], wanted)
