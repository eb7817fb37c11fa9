"""Measures of a run on clusters of a few nodes, as worked examples (docs/fleet.md, What is measured)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.engine.nodes import FleetClass
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.result import CellResult
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.workload import NEVER, Workload
from tests.fleet.fleets import churn, fleet_class, fleet_of, shape

NODE_METRICS = ("alignment", "stranded", "largest")
SHAPES = [shape("4"), shape("5")]


def on_nodes(kind: FleetClass, pods: list[tuple[int, int]], count: int = 2, **fields: Any) -> CellResult:
    """Pods (position of the shape, node) that are for these nodes, at once."""
    shapes, nodes = [shape for shape, _ in pods], [node for _, node in pods]
    workload = Workload.of(SHAPES, shapes, [0] * len(pods), None, nodes)
    return run_cell(fleet_of(count, kind), workload, CellOptions(metrics=NODE_METRICS, **fields), 1)


def test_stranded_cpus_of_a_worked_example() -> None:
    """Fifteen CPUs, seven on NUMA node 0 and eight on 1. Node 0 has a pod of four and one of five, three CPUs are left
    on each side: neither shape gets in although six would do by sums. Node 1 is empty: two pods of four fill side 1,
    one goes to side 0, three CPUs are left."""
    nodes = on_nodes(fleet_class(), [(0, 0), (1, 0)]).nodes
    assert list(nodes.assignable) == [6, 15]
    assert list(nodes.stranded) == [6, 3]
    assert list(nodes.expected) == [2 * 6, 0]
    assert list(nodes.blind) == [0, 0]
    assert list(nodes.largest) == [3, 8]


def test_stranded_cpus_without_numa() -> None:
    """The same pods on one NUMA node: six CPUs are left, of which a pod of four takes four, or one of five five; on the
    empty node three pods of four leave three."""
    kind = fleet_class("pack:1 numa:1(memory=32GiB) core:16 pu:1", topology_manager_policy="none")
    nodes = on_nodes(kind, [(0, 0), (1, 0)]).nodes
    assert [list(nodes.assignable), list(nodes.stranded), list(nodes.largest)] == [[6, 15], [2, 3], [6, 15]]
    assert list(nodes.expected) == list(nodes.blind) == [0, 0]


def test_blind_counts_what_sums_refuse() -> None:
    """Fourteen of fifteen CPUs are booked: one CPU times two pods that find no room by sums."""
    result = on_nodes(fleet_class(topology_manager_policy="none"), [(1, 0), (1, 0), (0, 0)], 1)
    assert [result.summary[f"{name}_stranded_cpus_x_pods"] for name in ("expected", "blind")] == [3, 3]
    assert [result.summary["assignable_cpus"], result.summary["stranded_cpus"]] == [1, 1]


def test_allocation_refusals_and_integrals() -> None:
    """One node: a pod of four from 0 to 10 s, one of five from 2 s on, one of eight that comes at 4 s, until 12 s. CPU
    time: 4 x 10 s + 5 x 10 s. The eight waits for six seconds as sums are short; then seven and three are free, and
    each second (10, 11, 12) one is refused. Of seventeen CPUs eight never ran."""
    shapes = [shape("4"), shape("5"), shape("8")]
    workload = Workload.of(shapes, [0, 1, 2], [0, 2000, 4000], [10_000, NEVER, NEVER])
    summary = run_cell(fleet_of(1), workload, CellOptions(until_ms=12_000), 1).summary
    assert summary["cpu_milli_x_ms"] == 4000 * 10_000 + 5000 * 10_000
    assert [summary["waiting_x_ms"], summary["looping_x_ms"]] == [6000, 2000]
    assert [summary["attempts"], summary["refused_attempts"], summary["bound"], summary["looping"]] == [5, 3, 2, 1]
    assert [summary["unmet_cpu_milli"], summary["asked_cpu_milli"]] == [8000, 17_000]


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("seed", range(3))
def test_a_node_refuses_at_least_what_sums_refuse(policy: str, seed: int) -> None:
    """Of every node, the expected stranded CPUs are at least the blind ones; on one NUMA node they are equal."""
    shapes = [shape("1"), shape("2"), shape("3"), shape("5"), shape("7")]
    workload = churn(shapes, 80, seed=seed, gap=300, length=30_000)
    options = CellOptions(metrics=("stranded",), ties="random")
    many = run_cell(fleet_of(3, fleet_class(topology_manager_policy=policy)), workload, options, seed).nodes
    assert all(exact >= blind for exact, blind in zip(many.expected, many.blind, strict=True))
    one_node = fleet_class("pack:1 numa:1(memory=32GiB) core:16 pu:1", topology_manager_policy=policy)
    one = run_cell(fleet_of(3, one_node), workload, options, seed).nodes
    assert list(one.expected) == list(one.blind)


def test_objects_of_refused_pods() -> None:
    """Seven CPUs and eight: beside two pods of five two and three are left, and one of four is refused each second, for
    four hours; the API server keeps 12 500 of these."""
    workload = Workload.of(SHAPES, [1, 1, 0], [0, 0, 1000], None)
    options = CellOptions(delay_ms=1000, until_ms=14_400_000, limit=100_000)
    summary = run_cell(fleet_of(1, fleet_class()), workload, options, 1).summary
    assert summary["refused_attempts"] == 14_400
    assert [summary["failed_objects"], summary["collected_objects"]] == [12_500, 1_900]
    assert [summary["replacements_of_bound"], summary["replacements_p99"]] == [0, 0]
    other = run_cell(fleet_of(1, fleet_class()), workload, replace(options, retry="next-node"), 1).summary
    assert [other["refused_attempts"], other["failed_objects"]] == [1, 0]


def test_replacements_of_pods_that_ran() -> None:
    """The pod of four is refused six times before one of five ends: six replacements for three pods that ran."""
    workload = Workload.of(SHAPES, [1, 1, 0], [0, 0, 1000], [NEVER, 6500, NEVER])
    summary = run_cell(fleet_of(1, fleet_class()), workload, CellOptions(delay_ms=1000, limit=1000), 1).summary
    assert [summary["bound"], summary["replacements_of_bound"], summary["most_replacements"]] == [3, 6, 6]
    assert summary["replacements_p99"] == 6


def test_shared_pools() -> None:
    """Sixteen CPUs of which half a one is reserved: one is kept out of the pool (strict-cpu-reservation), and 15.5 are
    allocatable. Beside a pod that owns five, 10.5 are asked for of the ten that are shared."""
    shapes = [shape("5"), shape("500m")]
    for strict, pool in ((True, 10), (False, 11)):
        kind = fleet_class(
            reserved_system_cpus="",
            system_reserved={"cpu": "500m"},
            cpu_manager_policy_options={"strict-cpu-reservation": str(strict).lower()},
        )
        workload = Workload.of(shapes, [0] + [1] * 21, [0] * 22, None)
        result = run_cell(fleet_of(2, kind), workload, CellOptions(policy="first-fit", ties="first"), 1)
        assert list(result.nodes.shared_milli) == [10_500, 0]
        assert list(result.nodes.shared_cpus) == [pool, pool + 5]
        assert result.summary["overloaded_nodes"] == int(strict)
    off = fleet_class(cpu_manager_policy="none", topology_manager_policy="none")
    result = run_cell(fleet_of(1, off), Workload.of(shapes, [0], [0], None), CellOptions(), 1)
    assert [list(result.nodes.shared_milli), list(result.nodes.shared_cpus)] == [[5000], [16]]


@pytest.mark.parametrize(("wanted", "mean"), [(None, 15_000), ((10, 32), 21_000)])
def test_distance_of_a_pod(wanted: tuple[int, int] | None, mean: int) -> None:
    """Ten of seven and eight CPUs are on both NUMA nodes: half of the pairs are as far apart as the machine says, or as
    the kernel assumes. A pod of five is on one."""
    kind = fleet_class(topology_manager_policy="none")
    if wanted is not None:
        nodes = [replace(node, distances=wanted if node.id == 0 else wanted[::-1]) for node in kind.rules.machine.nodes]
        machine = replace(kind.rules.machine, nodes=tuple(nodes))
        kind = replace(kind, rules=replace(kind.rules, machine=machine))
    workload = Workload.of([shape("10"), shape("5")], [0, 1], [0, 0])
    summary = run_cell(fleet_of(1, kind), workload, CellOptions(), 1).summary
    assert (summary["owners_across_numa"], summary["owners_on_one_numa"]) == (1, 1)
    assert summary["owners_distance_x_1000"] == mean + 10_000
