"""Schedulers that know NUMA sums, preemption, and kubelets that restart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice import KubeletConfig, Node
from podslice.fleet.engine.budgets import DisruptionBudget
from podslice.fleet.engine.nodes import Fleet, FleetClass, FleetNode, NodeEvent
from podslice.fleet.engine.options import CellOptions, FilterName
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.engine.workload import Workload
from podslice.fleet.scheduler import watch
from podslice.fleet.scheduler.placement import PlacementRules
from podslice.fleet.scheduler.preemption import NodeQueries, VictimFinder
from podslice.fleet.scheduler.queue import PodQueue
from podslice.fleet.scheduler.watch import LoopWatch
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.answers import ValueAnswers
from podslice.scheduling.selectors import LabelSelector
from tests.conftest import make_pod
from tests.fleet.fleets import TWO_NUMA, churn, fleet_class, fleet_of, shape, shape_of_pod


def test_sums_of_numa_nodes_prevent_what_they_can_see() -> None:
    """Fresh NRT objects and one container of whole CPUs: the plugin refuses nothing that fits and lets nothing pass
    that does not, as the exact filter."""
    fleet, workload = fleet_of(4), churn([shape("1"), shape("2"), shape("3"), shape("5"), shape("7")], 400, gap=400)
    options = {"policy": "most-allocated", "ties": "first"}
    blind = run_cell(fleet, workload, CellOptions(**options), 1)  # type: ignore[arg-type]
    seen = run_cell(fleet, workload, CellOptions(**options, filter="kube-nrt", nrt_delay_ms=0), 1)  # type: ignore[arg-type]
    exact = run_cell(fleet, workload, CellOptions(**options, filter="exact"), 1)  # type: ignore[arg-type]
    assert blind.summary["refused_attempts"] > 0
    assert seen.summary["refused_attempts"] == 0
    assert seen.pods.node == exact.pods.node
    assert seen.pods.bound == exact.pods.bound


def test_outdated_sums_send_pods_to_nodes_that_refuse() -> None:
    """The plugin sees what is left of a NUMA node only when the NRT object comes: until then pods go where nothing is
    left for them."""
    workload = Workload.of([shape("5")], [0, 0, 0], [0, 1000, 2000])
    fresh = run_cell(fleet_of(1), workload, CellOptions(filter="kube-nrt", nrt_delay_ms=0), 1)
    late = run_cell(fleet_of(1), workload, CellOptions(filter="kube-nrt", nrt_delay_ms=60_000), 1)
    assert (fresh.summary["refused_attempts"], fresh.summary["waiting"]) == (0, 1)
    assert late.summary["refused_attempts"] > 0


def test_the_plugin_does_not_know_whole_cores() -> None:
    """With full-pcpus-only an odd number of CPUs is free in sums and refused by the kubelet; the exact filter knows."""
    kind = fleet_class(
        "pack:2 numa:1(memory=16GiB) core:4 pu:2",
        reserved_system_cpus="0,1",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
    )
    workload = Workload.of([shape("3", owner="bare")], [0], [0])
    for name, refused in (("kube-nrt", 1), ("exact", 0)):
        result = run_cell(fleet_of(2, kind), workload, CellOptions(filter=name), 1)  # type: ignore[arg-type]
        assert result.summary["refused_attempts"] == refused, name
    assert [one.reason for one in run_cell(fleet_of(2, kind), workload, CellOptions(), 1).refusals] == [
        "SMTAlignmentError"
    ]


def test_containers_one_after_the_other() -> None:
    """Container by container each takes the lowest NUMA node with room; two of five CPUs fit on two NUMA nodes, three
    do not. In pod scope the pod must fit on one."""
    two = shape_of_pod(make_pod("two", ("a", "5"), ("b", "5")), owner="bare")
    three = shape_of_pod(make_pod("three", ("a", "5"), ("b", "5"), ("c", "5")), owner="bare")
    for scope, expected in (("container", [0, -1]), ("pod", [-1, -1])):
        fleet = fleet_of(1, fleet_class(topology_manager_scope=scope))
        workload = Workload.of([two, three], [0, 1], [0, 100], [50, -1])
        result = run_cell(fleet, workload, CellOptions(filter="kube-nrt", nrt_delay_ms=0), 1)
        assert list(result.pods.node) == expected, scope
        assert result.summary["refused_attempts"] == 0


def test_victims_of_preemption() -> None:
    """A pod of high priority takes the node whose victims have the lowest priority, and no more of them than it needs,
    the one that came last; a Deployment's victim waits to come again, a bare one is gone."""
    for owner, verdict, ended in (("deployment", 1, -1), ("bare", 4, 10)):
        shapes = [
            shape("7", priority=5, owner="bare"),
            shape("6", priority=1, owner="bare"),
            shape("2", priority=1, owner=owner),
            shape("8", priority=9),
        ]
        workload = Workload.of(shapes, [0, 0, 1, 2, 3], [0, 1, 2, 3, 10])
        off = run_cell(fleet_of(2), workload, CellOptions(policy="first-fit"), 1)
        assert off.pods.verdict[4] == 1
        on = run_cell(fleet_of(2), workload, CellOptions(policy="first-fit", preemption=True), 1)
        assert list(on.pods.node[:3]) == [0, 0, 1]
        assert on.summary["preempted"] == 1
        assert (on.pods.verdict[4], on.pods.node[4]) == (0, 1)
        assert (on.pods.verdict[3], on.pods.ended[3]) == (verdict, ended), owner


def labelled_shape(cpus: str, app: str, **fields: Any) -> FleetShape:
    """A pod of one container with a label."""
    return msgspec.structs.replace(shape(cpus, **fields), placement=PlacementRules(labels={"app": app}))


def test_budgets_are_spared() -> None:
    """Of two nodes the victim is taken whose budget allows it, although its priority is higher; where all are broken
    the lowest priority decides; a budget that other pods fulfil is none."""
    shapes = [
        labelled_shape("6", "db", priority=1, owner="bare"),
        labelled_shape("6", "web", priority=2, owner="bare"),
        shape("8", priority=9),
    ]
    workload = Workload.of(shapes, [0, 1, 2], [0, 1, 10])
    options = {"policy": "first-fit", "preemption": True, "until_ms": 1000}
    config = {"topology_manager_policy": "none"}
    fleet = fleet_of(2, fleet_class("pack:1 numa:1(memory=16GiB) core:9 pu:1", **config))
    web = DisruptionBudget(selector=LabelSelector({"app": "web"}), max_unavailable=0)
    for budgets, victim in (
        ((), 0),
        ((DisruptionBudget(selector=LabelSelector({"app": "db"}), min_available=1),), 1),
        ((DisruptionBudget(selector=LabelSelector({"app": "db"}), min_available="100%"), web), 0),
        ((DisruptionBudget(selector=LabelSelector({"app": "db"}), min_available=1, namespace="other"),), 0),
        ((DisruptionBudget(selector=LabelSelector(), max_unavailable=1),), 0),
    ):
        result = run_cell(fleet, workload, CellOptions(**options, budgets=budgets), 1)  # type: ignore[arg-type]
        assert [pod for pod in (0, 1) if result.pods.verdict[pod] == 4] == [victim], budgets
        assert result.pods.node[2] == victim


def test_a_budget_chooses_the_victims_of_a_node() -> None:
    """On one node the pod that a budget holds is put back first; percentages are rounded up."""
    shapes = [
        labelled_shape("4", "db", priority=1, owner="bare"),
        labelled_shape("4", "web", priority=2, owner="bare"),
        shape("4", priority=9),
    ]
    workload = Workload.of(shapes, [0, 1, 2], [0, 1, 10])
    fleet = fleet_of(1, fleet_class("pack:1 numa:1(memory=16GiB) core:9 pu:1"))
    options = {"policy": "first-fit", "preemption": True, "until_ms": 1000}
    for budgets, victim in (
        ((), 0),
        ((DisruptionBudget(selector=LabelSelector({"app": "db"}), min_available="1%"),), 1),
    ):
        result = run_cell(fleet, workload, CellOptions(**options, budgets=budgets), 1)  # type: ignore[arg-type]
        assert result.pods.verdict[victim] == 4, budgets
    assert DisruptionBudget(selector=LabelSelector(), min_available="50%").disruptions_allowed(5, 5) == 2
    assert DisruptionBudget(selector=LabelSelector(), max_unavailable="50%").disruptions_allowed(5, 4) == 2


@pytest.mark.slow
def test_hopeless_nodes_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Victims are looked for on nodes that changed since none would help: the same result as when all are looked at,
    with fewer looks."""
    shapes = [
        shape("3", priority=1),
        shape("2", priority=2, owner="bare"),
        shape("7", priority=3),
        shape("15", priority=4),
    ]
    workload = churn(shapes, 250, gap=500, length=40_000)
    options = CellOptions(preemption=True, until_ms=200_000, limit=20)
    looked: list[int] = []
    own, find = VictimFinder._victims_on, VictimFinder.find

    def look(finder: VictimFinder, shape: int, node: int, ask: NodeQueries) -> Any:
        looked.append(node)
        return own(finder, shape, node, ask)

    monkeypatch.setattr(VictimFinder, "_victims_on", look)
    remembered = run_cell(fleet_of(6), workload, options, 1)
    few = len(looked)
    monkeypatch.setattr(VictimFinder, "find", lambda one, *common: (one._hopeless.clear(), find(one, *common))[1])
    every = run_cell(fleet_of(6), workload, options, 1)
    for name in ("summary", "refusals", "pods", "nodes"):
        assert getattr(remembered, name) == getattr(every, name), name
    assert remembered.summary["preempted"] > 3
    assert few < len(looked) - few


@pytest.mark.parametrize("owner", ["deployment", "job", "bare"])
def test_preemption_without_success_ends(owner: Any) -> None:
    """By sums a pod fits when others leave, its kubelet refuses it all the same, and the victims come back: it stops
    after `limit` refusals, and no time passes in which nothing ends."""
    shapes = [shape("5", priority=1, owner=owner), shape("9", priority=9), shape("1", priority=5)]
    workload = Workload.of(shapes, [0, 0, 1, 2], [0, 10, 2000, 5000])
    result = run_cell(fleet_of(1), workload, CellOptions(preemption=True, limit=7, until_ms=600_000), 1)
    assert result.pods.verdict[2] in (1, 2)
    assert 1 <= result.summary["preempted"] <= 14
    assert result.pods.attempts[2] >= 1
    assert result.pods.verdict[3] == 0


def test_an_exact_filter_takes_victims_that_help() -> None:
    """By sums one victim would do; the node model knows that it takes the one on the right NUMA node."""
    shapes = [shape("4", priority=1, owner="bare"), shape("8", priority=9, owner="bare")]
    workload = Workload.of(shapes, [0, 0, 0, 1], [0, 1, 2, 10])
    options = {"policy": "first-fit", "preemption": True}
    blind = run_cell(fleet_of(1), workload, CellOptions(**options), 1)  # type: ignore[arg-type]
    exact = run_cell(fleet_of(1), workload, CellOptions(**options, filter="exact"), 1)  # type: ignore[arg-type]
    assert exact.summary["refused_attempts"] == 0
    assert exact.pods.verdict[3] == 0
    assert blind.summary["preempted"] <= exact.summary["preempted"]


def test_a_new_configuration_loses_pods() -> None:
    """Without alignment three pods of five CPUs run on a node of fifteen; single-numa-node takes two of them. With the
    same configuration all keep what they have."""
    loose, strict = fleet_class(name="loose", topology_manager_policy="none"), fleet_class(name="strict")
    fleet = Fleet((loose, strict), (FleetNode("n0", 0),))
    workload = Workload.of([shape("5", owner="bare")], [0, 0, 0], [0, 0, 0])
    for kind, lost in ((-1, 0), (1, 1)):
        options = CellOptions(events=(NodeEvent(1000, "restart", (0,), kind),))
        result = run_cell(fleet, workload, options, 1)
        assert result.summary["lost_in_restarts"] == lost
        assert result.summary["running"] == 3 - lost
        assert result.nodes.pods[0] == 3 - lost


def test_looking_at_some_nodes_only() -> None:
    """With a percentage of nodes every pod starts where the last search ended; nothing is lost by it."""
    fleet = fleet_of(150)
    workload = Workload.of([shape("1")], [0] * 60, range(60))
    result = run_cell(fleet, workload, CellOptions(policy="first-fit", percentage=1), 1)
    assert list(result.pods.node[:3]) == [0, 0, 0] or len({*result.pods.node}) > 1
    assert result.summary["bound"] == 60


@pytest.mark.slow
def test_loops_where_few_nodes_are_looked_at() -> None:
    """A pod that no node takes loops although each try sees other nodes; one that some node takes is bound at last."""
    small = fleet_class("pack:2 numa:1(memory=16GiB) core:4 pu:1", name="small")
    large = fleet_class(name="large")
    nodes = tuple(FleetNode(f"n{i}", 1 if i == 140 else 0) for i in range(150))
    workload = Workload.of([shape("5")], [0], [0])
    options = {"policy": "first-fit", "percentage": 1, "ties": "random"}
    found = run_cell(Fleet((small, large), nodes), workload, CellOptions(**options, until_ms=10**7), 1)  # type: ignore[arg-type]
    assert found.summary["refused_attempts"] > 0
    none = Fleet((small,), tuple(FleetNode(f"n{i}", 0) for i in range(150)))
    lost = run_cell(none, workload, CellOptions(**options, until_ms=100_000, limit=10**6), 1)  # type: ignore[arg-type]
    assert lost.summary["refused_attempts"] == 101
    assert lost.summary["looped"] == 1


def looks(patch: pytest.MonkeyPatch) -> list[int]:
    """Shapes of looping pods, whenever they look again."""
    found: list[int] = []
    own = PodQueue._is_certainly_refused

    def look(queue: PodQueue, shape: int) -> bool:
        found.append(shape)
        return own(queue, shape)

    patch.setattr(PodQueue, "_is_certainly_refused", look)
    return found


@pytest.mark.parametrize(("ties", "patience"), [("first", 1), ("random", 1), ("random", 16), ("permuted", 16)])
@pytest.mark.parametrize(
    ("policy", "nodes", "percentage"),
    [
        ("least-allocated", 9, 100),
        ("most-allocated", 9, 100),
        ("first-fit", 9, 100),
        ("least-allocated", 130, 1),
        ("most-allocated", 130, 1),
    ],
)
@pytest.mark.slow
def test_unaffected_loops_are_not_tried(
    monkeypatch: pytest.MonkeyPatch, ties: Any, patience: int, policy: Any, nodes: int, percentage: int
) -> None:
    """Pods that loop are not tried again when a node changes that cannot matter to them: the same result as when every
    change makes all of them look, and fewer looks, where all nodes are looked at and where some are, and however often
    a shape looks before all nodes are asked about it."""
    monkeypatch.setattr(watch, "_PATIENCE", patience)
    small = fleet_class("pack:2 numa:1(memory=16GiB) core:4 pu:1", name="small")
    shapes = [shape("1"), shape("2"), shape("3"), shape("5"), shape("7"), shape("6")]
    workload = churn(shapes, 40 * min(nodes, 20), gap=1400 // nodes, length=60_000)
    fleet = fleet_of(nodes, fleet_class(), small, fleet_class(gpus=2, name="gpus"))
    options = CellOptions(policy=policy, ties=ties, percentage=percentage, until_ms=90_000, cpus=True)
    looked = looks(monkeypatch)
    watched = run_cell(fleet, workload, options, 1)
    few = len(looked)
    monkeypatch.setattr(LoopWatch, "watch", lambda *_: None)
    every = run_cell(fleet, workload, options, 1)
    for name in ("summary", "series", "refusals", "pods", "nodes"):
        assert getattr(watched, name) == getattr(every, name), name
    assert watched.summary["looped"] > 5
    assert few < len(looked) - few


@pytest.mark.parametrize(("nodes", "percentage"), [(9, 100), (130, 1)])
@pytest.mark.parametrize("classes", ["all", "some"])
def test_parts_of_cores_are_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, classes: str, nodes: int, percentage: int
) -> None:
    """Odd numbers of CPUs where only whole cores are given away are refused without asking in which state nodes are,
    and looked at again only when they fit nowhere, or somewhere else: the result is the one of trying each time."""
    whole = fleet_class(
        "pack:2 numa:1(memory=16GiB) core:4 pu:2", cpu_manager_policy_options={"full-pcpus-only": "true"}
    )
    others = [fleet_class(name="cores of one")] if classes == "some" else []
    shapes = [shape("1"), shape("2"), shape("3"), shape("4"), shape("6")]
    workload = churn(shapes, 40 * min(nodes, 12), gap=1400 // nodes, length=60_000)
    fleet = fleet_of(nodes, whole, *others)
    options = CellOptions(percentage=percentage, until_ms=90_000, cpus=True)
    looked = looks(monkeypatch)
    known = run_cell(fleet, workload, options, 1)
    few = len(looked)
    monkeypatch.setattr(ValueAnswers, "never_admits", lambda *_: False)
    monkeypatch.setattr(LoopWatch, "watch", lambda *_: None)
    tried = run_cell(fleet, workload, options, 1)
    for name in ("summary", "series", "refusals", "pods", "nodes"):
        assert getattr(known, name) == getattr(tried, name), name
    assert known.summary["looped"] > 5
    assert 2 * few < len(looked)
    assert known.work["asked"] < tried.work["asked"]


def test_loops_that_every_node_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that every node refuses is known without trying them in turn: as many attempts are counted as when each is
    made, also while other pods come and go and change what nodes have."""
    small = fleet_class("pack:2 numa:1(memory=16GiB) core:4 pu:1", name="small")
    fleet = Fleet((small,), tuple(FleetNode(f"n{i}", 0) for i in range(110)))
    workload = Workload.of(
        [shape("5"), shape("2")], [0, 1, 0, 1, 1], [0, 500, 1300, 2500, 2600], [-1, 5000, -1, 4000, -1]
    )
    options = CellOptions(percentage=1, until_ms=30_000, limit=10**6)
    known = run_cell(fleet, workload, options, 1)
    monkeypatch.setattr(PodQueue, "_is_refused_by", lambda *_: False)
    tried = run_cell(fleet, workload, options, 1)
    assert list(known.pods.attempts) == list(tried.pods.attempts)
    assert known.pods.attempts[0] == 31


def critical(cpus: str) -> FleetShape:
    """A pod of system-node-critical."""
    pod = make_pod(f"critical{cpus}", ("c", cpus))
    spec = replace(pod.spec, priority=2_000_001_000, priority_class_name="system-node-critical")
    return shape_of_pod(replace(pod, spec=spec), priority=2_000_001_000)


def small_kubelet(name: str = "small", *, cpus: int, profile: str = "podslice") -> FleetClass:
    """Sixteen CPUs, of which a kubelet without managers counts so many."""
    config = KubeletConfig(eviction_hard={}, system_reserved={"cpu": str(16 - cpus)})
    node = Node(from_synthetic(TWO_NUMA), config, profile=profile)
    amounts = node.rules.counted.node.amounts
    assert amounts is not None
    assert amounts["cpu"] == 1000 * cpus
    return FleetClass(name=name, rules=node.rules, state=node.state, allocatable=dict(amounts))


def test_a_restarted_kubelet_has_less() -> None:
    """Three pods of five CPUs where a kubelet that has started again counts only twelve: the last is lost."""
    fleet = Fleet((small_kubelet("large", cpus=16), small_kubelet(cpus=12)), (FleetNode("n0", 0),))
    workload = Workload.of([shape("5", owner="bare")], [0, 0, 0], [0, 0, 0])
    result = run_cell(fleet, workload, CellOptions(events=(NodeEvent(1000, "restart", (0,), 1),)), 1)
    assert [one.reason for one in result.refusals] == ["OutOfcpu"]
    assert (result.summary["lost_in_restarts"], result.summary["running"]) == (1, 2)


def test_a_critical_pod_evicts_others() -> None:
    """The same where the last pod is critical: the kubelet makes the later of two equal ones leave, and what no victims
    would help is refused."""
    fleet = Fleet((small_kubelet("large", cpus=16), small_kubelet(cpus=12)), (FleetNode("n0", 0),))
    options = CellOptions(events=(NodeEvent(1000, "restart", (0,), 1),))
    workload = Workload.of([shape("5", owner="bare"), critical("5")], [0, 0, 1], [0, 0, 0])
    result = run_cell(fleet, workload, options, 1)
    assert (result.summary["preempted"], result.summary["lost_in_restarts"], result.summary["running"]) == (1, 0, 2)
    assert sorted(result.pods.verdict) == [0, 0, 4]
    assert result.pods.verdict[2] == 0
    tiny = Fleet((small_kubelet("large", cpus=16), small_kubelet(cpus=4)), (FleetNode("n0", 0),))
    result = run_cell(tiny, workload, options, 1)
    assert {one.reason for one in result.refusals} == {"OutOfcpu", "UnexpectedAdmissionError"}
    assert (result.summary["preempted"], result.summary["running"]) == (0, 0)


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
@pytest.mark.parametrize("filter", ["kube", "exact"])
def test_allocatable_above_what_the_kubelet_counts(profile: str, filter: FilterName) -> None:
    """The Node object says sixteen CPUs, the kubelet counts twelve: the third pod of five CPUs is refused, a critical
    one gets the place of another, whose owner makes it again."""
    small = small_kubelet(cpus=12, profile=profile)
    found = replace(small, allocatable={**small.allocatable, "cpu": 16_000})
    fleet = Fleet((found,), (FleetNode("n0", 0),))
    kinds = [shape("5", owner="bare"), critical("5")]
    options = CellOptions(filter=filter)
    refused = run_cell(fleet, Workload.of(kinds, [0, 0, 0], [0, 0, 1000]), options, 1)
    assert (refused.summary["bound"], refused.summary["preempted"]) == (2, 0)
    pushed = run_cell(fleet, Workload.of(kinds, [0, 0, 1], [0, 0, 1000]), options, 1)
    assert (pushed.summary["bound"], pushed.summary["preempted"], pushed.summary["running"]) == (3, 1, 2)
    assert pushed.nodes.cpu_milli[0] == 10_000
    deployment = [shape("5"), critical("5")]
    again = run_cell(fleet, Workload.of(deployment, [0, 0, 1], [0, 0, 1000], [-1, -1, 5000]), options, 1)
    assert again.summary["running"] == 2
    assert again.summary["preempted"] == 1
