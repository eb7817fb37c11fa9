"""Advice without a decision: a pod is held on every node that has points, until its scheduler has chosen one."""

from __future__ import annotations

from podslice import Node
from podslice.cluster.model.model import ClusterModel, ModelLimits
from tests.cluster.model.test_holds import single, starts
from tests.conftest import make_pod

NAMES = [f"n{number}" for number in range(4)]


def cluster(*taken: str) -> tuple[ClusterModel, dict[str, Node]]:
    """Nodes of two NUMA nodes with 8 CPUs each (7 on the first); each has a pod of so many already, 0 for none."""
    model, nodes = ClusterModel(ModelLimits(best=3)), {}
    for name, cpus in zip(NAMES, taken, strict=True):
        node = nodes[name] = single()
        if cpus != "0":
            assert node.admit(make_pod(f"there-{name}", ("c", cpus))).admitted
        model.add_node(name, node.rules, node.state)
    return model, nodes


def test_points() -> None:
    """The node with least left beside the pod (3 CPUs of 7 before 4 of 8) has ten points, equal nodes have equal ones,
    and nodes that are not among the best have none."""
    model, _ = cluster("0", "4", "4", "0")
    assert model.advise(make_pod("p", ("c", "4")), NAMES, 0.0) == {"n0": 10, "n1": 9, "n2": 0, "n3": 10}
    assert model.advise(make_pod("large", ("c", "16")), NAMES, 0.0) == dict.fromkeys(NAMES, 0)
    assert model.advise(make_pod("small", ("c", "500m")), NAMES, 0.0) == dict.fromkeys(NAMES, 0)


def test_held_everywhere_until_bind() -> None:
    """CPUs that any of the nodes would give the pod are promised to no other; with its Binding the other nodes are
    free again."""
    model, nodes = cluster("4", "4", "4", "4")
    fresh = {name: model.node(name).state for name in NAMES}
    pod = make_pod("p", ("c", "4"))
    points = model.advise(pod, NAMES[:3], 0.0)
    assert list(points.values()) == [10, 10, 10]
    assert [model.node(name).state is fresh[name] for name in NAMES] == [False, False, False, True]
    assert model.bind("p", "n1", 1.0).error == ""
    assert [model.node(name).state is fresh[name] for name in NAMES] == [True, False, True, True]
    assert [(one.uid, one.node, one.bound) for one in model.holds()] == [("p", "n1", True)]
    assert starts(model, nodes["n1"], pod, "n1") == "agreed"
    assert model.holds() == ()


def test_the_scheduler_binds_by_itself() -> None:
    """The watch shows where the pod went, or the node says so first: the other nodes are free again."""
    for way in ("watch", "node", "elsewhere"):
        model, nodes = cluster("4", "4", "4", "4")
        fresh = {name: model.node(name).state for name in NAMES}
        pod, to = make_pod("p", ("c", "4")), "n3" if way == "elsewhere" else "n2"
        model.advise(pod, NAMES[:3], 0.0)
        if way != "node":
            model.apply_assignment(pod, to, 1.0)
        assert starts(model, nodes[to], pod, to) == "agreed"
        assert [model.node(name).state is fresh[name] for name in NAMES] == [name != to for name in NAMES]
        assert model.holds() == ()


def test_what_falls_falls_everywhere() -> None:
    """Time, a deletion, another filter and a node that goes leave no hold behind."""
    model, _ = cluster("4", "4", "4", "4")
    fresh = {name: model.node(name).state for name in NAMES}
    pod = make_pod("p", ("c", "4"))

    def free() -> list[str]:
        return [name for name in NAMES if name in fresh and model.node(name).state is fresh[name]]

    model.advise(pod, NAMES[:3], 0.0)
    assert model.expire(30.0) == ["p"]
    assert free() == NAMES
    model.advise(pod, NAMES[:3], 20.0)
    model.apply_deletion("p", 21.0)
    assert free() == NAMES
    model.advise(pod, NAMES[:3], 30.0)
    model.advise(pod, ["n3"], 31.0)
    assert free() == ["n0", "n1", "n2"]
    model.advise(pod, NAMES[:3], 40.0)
    model.remove_node("n0")
    del fresh["n0"]
    assert free() == ["n3"]
    assert model.bind("p", "n2", 41.0).error == ""
    assert free() == ["n1", "n3"]


def test_a_refusal_settles_it() -> None:
    """A node that was sent the pod by others and refuses it says also that the others will not get it."""
    model, nodes = cluster("4", "4", "4", "4")
    fresh = {name: model.node(name).state for name in NAMES}
    model.advise(make_pod("p", ("c", "4")), NAMES[:3], 0.0)
    assert model.apply_refusal("n1", "p", nodes["n1"].state, 1.0).kind == "refused"
    assert [model.node(name).state is fresh[name] for name in NAMES] == [True] * 4
    assert model.holds() == ()
