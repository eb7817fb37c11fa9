"""Nodes to which a pending pod may be nominated: labels, taints and cordons, and pods that are not nominated at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podslice.cluster.extender.eligible import Places, is_eligible
from podslice.service.clusterobjects import (
    LARGEST_AHEAD,
    MOST_TERMS,
    PlacementTerms,
    ScheduledNode,
    Taint,
    Toleration,
    Tolerations,
    read_node,
)
from tests.cluster.bench import Bench, node_object, pod_object, scheduled_pod, shared_pod

GPU = {"key": "gpu", "value": "a", "effect": "NoSchedule"}


def node(name: str = "n", labels: dict[str, str] | None = None, **spec: Any) -> ScheduledNode:
    document = node_object(name, **spec)
    document["metadata"]["labels"] = labels or {}
    return read_node(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("tolerations", "tolerated"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "gpu", "operator": "Exists"}], True),
        ([{"key": "gpu", "operator": "Equal", "value": "a"}], True),
        ([{"key": "gpu", "value": "a"}], True),
        ([{"key": "gpu", "value": "b"}], False),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"key": "other", "operator": "Exists"}], False),
        ([{"operator": "Equal", "value": "a"}], False),
        ([{"key": "gpu", "operator": "Lt", "value": "a"}], False),
    ],
)
def test_taints(tolerations: list[dict[str, str]], tolerated: bool) -> None:
    """A taint excludes pods that do not tolerate its key, value and effect; a preference excludes none."""
    terms = scheduled_pod(pod_object("p", tolerations=tolerations)).terms
    assert is_eligible(node(taints=[GPU]), terms) is tolerated
    assert is_eligible(node(taints=[GPU | {"effect": "PreferNoSchedule"}]), terms)


def test_cordons_and_labels() -> None:
    """A cordoned node takes only pods that tolerate it; a selector needs every label."""
    plain, selecting = (
        scheduled_pod(pod_object("p")).terms,
        scheduled_pod(pod_object("q", nodeSelector={"a": "1", "b": "2"})).terms,
    )
    assert not is_eligible(node(unschedulable=True), plain)
    cordon = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    assert is_eligible(node(unschedulable=True), scheduled_pod(pod_object("r", tolerations=cordon)).terms)
    assert is_eligible(node(labels={"a": "1", "b": "2", "c": "3"}), selecting)
    assert not is_eligible(node(labels={"a": "1"}), selecting)


def test_all_nodes_need_no_list() -> None:
    """While no node is special and a pod selects nothing, all nodes are meant; a taint that goes makes it so again."""
    places = Places()
    terms = scheduled_pod(pod_object("p")).terms
    places.put(node("a"))
    places.put(node("b", taints=[GPU]))
    assert places.among(terms) == ["a"]
    places.put(node("b"))
    assert places.among(terms) is None
    places.put(node("c", unschedulable=True))
    places.drop("c")
    assert places.among(terms) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"nodeAffinity": {}}},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]},
        {"volumes": [{"name": "v", "ephemeral": {}}]},
        {"schedulingGroup": {"podGroupName": "g"}},
    ],
)
def test_pods_that_are_not_nominated(spec: dict[str, Any]) -> None:
    """A pod that depends on other objects goes the ordinary way; so does one with a host port, and one without
    exclusive resources."""
    bench = Bench("a")
    assert bench.placing.can_nominate(scheduled_pod(pod_object("p")))
    assert not bench.placing.can_nominate(scheduled_pod(pod_object("p", **spec)))
    port = pod_object("p")
    port["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": 1}]
    assert not bench.placing.can_nominate(scheduled_pod(port))
    assert not bench.placing.can_nominate(scheduled_pod(shared_pod("p")))
    emptied = pod_object("p", volumes=[{"name": "v", "emptyDir": {}}])
    assert bench.placing.can_nominate(scheduled_pod(emptied))


def test_many_terms_are_not_looked_at() -> None:
    """A pod with very many tolerations or labels is left to its scheduler: no node is chosen ahead."""
    many = [{"key": f"k{number}", "operator": "Exists"} for number in range(MOST_TERMS + 1)]
    told = scheduled_pod(pod_object("p", tolerations=many)).terms
    assert (told.simple, told.excess) == (
        False,
        f"the pod has {MOST_TERMS + 1} tolerations; {MOST_TERMS} are looked at",
    )
    selecting = scheduled_pod(
        pod_object("q", nodeSelector={f"k{number}": "x" for number in range(MOST_TERMS + 1)})
    ).terms
    assert not selecting.simple
    assert "labels in its node selector" in selecting.excess
    large = scheduled_pod(pod_object("r", tolerations=[{"key": "k" * LARGEST_AHEAD, "operator": "Exists"}])).terms
    assert not large.simple
    assert Places().among(told) is None


def test_tolerations_cost_the_same_whatever_their_number() -> None:
    """They are compared once with each kind of node, not with each node."""
    places = Places()
    for number in range(300):
        places.put(node(f"gpu-{number}", taints=[GPU]))
    places.put(node("plain"))
    asked = 0

    class Counting(Tolerations):
        def tolerate(self, taint: Taint) -> bool:
            nonlocal asked
            asked += 1
            return super().tolerate(taint)

    other = [Toleration(f"k{number}", "Exists") for number in range(MOST_TERMS)]
    assert places.among(PlacementTerms(tolerations=Counting.of(other))) == ["plain"]
    assert asked == 1
