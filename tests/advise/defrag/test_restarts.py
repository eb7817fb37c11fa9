"""Plans of restarts: every step works, and no plan restarts fewer pods."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from podslice import Node, Pod
from podslice.advise.defrag.largest import Largest, largest_pod
from podslice.advise.defrag.restarts import RestartPlan, carry_out, plan_restarts
from tests.advise.explain.random_nodes import Setup, refusals
from tests.conftest import make_node, make_pod

SMALL = "pack:1 numa:2(memory=16GB) core:4 pu:2(indexes=pu)"


def checked(setup: Setup, pod: Pod, plan: RestartPlan) -> None:
    """Carry out the plan on a new node."""
    node = setup.node()
    specs = {other.metadata.uid: other for other in setup.running}
    away = set()
    for step in plan.steps:
        if step.action == "stop":
            node.remove(step.uid)
            away.add(step.uid)
        else:
            decision = node.admit(pod if step.action == "place" else specs[step.uid])
            assert decision.admitted, f"{step.pod} is refused: {decision.reason}"
            state = node.kubelet.manager.cpu.state
            owned = state.pod_cpus.get(step.uid, 0)
            for cpus in state.assignments.get(step.uid, {}).values():
                owned |= cpus
            assert step.after.bits == owned
            away.discard(step.uid)
    assert not away
    assert set(node.kubelet.active) == {*specs, pod.metadata.uid}


def fits_with(setup: Setup, pod: Pod, uids: tuple[str, ...]) -> bool:
    """Brute force: each pod stops and then starts, and the new one starts, in any order."""
    specs = {other.metadata.uid: other for other in setup.running}
    for order in permutations(["", *((action, uid) for uid in uids for action in ("stop", "start"))]):
        if any(order.index(("stop", uid)) > order.index(("start", uid)) for uid in uids):
            continue
        node = setup.node()
        for step in order:
            if step and step[0] == "stop":
                node.remove(step[1])
            elif not node.admit(specs[step[1]] if step else pod).admitted:
                break
        else:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3012))
def test_plans_work_and_are_smallest(seed: int) -> None:
    """Plans can be carried out step by step; where restarting fewer pods is enough in any order, no plan has more."""
    for setup, pod in refusals(seed):
        if len(setup.running) > 6:
            continue
        node = setup.node()
        before = dict(node.files)
        plan = plan_restarts(node, pod, most=2)
        assert dict(node.files) == before
        uids = [other.metadata.uid for other in setup.running]
        assert plan.exhaustive
        if plan.fits:
            checked(setup, pod, plan)
            carry_out(node, plan, pod)
            assert set(node.kubelet.active) == {*uids, pod.metadata.uid}
        sizes = range(len(plan.restarted) if plan.fits else 3)
        assert not any(fits_with(setup, pod, some) for size in sizes for some in combinations(uids, size))


def largest(node: Node, *, most: int) -> Largest:
    """Return the largest pod with one container, with at most so many restarts."""
    return largest_pod(node, make_pod("new", ("c", "1")), lambda wanted: plan_restarts(node, wanted, most=most))


def scattered() -> Node:
    """Return two NUMA nodes with 8 CPUs, each with a pod of 4 and some room, but none for a pod of 6."""
    node = make_node(SMALL, topology_manager_policy="single-numa-node")
    for name in ("a", "b"):
        assert node.admit(make_pod(name, ("c", "2"))).admitted
    for name in ("c", "d"):
        assert node.admit(make_pod(name, ("c", "4"))).admitted
    return node


def test_plan_by_hand() -> None:
    """Node 0 has 7 assignable CPUs and `first` on it: it ends, the new pod takes them all, `first` goes to node 1."""
    node = make_node(SMALL, topology_manager_policy="single-numa-node")
    for name in ("first", "second"):
        assert node.admit(make_pod(name, ("c", "4"))).admitted
    plan = plan_restarts(node, make_pod("big", ("c", "7")))
    assert (plan.fits, plan.restarted) == (True, ("first",))
    assert [(s.action, s.uid, str(s.before), str(s.after)) for s in plan.steps] == [
        ("stop", "first", "2-5", ""),
        ("place", "big", "", "1-7"),
        ("start", "first", "2-5", "12-15"),
    ]
    assert not plan_restarts(node, make_pod("huge", ("c", "8"))).fits
    grown = largest(node, most=1)
    assert (grown.now, grown.after, grown.proven) == (4, 7, True)


def test_largest_pod() -> None:
    """Without moves the emptier node decides; with one it can be emptied."""
    node = scattered()
    now = largest(node, most=0)
    assert now.now == now.after
    assert now.plan is None
    assert node.admit(make_pod("new", ("c", str(now.now)))).admitted


def test_fits_already() -> None:
    """A pod that fits needs no moves, and the plan holds only its place."""
    plan = plan_restarts(make_node(SMALL), make_pod("x", ("c", "2")))
    assert (plan.fits, plan.restarted, plan.exhaustive) == (True, (), True)
    assert [step.action for step in plan.steps] == ["place"]
