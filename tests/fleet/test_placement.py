"""Placement rules: the documentation's examples, as worked examples."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice import InputError
from podslice.fleet.engine.nodes import Fleet, FleetNode, NodeEvent
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.engine.workload import Workload
from podslice.fleet.scheduler.columns import ALL, Columns
from podslice.fleet.scheduler.placement import placement_of
from podslice.scheduling.taints import Taint
from tests.conftest import make_pod
from tests.fleet.fleets import fleet_class, shape_of_pod

HOST = "kubernetes.io/hostname"
ALL_NODES = [0, 1, 2, 3]


def pod(app: str = "a", *, namespace: str = "default", labels: Any = None, **spec: Any) -> FleetShape:
    """A small pod with a label `app` and these fields of its specification."""
    written = {"metadata": {"namespace": namespace, "labels": {"app": app, **(labels or {})}}, "spec": spec}
    made = shape_of_pod(make_pod("p", ("c", "100m"), memory="64Mi"), owner="bare")
    return replace(made, placement=placement_of(written))


def fleet(zones: str = "aabb", **fields: Any) -> Fleet:
    """A node for each letter, its zone; `-` for a node without one."""
    labels = [{HOST: f"n{i}", **({"zone": zone} if zone != "-" else {})} for i, zone in enumerate(zones)]
    return Fleet((fleet_class(),), tuple(FleetNode(f"n{i}", 0, one, **fields) for i, one in enumerate(labels)))


def near(selector: Any, key: str = "zone", **fields: Any) -> dict[str, Any]:
    """A term of pod affinity."""
    return {"topologyKey": key, "labelSelector": selector, **fields}


def require_terms(kind: str, *terms: Any) -> dict[str, Any]:
    """An affinity with required terms."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def prefer_term(kind: str, weight: int, term: Any) -> dict[str, Any]:
    """An affinity with one preference."""
    one = {"weight": weight, "podAffinityTerm": term}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [one]}}


def spread(skew: int = 1, key: str = "zone", when: str = "DoNotSchedule", **fields: Any) -> dict[str, Any]:
    """A constraint about pods with app a."""
    selector = {"matchLabels": {"app": "a"}}
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector, **fields}


def open_nodes(columns: Columns, shape: int) -> list[int]:
    """The nodes that rules let a shape to."""
    found = columns.open_nodes(shape, ALL)
    return list(range(columns.count)) if found is None else found.nonzero()[0].tolist()


A = {"matchLabels": {"app": "a"}}


def test_a_spread_over_zones() -> None:
    """The documentation's example: three pods in two zones as 2 and 1, so the next goes to the zone with one; with a
    skew of 2 to either; a pod without the label counts for nothing, but is kept to the same."""
    shapes = [pod(topologySpreadConstraints=[spread()]), pod(topologySpreadConstraints=[spread(2)])]
    columns = Columns(fleet(), shapes)
    assert open_nodes(columns, 0) == ALL_NODES
    for node in (0, 1, 2):
        columns.book(node, 0, ())
    assert open_nodes(columns, 0) == [2, 3]
    assert open_nodes(columns, 1) == ALL_NODES
    columns.book(1, 1, ())
    assert open_nodes(columns, 1) == [2, 3]
    columns.book(1, 1, (), -1)
    assert open_nodes(columns, 1) == ALL_NODES


def test_nodes_without_the_label_and_too_few_domains() -> None:
    """A node without the key takes no such pod; with fewer domains than `minDomains` the fewest counts as none."""
    few = pod(topologySpreadConstraints=[spread(minDomains=3)])
    columns = Columns(fleet("aab-"), [few])
    assert open_nodes(columns, 0) == [0, 1, 2]
    columns.book(0, 0, ())
    columns.book(2, 0, ())
    assert open_nodes(columns, 0) == []


def test_which_nodes_count() -> None:
    """A zone that the pod's node selector leaves out is not a domain, unless the policy says Ignore; a tainted zone is
    one, unless the policy says Honor."""
    labels = [{"zone": zone, "disk": disk} for zone, disk in (("a", "ssd"), ("b", "ssd"), ("c", "hdd"))]
    tainted = Taint("x", "", "NoSchedule")
    nodes = [FleetNode(f"n{i}", 0, one, (tainted,) if i == 1 else ()) for i, one in enumerate(labels)]
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    policies = [
        {},
        {"nodeTaintsPolicy": "Honor"},
        {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
    ]
    shapes = [pod(affinity=affinity, topologySpreadConstraints=[spread(**one)]) for one in policies]
    columns = Columns(Fleet((fleet_class(),), tuple(nodes)), shapes)
    columns.book(0, 0, ())
    assert [open_nodes(columns, number) for number in range(3)] == [[], [0], []]


def test_only_pods_of_the_same_revision_and_namespace_count() -> None:
    """`matchLabelKeys` leaves pods of another revision out, and a constraint never sees another namespace."""
    found = [spread(key=HOST, matchLabelKeys=["hash"])]
    shapes = [
        pod(labels={"hash": "1"}, topologySpreadConstraints=found),
        pod(labels={"hash": "2"}, topologySpreadConstraints=found),
        pod(labels={"hash": "1"}, namespace="other", topologySpreadConstraints=found),
    ]
    columns = Columns(fleet("ab"), shapes)
    columns.book(0, 0, ())
    assert [open_nodes(columns, number) for number in range(3)] == [[1], [0, 1], [0, 1]]


def test_near_and_far() -> None:
    """The cache and the web server of the documentation: caches on nodes of their own, each web server beside a cache;
    where no cache is, no web server goes; pods that others want to be far from stay away."""
    cache = pod("cache", affinity=require_terms("podAntiAffinity", near({"matchLabels": {"app": "cache"}}, HOST)))
    web = pod(
        "web",
        affinity={
            **require_terms("podAffinity", near({"matchLabels": {"app": "cache"}}, HOST)),
            **require_terms("podAntiAffinity", near({"matchLabels": {"app": "web"}}, HOST)),
        },
    )
    shy = pod("shy", affinity=require_terms("podAntiAffinity", near({"matchLabels": {"app": "plain"}})))
    plain = pod("plain")
    columns = Columns(fleet(), [cache, web, shy, plain])
    assert open_nodes(columns, 1) == []
    columns.book(0, 0, ())
    columns.book(2, 0, ())
    assert [open_nodes(columns, number) for number in (0, 1)] == [[1, 3], [0, 2]]
    columns.book(0, 1, ())
    assert open_nodes(columns, 1) == [2]
    columns.book(3, 2, ())
    assert open_nodes(columns, 3) == [0, 1]


def test_the_first_of_a_group_may_go_anywhere() -> None:
    """A pod that wants to be near its like is let to any node with the label while there is none, then near it; one
    that wants to be near others is not."""
    own = pod(affinity=require_terms("podAffinity", near(A)))
    columns = Columns(fleet("aab-"), [own, pod("b", affinity=require_terms("podAffinity", near(A)))])
    assert [open_nodes(columns, 0), open_nodes(columns, 1)] == [[0, 1, 2], []]
    columns.book(2, 0, ())
    assert [open_nodes(columns, 0), open_nodes(columns, 1)] == [[2], [2]]


def test_namespaces_of_terms() -> None:
    """A term means pods of its own namespace, of those it names, or of all with an empty selector."""
    here = pod(namespace="x")
    found: list[dict[str, Any]] = [
        {}, {"namespaces": ["x"]}, {"namespaceSelector": {}}, {"namespaces": ["z"]},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}},
    ]  # fmt: skip
    terms = [pod("b", affinity=require_terms("podAffinity", near(A, **one))) for one in found]
    columns = Columns(fleet(), [here, *terms])
    columns.book(0, 0, ())
    assert [open_nodes(columns, number) for number in range(1, 6)] == [[], [0, 1], [0, 1], [], [0, 1]]


def test_scores() -> None:
    """Worked examples, doubled as the plugins' weight is 2. Spread over zones with 2 and 1 pods: both count log(4),
    2 x 1.386 and 1.386 are 3 and 1 rounded, 100 x (3 + 1 - 3) / 3 = 33 and 100. Weights 10 near the one pod on node 0:
    100 in its zone. A preference of 30 against it: 100 elsewhere. A term of node affinity: 100 where it is met."""
    terms = {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}}
    shapes = [
        pod(topologySpreadConstraints=[spread(when="ScheduleAnyway")]),
        pod("b", affinity=prefer_term("podAffinity", 10, near(A))),
        pod("b", affinity=prefer_term("podAntiAffinity", 30, near(A, HOST))),
        pod("b", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [terms]}}),
    ]
    columns = Columns(fleet(), shapes)
    nodes = columns.load.copy()
    nodes[:] = ALL_NODES
    for node in (0, 0, 2):
        columns.book(node, 0, ())
    found = [columns.domains.scores_of(number, nodes).tolist() for number in range(4)]
    assert found[0] == [66, 66, 200, 200]
    assert found[1] == [200, 200, 0, 0]
    assert found[2] == [0, 200, 100, 200]
    assert found[3] == [0, 0, 200, 200]


def test_pods_wait_for_other_pods() -> None:
    """A pod that wants to be near another waits until that one comes; one that a full zone keeps out until one goes."""
    follower = pod("b", affinity=require_terms("podAffinity", near(A, HOST)))
    shapes = [pod(), follower, pod("c", affinity=require_terms("podAntiAffinity", near({"matchLabels": {"app": "c"}})))]
    workload = Workload.of(shapes, [1, 0, 2, 2, 2], [0, 1000, 1000, 1000, 1000], [-1, -1, 5000, -1, -1])
    result = run_cell(fleet(), workload, CellOptions(), 1)
    assert list(result.pods.bound) == [1000, 1000, 1000, 1000, 6000]
    assert result.pods.node[0] == result.pods.node[1]


def test_a_node_that_is_gone_is_no_domain() -> None:
    """While one of two nodes is not there, a skew of 1 over nodes lets all pods to the other; then they go to the
    new one."""
    nodes = [FleetNode(f"n{i}", 0, {HOST: f"n{i}"}, absent=i == 1) for i in range(2)]
    shapes = [pod(topologySpreadConstraints=[spread(key=HOST)])]
    workload = Workload.of(shapes, [0] * 5, [0, 1, 2, 100, 101])
    events = (NodeEvent(50, "add", (1,)),)
    result = run_cell(Fleet((fleet_class(),), tuple(nodes)), workload, CellOptions(events=events), 1)
    assert list(result.pods.node) == [0, 0, 0, 1, 1]


def test_placements_that_cannot_be_read() -> None:
    """A wrong type is one line with its place; nulls are as if nothing was there."""
    assert placement_of({"spec": {"affinity": None, "tolerations": None}}) == placement_of({})
    with pytest.raises(InputError, match="maxSkew"):
        placement_of({"spec": {"topologySpreadConstraints": [spread(skew="x")]}})  # type: ignore[arg-type]
