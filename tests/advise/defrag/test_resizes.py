"""Plans of moves after which a deferred resize is granted."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from podslice import InputError, Node
from podslice.advise.defrag.command import defrag
from podslice.advise.defrag.plan import Plan, apply_move, defragment, defragment_for_resize
from podslice.config.policy import Defragmentation, ExclusiveResize, PodslicePolicy
from podslice.values.cpuset import CPUSet
from tests.node.resize.helpers import drawn_node, guaranteed, pod
from tests.node.resize.histories import check, draw_sizes
from tests.node.resize.test_exclusive import MACHINE, budget, held, node, one, pod_node
from tests.read_documents import read_document

SINGLE: dict[str, Any] = {"topology_manager_policy": "single-numa-node"}
ROOT = Path(__file__).parents[3]


def crowded() -> Node:
    """Return a node whose NUMA node 0, with the pod p, is full but for two CPUs, and whose node 1 is empty."""
    here = node(**SINGLE)
    for name, size in (("p", "4"), ("q", "6"), ("r", "2")):
        here.admit(one(size, name))
    return here


def carried_out(here: Node, wish: Any, plan: Plan) -> None:
    """Carry out every move, then the resize, on the node itself."""
    assert plan.fits
    for move in plan.moves:
        assert move.uid != wish.metadata.uid
        apply_move(here, move)
    assert here.resize(wish).outcome in ("Allocated", "Unchanged")
    assert CPUSet.from_bits(here.view.owned_by(wish.metadata.uid)) == plan.placed


@pytest.mark.parametrize(
    ("size", "moved"),
    [("6", 0), ("8", 1), ("10", 1), ("14", 2)],
)
def test_the_fewest_moves(size: str, moved: int) -> None:
    """As few containers move as must, and the plan leads where it says; the pod itself keeps its CPUs."""
    here = crowded()
    before = here.files
    plan = defragment_for_resize(here, one(size))
    assert here.files == before
    assert here.pending_resizes == []
    assert len(plan.moves) == plan.container_moves == moved
    assert plan.proven
    carried_out(here, one(size), plan)
    assert held(here).startswith("2-")


def test_no_moves_help() -> None:
    """No moves help a resize that is too large for the NUMA node, or below the promised CPUs."""
    for size in ("16", "3"):
        plan = defragment_for_resize(crowded(), one(size))
        assert (plan.fits, plan.moves) == (False, ())
    assert not defragment_for_resize(crowded(), one("14"), most=1).fits


def test_a_pod_that_is_not_there() -> None:
    """A pod that is not on the node is an error, as it is for a resize."""
    with pytest.raises(InputError, match="not on the node"):
        defragment_for_resize(crowded(), one("4", "x"))


def test_a_whole_pod_grows() -> None:
    """A pod with pod-level resources gets room as well."""
    here = pod_node()
    here.admit(budget("6", "4"))
    here.admit(one("8", "q"))
    assert here.try_admit(one("4", "x")).admitted
    plan = defragment_for_resize(here, budget("10", "4"))
    assert [move.uid for move in plan.moves] == ["uid-q"]
    carried_out(here, budget("10", "4"), plan)


@pytest.mark.parametrize("seed", range(30))
def test_plans_are_carried_out(seed: int) -> None:
    """On random nodes a plan ends with the resize granted and every CPU with one owner, none longer than it says."""
    random = Random(seed)
    here = drawn_node(random, 8)
    if here is None:
        return
    for uid in here.pods[:3]:
        wish = draw_sizes(random, here.state.pods[uid].spec)
        try:
            plan = defragment_for_resize(here, wish, limit=200)
            answer = here.copy().resize(wish)
        except InputError:
            continue
        if answer.outcome in ("Allocated", "Unchanged"):
            assert plan.moves == ()
        assert plan.at_least <= plan.container_moves or not plan.fits
        if plan.fits:
            copy = here.copy()
            carried_out(copy, wish, plan)
            check(copy)


@pytest.mark.parametrize(
    ("rules", "moved"),
    [
        (Defragmentation(), ["uid-q"]),
        (Defragmentation(movable="all", carry_out="onRequest"), ["uid-q"]),
        (Defragmentation(movable="none"), None),
        (Defragmentation(carry_out="onRequest"), ["uid-r"]),
    ],
    ids=["no-section", "all", "none", "annotated"],
)
def test_who_may_be_moved(rules: Defragmentation, moved: list[str] | None) -> None:
    """A policy with a section defrag decides which containers may move; without one every container that can move
    may."""
    policy = PodslicePolicy(resize=ExclusiveResize(exclusive=True), defrag=rules)
    here = Node(MACHINE, node(**SINGLE).rules.config, policy=policy)
    here.admit(one("4"))
    here.admit(one("5", "q"))
    here.admit(pod(guaranteed("5", "1Gi"), name="r", annotations={"podslice.io/movable": "true"}))
    plan = defragment_for_resize(here, one("9"))
    assert plan.fits == (moved is not None)
    assert len(plan.moves) == len(moved or ())
    assert rules != Defragmentation(carry_out="onRequest") or [move.uid for move in plan.moves] == moved
    room = defragment(here, one("9", "x"))
    assert room.fits
    assert rules.movable == "all" or not any(move.uid == "uid-p" for move in room.moves)


NODE = ["--from", "numa:2(memory=32GB) core:8 pu:2", "--config", "examples/elastic/kubelet.yaml"]
NODE += ["--policy", "examples/elastic/policy.yaml", "--pods", "examples/elastic/pods.yaml"]


def test_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan names what moves and that the pod is resized then; exit 1 where no moves help."""
    monkeypatch.chdir(ROOT)
    grow, shrink = ("--resize", "examples/elastic/grow.yaml"), ("--resize", "examples/elastic/shrink.yaml")
    result = CliRunner().invoke(defrag, [*NODE, *grow])
    assert result.exit_code == 0
    assert "The resize of default/db fits after 1 container move" in result.output
    assert "is resized" in result.output
    result = CliRunner().invoke(defrag, [*NODE, *grow, *shrink, "-o", "json"])
    assert result.exit_code == 1
    items = read_document(result.output, "DefragmentationPlanList")["items"]
    assert [(one["pod"], one["resized"], one["plan"]["fits"]) for one in items] == [
        ("default/db", True, True), ("default/db", True, False),
    ]  # fmt: skip
    assert isinstance(CliRunner().invoke(defrag, [*NODE, *grow, "--restarts"]).exception, InputError)
