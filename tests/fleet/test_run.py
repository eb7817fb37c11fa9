"""A whole cell: what comes, goes, waits, loops; the same whatever is remembered."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.engine.nodes import Fleet, FleetNode, NodeEvent
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.result import CellResult
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.engine.workload import Workload
from podslice.fleet.scheduler import queue as queue_module
from tests.fleet.fleets import churn, fleet_class, fleet_of, shape

SHAPES = [shape("1"), shape("2"), shape("3"), shape("5"), shape("500m"), shape("7")]
EVERYTHING = ("alignment", "fragmentation", "stranded", "largest")


def facts(result: CellResult) -> tuple[Any, ...]:
    """All of a result but how it was worked out."""
    return (
        result.summary, result.series, result.refusals, result.reasons, result.popular, result.pods, result.nodes
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["least-allocated", "most-allocated", "first-fit", "random", "best-fit"])
@pytest.mark.parametrize("seen", ["kube", "exact"])
@pytest.mark.slow
def test_results_do_not_depend_on_what_is_remembered(policy: Any, seen: Any) -> None:
    """Room for hardly any answer or for all, verified or not: the same result."""
    fleet, workload = fleet_of(5), churn(SHAPES, 300)
    options = {"policy": policy, "filter": seen, "sample_ms": 5000, "metrics": EVERYTHING, "cpus": True}
    results = [
        run_cell(fleet, workload, CellOptions(**options, memory=memory, verify=verify), 3)
        for memory, verify in ((1 << 30, 0), (1 << 30, 1), (1 << 15, 1), (0, 7))
    ]
    assert results[1].work["verified"] > 100
    assert results[3].work["computed"] > results[0].work["computed"]
    for other in results[1:]:
        assert facts(other) == facts(results[0])


@pytest.mark.parametrize("policy", ["least-allocated", "most-allocated"])
def test_ledgers_add_up(policy: Any) -> None:
    """At every sample pods are running, waiting, looping or gone, and no node has more than there is; at the end the
    pods' CPUs of a node are apart and, with its shared pool, all there are."""
    fleet, workload = fleet_of(4), churn(SHAPES, 400)
    result = run_cell(fleet, workload, CellOptions(policy=policy, sample_ms=1000, cpus=True), 1)
    series, summary, pods = result.series, result.summary, result.pods
    for row in range(len(series["at_ms"])):
        at = series["at_ms"][row]
        ended = sum(0 <= end <= at for end in pods.ended)
        failed = sum(one == 3 for one in pods.verdict) if row == len(series["at_ms"]) - 1 else 0
        alive = series["running"][row] + series["waiting"][row] + series["looping"][row] + failed
        assert series["arrived_pods"][row] - ended - alive in range(len(workload)) if failed else True
        assert series["cpu_milli"][row] <= summary["cpu_milli_room"]
    running = [pod for pod in range(len(workload)) if pods.verdict[pod] == 0 and pods.ended[pod] < 0]
    assert len(running) == summary["running"]
    for node in range(4):
        taken = 0
        for pod in running:
            if pods.node[pod] == node:
                assert not pods.cpus[pod] & taken
                taken |= pods.cpus[pod]
        assert result.nodes.pods[node] == sum(pods.node[pod] == node for pod in running)
        assert result.nodes.assignable[node] == 15 - taken.bit_count()
    total = sum(SHAPES[workload.shape[pod]].cpu_request for pod in running)
    assert total == summary["cpu_milli"] == sum(result.nodes.cpu_milli)
    assert summary["bound"] + summary["waiting"] + summary["looping"] + summary["failed"] >= len(workload)


def test_an_exact_filter_is_never_refused() -> None:
    """A filter that asks the node model itself sends no pod to a node that refuses it."""
    fleet, workload = fleet_of(5), churn(SHAPES, 500, gap=300)
    blind = run_cell(fleet, workload, CellOptions(policy="most-allocated"), 1)
    exact = run_cell(fleet, workload, CellOptions(policy="most-allocated", filter="exact"), 1)
    assert blind.summary["refused_attempts"] > 0
    assert exact.summary["refused_attempts"] == exact.summary["looped"] == 0


@pytest.mark.parametrize("ties", ["first", "random", "permuted"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_loops_in_closed_form(monkeypatch: pytest.MonkeyPatch, ties: Any, seed: int) -> None:
    """An hour of pods whose replacements come every second: counted as if each had been simulated."""
    fleet = fleet_of(4)
    workload = churn([*SHAPES[:4], SHAPES[5]], 250, seed=seed, gap=9_000, length=90_000)
    options = CellOptions(policy="most-allocated", ties=ties, until_ms=3_600_000, limit=10**9, cpus=True)
    closed = run_cell(fleet, workload, options, seed)
    monkeypatch.setattr(queue_module.PodQueue, "_is_refused_by", lambda self, shape, ties: False)
    stepped = run_cell(fleet, workload, options, seed)
    assert closed.summary["looped"] > 3
    assert closed.summary["refused_attempts"] == stepped.summary["refused_attempts"] > 300
    for name in ("first_try", "bound", "ended", "attempts"):
        assert getattr(closed.pods, name) == getattr(stepped.pods, name), name
    assert closed.nodes == stepped.nodes


def one_by_one(shapes: list[FleetShape], **fields: Any) -> Workload:
    """A pod of each shape, a second apart."""
    return Workload.of(shapes, range(len(shapes)), [1000 * at for at in range(len(shapes))], **fields)


def test_owners_after_a_refusal() -> None:
    """Eight free CPUs on two NUMA nodes do not take a pod of eight: a Deployment's loops, a Job's comes six times
    more, in 10, 20, 40 … seconds, and a bare one not again."""
    fleet = fleet_of(1, fleet_class("pack:2 numa:1(memory=16GiB) core:4 pu:1"))
    whole = {owner: shape("5", owner=owner) for owner in ("deployment", "job", "bare")}
    for owner, attempts, verdict in (("deployment", 1001, 2), ("job", 7, 3), ("bare", 1, 3)):
        workload = Workload.of([whole[owner], shape("1")], [0, 1], [0, 1_000_000], [-1, 1000])
        result = run_cell(fleet, workload, CellOptions(until_ms=1_000_000, limit=5000), 1)
        assert (result.pods.attempts[0], result.pods.verdict[0]) == (attempts, verdict), owner
        assert [(one.reason, one.attempts) for one in result.refusals] == [("TopologyAffinityError", attempts)]


def test_waiting_pods_come_when_there_is_room() -> None:
    """A pod that fits nowhere waits for one that ends; the one with the higher priority comes first."""
    fleet = fleet_of(1)
    shapes = [shape("7"), shape("6", priority=1), shape("6", priority=9)]
    workload = Workload.of(shapes, [0, 0, 1, 2], [0, 0, 10, 20], [100, 500, 100, 100])
    result = run_cell(fleet, workload, CellOptions(), 1)
    assert list(result.pods.bound) == [0, 0, 200, 100]
    assert list(result.pods.verdict) == [0, 0, 0, 0]
    assert result.summary["refused_attempts"] == 0


def test_a_refused_pod_tries_the_next_node() -> None:
    """With `next-node` the best node that takes it gets the pod, and every refusal before counts."""
    fleet = fleet_of(3)
    workload = one_by_one([shape("5"), shape("5"), shape("5"), shape("5")])
    result = run_cell(fleet, workload, CellOptions(policy="most-allocated", ties="first", retry="next-node"), 1)
    assert list(result.pods.node) == [0, 0, 1, 1]
    assert list(result.pods.attempts) == [1, 1, 2, 2]


def test_events_of_nodes() -> None:
    """Pods of a drained node come again elsewhere, an absent node comes with its event."""
    one = fleet_class()
    fleet = Fleet((one,), (FleetNode("n0", 0), FleetNode("n1", 0, absent=True)))
    workload = Workload.of([shape("4")], [0, 0], [0, 0], [-1, -1])
    events = (NodeEvent(50, "add", (1,)), NodeEvent(100, "drain", (0,)))
    result = run_cell(fleet, workload, CellOptions(events=events), 1)
    assert list(result.pods.node) == [1, 1]
    assert list(result.nodes.pods) == [0, 2]


def test_pods_with_a_node_of_their_own() -> None:
    """A pod that is for one node goes there, past the scheduler."""
    fleet = fleet_of(3)
    workload = Workload.of([shape("1", owner="daemonset")], [0, 0, 0], [0, 0, 0], node=[2, 1, 2])
    assert list(run_cell(fleet, workload, CellOptions(), 1).pods.node) == [2, 1, 2]


def test_times_to_run_and_integrals() -> None:
    """Two CPUs for a second and four for the next are six CPU seconds."""
    workload = Workload.of([shape("2"), shape("4")], [0, 1], [0, 1000], [1000, 1000])
    summary = run_cell(fleet_of(1), workload, CellOptions(), 1).summary
    assert summary["cpu_milli_x_ms"] == 6_000_000
    assert (summary["wait_ms_p50"], summary["wait_ms_p99"], summary["horizon_ms"]) == (0, 0, 2000)


def test_an_empty_cell() -> None:
    """No pods, no nodes: an answer all the same."""
    empty = Workload(shapes=(), shape=array("q"), arrival=array("q"), length=array("q"), node=array("q"))
    assert run_cell(fleet_of(2), empty, CellOptions(), 1).summary["pods"] == 0
    nothing = run_cell(Fleet((fleet_class(),), ()), one_by_one([shape("1")]), CellOptions(), 1)
    assert nothing.summary["waiting"] == 1


def test_loads_that_no_node_has_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few loads are remembered, numbered anew again and again, the result is the same."""
    fleet, workload = fleet_of(5), churn(SHAPES, 200)
    expected = run_cell(fleet, workload, CellOptions(), 3)
    monkeypatch.setattr("podslice.fleet.scheduler.loads._LEAST_ROOM", 1)
    few = run_cell(fleet, workload, CellOptions(), 3)
    assert few.summary == expected.summary
    assert [few.pods.node, few.pods.bound] == [expected.pods.node, expected.pods.bound]


@pytest.mark.parametrize(("seed", "gap"), [(7, 700), (8, 300)])
def test_a_pod_that_loops_again_is_not_bound_twice(seed: int, gap: int) -> None:
    """A pod whose victims left in vain loops on; when it is bound at last, it is not tried again, and ledgers
    add up. After `limit` refusals it makes no pod leave any more, or the two would take turns for ever."""
    shapes = [shape("2", priority=1), shape("4", priority=1), shape("8", priority=9), shape("3")]
    options = CellOptions(preemption=True, limit=10)
    result = run_cell(fleet_of(2), churn(shapes, 60, seed=seed, gap=gap), options, seed)
    assert result.summary["running"] == sum(result.nodes.pods) == result.summary["admitted"] - result.summary["ended"]
