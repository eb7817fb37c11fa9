"""The filter names the nodes that take a pod, and no others."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from podslice import Node, Pod
from podslice.api.pod.critical import is_critical
from podslice.api.pod.spec import pod_from_dict
from podslice.cluster.model.columns import distinct
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.config.kubelet import MemoryReservation
from tests.cluster.model.drawn import DrawnCluster, admits
from tests.conftest import make_node, make_pod

MACHINE = "pack:2 numa:1(memory=64GB) core:8 pu:2"


def cluster(*nodes: Node, best: int = 16) -> ClusterModel:
    model = ClusterModel(ModelLimits(best=best))
    for number, node in enumerate(nodes):
        model.add_node(f"n{number}", node.rules, node.state)
    return model


def ask(model: ClusterModel, pod: Pod, *names: str) -> tuple[list[str], dict[str, str]]:
    """The filter's answer, without what it holds."""
    found = model.filter(pod, names, 0.0)
    model.unbind(pod.metadata.uid)
    return found.nodes, {**found.failed, **found.unresolvable}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "seeds"),
    [("podslice", 25), ("kubelet-1.36", 8), ("podslice-1.31 podslice-1.33 podslice kubelet-1.35 podslice-1.37", 20)],
)
def test_brute_force(profile: str, seeds: int) -> None:
    """Drawn nodes, drawn pods: the filter's set is exactly the nodes whose own `try_admit` admits, every other node
    has a reason, and pods that want nothing for themselves pass everywhere."""
    taken = refused = 0
    for seed in range(seeds):
        cluster = DrawnCluster(Random(seed), profile, nodes=4)
        for _ in range(15):
            pod = cluster.pod()
            if is_critical(pod):
                continue
            nodes, reasons = ask(cluster.model, pod, *cluster.nodes)
            if not cluster.model.wants_exclusive(pod):
                assert nodes == list(cluster.nodes)
                continue
            for name, node in cluster.nodes.items():
                exclusive = cluster.model._nodes[name].kind.needs(cluster.model.classes.signature(pod)).exclusive
                if exclusive:
                    assert (name in nodes) == admits(node, pod), (seed, name, reasons.get(name), pod)
                    assert (name in nodes) != bool(reasons.get(name)), (seed, name)
                    taken, refused = taken + (name in nodes), refused + (name not in nodes)
    assert taken > 10 * seeds
    assert refused > 5 * seeds


def test_words_of_refusals() -> None:
    """Nodes that refuse for the same cause have the same text, with what the pod asks for and nothing of the node."""
    single = make_node(MACHINE, topology_manager_policy="single-numa-node")
    other = make_node(MACHINE, topology_manager_policy="single-numa-node")
    restricted = make_node(MACHINE)
    for number, node in enumerate((single, other, restricted)):
        for half in range(2):
            node.admit(make_pod(f"there-{number}-{half}", ("c", "8")))
    other.admit(make_pod("one-more", ("c", "2")))
    nodes, reasons = ask(cluster(single, other, restricted), make_pod("p", ("c", "10")), "n0", "n1", "n2", "n9")
    assert nodes == []
    assert reasons == {
        "n0": "no NUMA node has 10 exclusive CPUs free",
        "n1": "no NUMA node has 10 exclusive CPUs free",
        "n2": "exclusive CPUs free only across NUMA nodes (restricted)",
        "n9": "node state not confirmed by its agent",
    }


def test_pods_without_wishes_pass() -> None:
    """A Burstable pod, and a Guaranteed one with half a CPU where no node counts memory, pass unchanged: unknown nodes
    too, and nothing is held."""
    model = cluster(make_node())
    burstable = pod_from_dict(
        {"metadata": {"name": "b", "uid": "b"}, "spec": {"containers": [{"name": "c", "resources": {}}]}}
    )
    for pod in (burstable, make_pod("half", ("c", "500m"))):
        assert model.filter(pod, ["n0", "nobody-knows"], 0.0).nodes == ["n0", "nobody-knows"]
        assert model.bind(pod.metadata.uid, "nobody-knows", 0.0, pod).error == ""
    assert model.holds() == ()


def test_fails_closed() -> None:
    """An unconfirmed node takes no pod with exclusive CPUs, and none may be bound to it; confirmed again, it does."""
    model, pod = cluster(make_node()), make_pod("p", ("c", "2"))
    assert model.choose(pod, 0.0) == "n0"
    model.confirm_node("n0", confirmed=False)
    assert model.bind("p", "n0", 1.0, pod).error == "node state not confirmed by its agent"
    assert ask(model, pod, "n0") == ([], {"n0": "node state not confirmed by its agent"})
    model.confirm_node("n0", confirmed=True)
    assert ask(model, pod, "n0") == (["n0"], {})


def test_the_best_nodes() -> None:
    """So many nodes are named as were asked for, those first on which fewest CPUs are left beside the pod."""
    nodes = [make_node(MACHINE, topology_manager_policy="single-numa-node") for _ in range(4)]
    for number, cpus in enumerate(("2", "6", "10")):
        nodes[number].admit(make_pod(f"there-{number}", ("c", cpus)))
    found, reasons = ask(cluster(*nodes, best=2), make_pod("p", ("c", "6")), "n0", "n1", "n2", "n3")
    assert found == ["n1", "n0"]
    assert reasons == {}


def test_all_nodes_refuse_what_none_has() -> None:
    """A pod larger than any node is refused by all with a cause that holds for good."""
    model = cluster(make_node(MACHINE), make_node(MACHINE))
    found = model.filter(make_pod("p", ("c", "64")), ["n0", "n1"], 0.0)
    assert found.nodes == []
    assert set(found.unresolvable.values()) == {"node too small: cpu"}


def test_absurd_amounts() -> None:
    """A pod that asks for more than 64 bits hold is refused like any other; where amounts wrap, the node decides."""
    reservation = {"system_reserved": {"memory": "1Gi"}, "memory_manager_policy": "Static"}
    memory = make_node(MACHINE, reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),), **reservation)
    wrapping = make_node(MACHINE, profile="kubelet-1.36")
    model = cluster(make_node(MACHINE), memory, wrapping)
    huge = "9" * 30
    for pod in (make_pod("p", ("c", huge)), make_pod("q", ("c", "2"), memory=huge), make_pod("r", ("c", "2E"))):
        nodes, reasons = ask(model, pod, "n0", "n1", "n2")
        assert nodes == [name for name in ("n2",) if admits(wrapping, pod)]
        assert reasons.keys() == {"n0", "n1", "n2"} - set(nodes)


def test_distinct_numbers() -> None:
    """Each number once, smallest first, with rows of no node among them; none of none."""
    assert distinct(np.array([4, -1, 4, 0, 7, 0], dtype=np.int64)) == [-1, 0, 4, 7]
    assert distinct(np.array([], dtype=np.int64)) == []
