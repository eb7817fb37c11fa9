"""Plans that make room: every step works, and no plan with fewer moves exists."""

from __future__ import annotations

import json
from itertools import combinations, permutations
from pathlib import Path

import msgspec
import pytest

from podslice import Node, Pod
from podslice.core.defrag.restarts import Plan, defragment, largest
from tests.cli.test_cli import run
from tests.conftest import make_node, make_pod
from tests.explain.random_nodes import Setup, refusals

SMALL = "pack:1 numa:2(memory=16GB) core:4 pu:2"


def carry_out(setup: Setup, pod: Pod, plan: Plan) -> None:
    """Do what the plan says on a node built anew."""
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
            owned = state.bubbles.get(step.uid, 0)
            for cpus in state.assignments.get(step.uid, {}).values():
                owned |= cpus
            assert step.after.bits == owned
            away.discard(step.uid)
    assert not away
    assert set(node.kubelet.active) == {*specs, pod.metadata.uid}


def fits_with(setup: Setup, pod: Pod, uids: tuple[str, ...]) -> bool:
    """Brute force: stop these pods, then admit them and the new one in any order."""
    specs = {other.metadata.uid: other for other in setup.running}
    for order in permutations(["", *uids]):
        node = setup.node()
        for uid in uids:
            node.remove(uid)
        if all(node.admit(specs[uid] if uid else pod).admitted for uid in order):
            return True
    return False


@pytest.mark.parametrize("seed", range(3000, 3030))
def test_plans_work_and_are_smallest(seed: int) -> None:
    """Plans can be carried out step by step; where one pod's move is enough in any order, one is moved."""
    for setup, pod in refusals(seed):
        if len(setup.running) > 6:
            continue
        node = setup.node()
        before = dict(node.files)
        plan = defragment(node.kubelet, pod, most_moves=2)
        assert dict(node.files) == before
        uids = [other.metadata.uid for other in setup.running]
        if plan is not None:
            carry_out(setup, pod, plan)
            smaller = [some for size in range(len(plan.moved)) for some in combinations(uids, size)]
            assert not any(fits_with(setup, pod, some) for some in smaller)
        else:
            assert not any(fits_with(setup, pod, (uid,)) for uid in uids)


def scattered() -> Node:
    """Two nodes with 8 CPUs, each with a pod of 4 and some room, but for no pod of 6."""
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
    plan = defragment(node.kubelet, make_pod("big", ("c", "7")))
    assert plan is not None
    assert plan.moved == ("first",)
    assert [(s.action, s.uid, str(s.before), str(s.after)) for s in plan.steps] == [
        ("stop", "first", "2-5", ""),
        ("place", "big", "", "1-7"),
        ("start", "first", "2-5", "12-15"),
    ]
    assert defragment(node.kubelet, make_pod("huge", ("c", "8"))) is None
    grown = largest(node.kubelet, make_pod("new", ("c", "1")))
    assert (grown.now, grown.after) == (4, 7)


def test_largest_pod() -> None:
    """Without moves the emptier node decides; with one it can be emptied."""
    node = scattered()
    now = largest(node.kubelet, make_pod("new", ("c", "1")), most_moves=0)
    assert now.now == now.after
    assert now.plan is None
    assert node.admit(make_pod("new", ("c", str(now.now)))).admitted


def test_fits_already() -> None:
    """A pod that fits needs no moves, and the plan says only where it goes."""
    plan = defragment(make_node(SMALL).kubelet, make_pod("x", ("c", "2")))
    assert plan is not None
    assert plan.moved == ()
    assert [step.action for step in plan.steps] == ["place"]


def test_command(tmp_path: Path) -> None:
    """The plan as a table and as JSON; exit 1 where there is none."""

    def write(name: str, *pods: Pod) -> str:
        path = tmp_path / name
        items = [{"kind": "Pod", **msgspec.to_builtins(pod, enc_hook=str)} for pod in pods]
        path.write_text(json.dumps({"kind": "List", "items": items}))
        return str(path)

    running = write("running.json", make_pod("a", ("c", "4")), make_pod("b", ("c", "4")), make_pod("k", ("c", "2")))
    options = ("--from", SMALL, "--pods", running, "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0",
               "--set", "topologyManagerPolicy=single-numa-node")  # fmt: skip
    result = run("defrag", write("big.json", make_pod("big", ("c", "5"))), *options, "-o", "json")
    assert (result.returncode, json.loads(result.stdout)["steps"][1]["action"]) == (0, "place")
    assert run("defrag", write("huge.json", make_pod("huge", ("c", "8"))), *options).returncode == 1
    text = run("defrag", write("one.json", make_pod("one", ("c", "1"))), *options, "--largest", "--moves", "1").stdout
    assert text.startswith("Largest such pod now: ")
