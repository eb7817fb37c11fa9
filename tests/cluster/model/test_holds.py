"""Pods on their way to nodes: what is held, until when, and that nodes come to what was expected."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from podslice import Node, Pod
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import ClusterModel, Filtered, ModelLimits
from podslice.node.holding import holding_of
from podslice.replica.planned_admission import admit_as_planned
from tests.cluster.model.drawn import DrawnCluster
from tests.cluster.model.lives import Life
from tests.conftest import make_node, make_pod

MACHINE = "pack:2 numa:1(memory=64GB) core:4 pu:2"


def cluster(*nodes: Node, policy: PlanPolicy = "compare") -> ClusterModel:
    model = ClusterModel(ModelLimits(best=1000))
    for number, node in enumerate(nodes):
        model.add_node(f"n{number}", node.rules, node.state, policy=policy)
    return model


def single() -> Node:
    return make_node(MACHINE, topology_manager_policy="single-numa-node")


def starts(model: ClusterModel, node: Node, pod: Pod, name: str = "n0", now: float = 1.0) -> str:
    """Start a pod on its kubelet, and return the outcome that its journal gives."""
    uid = pod.metadata.uid
    if node.admit(pod).admitted:
        return model.apply_admission(name, uid, node.state, now).kind
    return model.apply_refusal(name, uid, node.state, now).kind


def test_the_way_of_a_pod() -> None:
    """Chosen, held, confirmed by the filter, bound and admitted: the node comes to what the plan said, nothing is held
    any more, and the model is the node."""
    node, pod = single(), make_pod("p", ("c", "4"))
    model = cluster(node)
    assert model.choose(pod, 0.0) == "n0"
    assert [(one.uid, one.node, one.bound) for one in model.holds()] == [("p", "n0", False)]
    assert model.filter(pod, ["n0"], 1.0).nodes == ["n0"]
    verdict = model.bind("p", "n0", 2.0)
    assert verdict.error == ""
    assert starts(model, node, pod) == "agreed"
    assert verdict.plan is not None
    assert verdict.plan.cpus == node.view.owned_by("p")
    assert model.holds() == ()
    assert model.node("n0").base is model.node("n0").state


def test_later_pods_see_holds() -> None:
    """The same CPUs are never promised twice, and are free again when the hold ends."""
    model = cluster(single())
    for number in range(3):
        assert model.choose(make_pod(f"p{number}", ("c", "4")), 0.0) == "n0"
    full = model.filter(make_pod("late", ("c", "4")), ["n0"], 0.0)
    assert full.unresolvable == {"n0": "no NUMA node has 4 exclusive CPUs free"}
    model.unbind("p1")
    assert model.choose(make_pod("late", ("c", "4")), 0.0) == "n0"


def test_time_limit() -> None:
    """A hold expires after its time, one of a group later, one of a bound pod never."""
    model = cluster(single(), single(), single())
    model.choose(make_pod("alone", ("c", "2")), 0.0, names=["n0"])
    model.choose(make_pod("member", ("c", "2")), 0.0, names=["n1"], group="g")
    model.choose(make_pod("bound", ("c", "2")), 0.0, names=["n2"])
    model.bind("bound", "n2", 1.0)
    assert model.expire(29.9) == []
    assert model.expire(30.0) == ["alone"]
    assert model.expire(310.0) == ["member"]
    assert model.expire(1e9) == []
    assert [one.uid for one in model.holds()] == ["bound"]


def test_a_newer_filter_replaces() -> None:
    """A pod is on its way to one node at most: another filter lets go of what the last one held."""
    model, pod = cluster(single(), single()), make_pod("p", ("c", "7"))
    assert model.filter(pod, ["n0"], 0.0).nodes == ["n0"]
    assert model.filter(pod, ["n1"], 0.0).nodes == ["n1"]
    assert [one.node for one in model.holds()] == ["n1"]
    assert model.node("n0").base is model.node("n0").state


def test_a_group_begins_again() -> None:
    """The first member of a group that is filtered again begins a new simulation: what the group held falls, but for
    members that are bound."""
    model = cluster(single())
    for uid in ("a", "b", "c"):
        assert model.filter(make_pod(uid, ("c", "2")), ["n0"], 0.0, group="g").nodes == ["n0"]
    model.bind("b", "n0", 0.0)
    model.filter(make_pod("a", ("c", "2")), ["n0"], 1.0, group="g")
    assert [one.uid for one in model.holds()] == ["b", "a"]


def test_a_group_falls_together() -> None:
    """Once a member finds no node, or one is deleted, the holds of all unbound members end together, so that others
    have room; a bound member stays, and one that is bound after all is held again."""
    model = cluster(single())
    for uid in ("a", "b", "c"):
        assert model.filter(make_pod(uid, ("c", "2")), ["n0"], 0.0, group="g").nodes == ["n0"]
    model.bind("b", "n0", 0.0)
    assert model.filter(make_pod("d", ("c", "30")), ["n0"], 0.0, group="g").nodes == []
    assert model.expire(0.4) == []
    assert sorted(model.expire(0.6)) == ["a", "c"]
    assert [one.uid for one in model.holds()] == ["b"]
    assert model.bind("a", "n0", 0.7, make_pod("a", ("c", "2"))).error == ""
    for uid in ("e", "f"):
        assert model.filter(make_pod(uid, ("c", "1")), ["n0"], 1.0, group="other").nodes == ["n0"]
    model.apply_deletion("e", 1.0)
    assert [one.uid for one in model.holds()] == ["b", "a"]


def test_a_group_without_room_makes_way() -> None:
    """A group with a member that found no node blocks no other pod, however often it is tried; one that found nodes for
    all does."""
    model = cluster(single())
    half = str(len(single().assignable_cpus) // 2)
    for _ in range(3):
        model.filter(make_pod("a", ("c", half)), ["n0"], 0.0, group="g")
        model.filter(make_pod("b", ("c", half)), ["n0"], 0.0, group="g")
    assert model.choose(make_pod("other", ("c", half)), 0.0) is None
    model.filter(make_pod("c", ("c", half)), ["n0"], 0.0, group="g")
    assert model.filter(make_pod("third", ("c", half)), ["n0"], 0.0, group="h").nodes == ["n0"]
    assert [one.uid for one in model.holds()] == ["third"]


def test_a_group_waits_for_its_permit() -> None:
    """As long as every member found a node all of them stay held, however long the scheduler waits for the last; then
    they fall together."""
    model = cluster(single())
    for at, uid in enumerate(("a", "b")):
        assert model.filter(make_pod(uid, ("c", "2")), ["n0"], float(at), group="g").nodes == ["n0"]
    assert model.expire(309.0) == []
    assert sorted(model.expire(310.5)) == ["a", "b"]
    assert model.holds() == ()


def test_deleted() -> None:
    """A held pod that is deleted is let go at once; a bound one when its node says so, or after a while."""
    node = single()
    model = cluster(node)
    model.choose(make_pod("held", ("c", "2")), 0.0)
    model.apply_deletion("held", 1.0)
    assert model.holds() == ()
    for uid in ("told", "silent"):
        model.choose(make_pod(uid, ("c", "2")), 0.0)
        model.bind(uid, "n0", 0.0)
        model.apply_deletion(uid, 1.0)
    model.apply_removal("n0", "told", node.state)
    assert [one.uid for one in model.holds()] == ["silent"]
    assert model.expire(31.0) == ["silent"]


def test_node_gone() -> None:
    """With a node go the holds on it, and its name comes back as another node."""
    model = cluster(single(), single())
    model.choose(make_pod("p", ("c", "2")), 0.0, names=["n1"])
    model.remove_node("n1")
    assert model.holds() == ()
    assert model.filter(make_pod("q", ("c", "2")), ["n1"], 0.0).unresolvable.keys() == {"n1"}
    fresh = make_node("pack:1 numa:1(memory=64GB) core:8 pu:2")
    model.add_node("n1", fresh.rules, fresh.state)
    assert model.filter(make_pod("q", ("c", "12")), ["n0", "n1"], 0.0).nodes == ["n1"]


def test_disputes() -> None:
    """A node that gives other CPUs than expected, or refuses, is adopted; such pods do not go there for a minute, other
    pods do, and so do such pods to other nodes."""
    node = single()
    model = cluster(node, single())
    pod = make_pod("p", ("c", "2"))
    model.choose(pod, 0.0, names=["n0"])
    model.bind("p", "n0", 0.0)
    node.admit(make_pod("unheard-of", ("c", "4")))
    node.admit(pod)
    told = model.apply_admission("n0", "p", node.state, 1.0)
    assert told.kind == "disputed"
    assert told.expected != told.found
    again = make_pod("again", ("c", "2"))
    assert model.filter(again, ["n0"], 2.0).nodes == []
    assert model.filter(again, ["n1"], 2.0).nodes == ["n1"]
    assert model.filter(make_pod("other", ("c", "1")), ["n0"], 2.0).nodes == ["n0"]
    model.unbind("other")
    assert model.filter(again, ["n0"], 61.0).nodes == ["n0"]
    assert model.apply_refusal("n0", "again", node.state, 62.0).kind == "refused"
    assert model.filter(make_pod("third", ("c", "2")), ["n0"], 63.0).nodes == []


@pytest.mark.parametrize("policy", ["compare", "honour"])
def test_orders(policy: PlanPolicy) -> None:
    """Three CPUs are free on NUMA node 0, two on node 1. A kubelet that starts the pod of two first puts it on node 0,
    where the pod of three should go: they are not let in together. Equal pods always are."""
    node = make_node(
        "pack:2 numa:1(memory=64GB) core:3 pu:1", topology_manager_policy="single-numa-node", reserved_system_cpus="3"
    )
    model, pair = cluster(node, policy=policy), make_pod("pair", ("c", "2"))
    assert model.choose(make_pod("three", ("c", "3")), 0.0) == "n0"
    found = model.filter(pair, ["n0"], 0.0)
    assert found == Filtered([], {}, {"n0": "reserved for pods being bound"})
    model.unbind("three")
    model.unbind("pair")
    for number in range(5):
        assert model.choose(make_pod(f"equal-{number}", ("c", "1")), 0.0) == "n0"


def test_a_plan_of_the_service_before() -> None:
    """A service that was started anew knows of no plan; a node that took one of the service before it is not disputed,
    and one that says nothing of a plan is."""
    node = single()
    for as_planned, fate in ((True, "honoured"), (False, "disputed")):
        model, asked = cluster(node, policy="honour"), make_pod("p", ("c", "2"))
        model.apply_assignment(asked, "n0", 0.0)
        other = Node.of(node.rules, node.state)
        other.admit(make_pod("first", ("c", "2")))
        plan = Node.of(node.rules, other.state)
        plan.admit(asked)
        moved = Node.of(node.rules, node.state)
        assert admit_as_planned(moved, asked, holding_of(plan.state, "p")).moved
        assert model.apply_admission("n0", "p", moved.state, 1.0, as_planned=as_planned).kind == fate


def test_kubelets_own_managers() -> None:
    """Of a node whose kubelet decides alone one exclusive pod at a time is on its way."""
    node = single()
    model = cluster(node, policy="observe")
    first, second = make_pod("a", ("c", "2")), make_pod("b", ("c", "2"))
    assert model.choose(first, 0.0) == "n0"
    assert model.filter(second, ["n0"], 0.0).unresolvable == {"n0": "reserved for pods being bound"}
    model.bind("a", "n0", 0.0)
    assert starts(model, node, first) == "agreed"
    assert model.filter(second, ["n0"], 2.0).nodes == ["n0"]


def test_lost_holds() -> None:
    """Bind lets a pod in again whose hold has fallen, if the node still takes it; else the Binding is not written."""
    model, pod = cluster(single()), make_pod("p", ("c", "7"))
    model.choose(pod, 0.0)
    model.expire(30.0)
    assert model.bind("p", "n0", 31.0).error == "nothing is known of the pod"
    assert model.bind("p", "n0", 31.0, pod).error == ""
    model.unbind("p")
    for number in range(2):
        model.choose(make_pod(f"other-{number}", ("c", "5")), 31.0)
    error = model.bind("p", "n0", 17.0, pod).error
    assert error.endswith("does not fit any more: no NUMA node has 7 exclusive CPUs free")


def test_others_pods() -> None:
    """Pods that others sent to a node count from the moment the API server knows; so do bound pods after a restart."""
    node, foreign = single(), make_pod("static", ("c", "7"))
    model = cluster(node)
    model.apply_assignment(foreign, "n0", 0.0)
    model.apply_assignment(foreign, "n0", 0.0)
    model.apply_assignment(make_pod("elsewhere", ("c", "7")), "unknown", 0.0)
    assert [one.uid for one in model.holds()] == ["static"]
    assert starts(model, node, foreign) == "agreed"
    model.apply_assignment(foreign, "n0", 5.0)
    assert model.holds() == ()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(
    ("policy", "profile", "seeds"),
    [
        ("compare", "podslice", 20),
        ("honour", "podslice", 20),
        ("observe", "podslice", 8),
        ("compare", "kubelet-1.36", 8),
    ],
)
def test_lives(policy: PlanPolicy, profile: str, seeds: int, part: int) -> None:
    """Whatever happens in whatever order: after every step the model is the one that is made from scratch, no node ever
    refuses a pod that was bound or gives it something else, although pods start in another order than they came, and
    at last nothing is held."""
    binding_outcomes: Counter[str] = Counter()
    for seed in range(part, seeds, 4):
        life = Life(seed, policy, profile)
        for _ in range(80):
            life.step()
            life.check()
        life.end()
        binding_outcomes += life.binding_outcomes
    assert set(binding_outcomes) <= {"agreed", "honoured"}
    assert binding_outcomes["agreed"] > seeds // 4


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_plans(profile: str) -> None:
    """The plan of a pod is what each of its containers has once the node has admitted it after all before it."""
    planned = 0
    for seed in range(12):
        cluster = DrawnCluster(Random(seed), profile, nodes=3)
        for _ in range(10):
            pod = cluster.pod()
            name = cluster.model.choose(pod, 0.0)
            if name is None:
                assert not cluster.model.holds()
                continue
            plan = cluster.model.plan(pod.metadata.uid)
            node = cluster.nodes[name]
            assert node.admit(pod).admitted
            assert plan == holding_of(node.state, pod.metadata.uid)
            assert cluster.model.apply_admission(name, pod.metadata.uid, node.state, 1.0).kind == "agreed"
            planned += 1
    assert planned > 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", [103, 262, 5266, 5398])
def test_lives_that_were_hard(seed: int) -> None:
    """Lives in which a node once did otherwise than expected: it declined a plan that was worse than its own choice,
    and it used its plan when the model expected its own choice."""
    life = Life(seed, "honour", "podslice")
    for _ in range(200):
        life.step()
    life.end()
    assert set(life.binding_outcomes) <= {"agreed", "honoured"}
