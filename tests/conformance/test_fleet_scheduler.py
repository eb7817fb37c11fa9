"""Where the real kube-scheduler binds pods with rules about other pods, or why it does not, is what fleets simulate."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from e2e.controlplane import Api, ControlPlane, Json
from e2e.scheduling import Pods, create_node, eventually, pod, start_scheduler_named
from e2e.sharedplane import prepare_namespace

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from msgspec.structs import replace

from podslice.fleet.engine.nodes import Fleet, FleetNode
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.engine.streams import IndexedStream
from podslice.fleet.scheduler.columns import Columns
from podslice.fleet.scheduler.placement import placement_of
from podslice.fleet.scheduler.policies import KubeScores
from podslice.fleet.scheduler.scheduler import FleetScheduler
from tests.conftest import make_pod
from tests.fleet.fleets import fleet_class, shape_of_pod

HOST, ZONE = "kubernetes.io/hostname", "zone"
NODES = 14
ROOM = {"cpu": 32_000, "memory": 256 << 30, "pods": 250}
PODS = 200
SEEDS = (7, 8)


def labels_of(number: int) -> dict[str, str]:
    """Three zones, a node without one, two kinds of disks."""
    zone = {} if number == NODES - 1 else {ZONE: "abc"[number % 3]}
    return {HOST: f"n{number}", "disk": "ssd" if number % 4 else "hdd", **zone}


def drawn(r: Random, number: int) -> Json:
    """A pod with some rules about other pods."""
    spec: Json = {}
    if r.random() < 0.45:
        spec["topologySpreadConstraints"] = [spread(r, key) for key in r.sample([HOST, ZONE], r.choice((1, 1, 2)))]
    affinity: Json = {}
    if r.random() < 0.3:
        affinity["podAffinity"] = rules(r)
    if r.random() < 0.35:
        affinity["podAntiAffinity"] = rules(r)
    if r.random() < 0.25:
        affinity["nodeAffinity"] = node_affinity(r)
    made = pod(f"p{number}", "fleet", affinity=affinity, **spec)
    made["metadata"] |= {
        "namespace": r.choice(("default", "default", "other")),
        "labels": {"app": r.choice("abc"), "rev": r.choice("12")},
    }
    return made


def selector(r: Random) -> Json:
    if r.random() < 0.3:
        return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [r.choice("abc")]}]}
    return {"matchLabels": {"app": r.choice("abc")}}


def spread(r: Random, key: str) -> Json:
    made = {
        "topologyKey": key, "maxSkew": r.choice((1, 1, 2)), "labelSelector": selector(r),
        "whenUnsatisfiable": r.choice(("DoNotSchedule", "ScheduleAnyway")),
    }  # fmt: skip
    if made["whenUnsatisfiable"] == "DoNotSchedule" and r.random() < 0.2:
        made["minDomains"] = r.choice((2, 4))
    if r.random() < 0.3:
        made["matchLabelKeys"] = ["rev"]
    if r.random() < 0.3:
        made["nodeAffinityPolicy"] = "Ignore"
    return made


def rules(r: Random) -> Json:
    term: Json = {"topologyKey": r.choice((HOST, ZONE)), "labelSelector": selector(r)}
    if r.random() < 0.3:
        term |= r.choice(({"namespaces": ["other"]}, {"namespaceSelector": {}}))
    if r.random() < 0.2:
        term[r.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
    if r.random() < 0.6:
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    weighted = {"weight": r.choice((1, 30, 100)), "podAffinityTerm": term}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}


def node_affinity(r: Random) -> Json:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [r.choice(("ssd", "hdd"))]}]}
    if r.random() < 0.5:
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]}


def shape_for(document: Json) -> FleetShape:
    return replace(shape_of_pod(make_pod("p", ("c", "1"), memory="64Mi")), placement=placement_of(document))


def simulated(shapes: list[FleetShape]) -> FleetScheduler:
    one = replace(fleet_class(), allocatable=ROOM)
    nodes = tuple(FleetNode(f"n{number}", 0, labels_of(number)) for number in range(NODES))
    columns = Columns(Fleet((one,), nodes), shapes)
    policy = KubeScores(columns.loads, CellOptions().policy, balanced=True)
    draws = IndexedStream(1, "ties")
    return FleetScheduler(columns, policy, ties="random", percentage=100, draws=draws, order=columns.load)


def outcome(api: Api, document: Json) -> str:
    """The node that it was bound to; empty where the scheduler found none, after which it is gone."""
    pods = Pods(api, document["metadata"]["namespace"])
    name = document["metadata"]["name"]
    pods.create(document)

    def decided() -> Any:
        found = pods.get(name)
        unscheduled = [
            one for one in found.get("status", {}).get("conditions", ())
            if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"
        ]  # fmt: skip
        return (found["spec"].get("nodeName") or unscheduled) and found

    node = str(eventually(decided, f"a decision about {name}")["spec"].get("nodeName") or "")
    if not node:
        pods.delete(name)
    return node


@pytest.mark.parametrize("seed", SEEDS)
def test_where_pods_with_rules_go(plane: ControlPlane, seed: int) -> None:
    """200 random pods with node affinity, affinity, anti-affinity and spread constraints: each is bound to one of the
    nodes with the best simulated score, or to none where none passes the simulated filter."""
    r = Random(seed)
    documents = [drawn(r, number) for number in range(PODS)]
    scheduler = simulated([shape_for(one) for one in documents])
    bound = refused = 0
    different = []
    with plane.api() as api:
        prepare_namespace(api, "other")
        for number in range(NODES):
            create_node(api, f"n{number}", labels=labels_of(number))
        start_scheduler_named(plane, "fleet", {})
        for number, document in enumerate(documents):
            expected = [f"n{one}" for one in scheduler.best_nodes(number).tolist()]
            node = outcome(api, document)
            if node:
                bound += 1
                scheduler.columns.book(int(node[1:]), number, ())
            else:
                refused += 1
            if node not in (expected or [""]):
                different.append((number, node, expected, document))
    assert not different, different[:3]
    assert bound > PODS // 2
    assert refused > 0  # how many depends on where ties went
