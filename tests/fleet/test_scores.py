"""Scores on columns are those of `scheduling.scoring`, to the last bit."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

import numpy as np

from podslice.fleet.engine.nodes import Fleet, FleetClass, FleetNode
from podslice.fleet.engine.shapes import FleetShape, SchedulerRequests
from podslice.fleet.scheduler.loads import LoadTable
from podslice.fleet.scheduler.scheduler import nodes_to_find
from podslice.fleet.scheduler.scores import KubePolicy, interpolate
from podslice.scheduling.scoring import (
    NodeLoad,
    balanced_allocation_score,
    least_allocated_score,
    most_allocated_score,
)
from tests.fleet.fleets import fleet_class, shape

SCALAR = {"least-allocated": least_allocated_score, "most-allocated": most_allocated_score}


def amounts(r: Random) -> dict[str, int]:
    """CPU and memory from nothing to more than any machine has."""
    return {
        "cpu": r.choice([0, 100, r.randrange(1, 400_000), r.randrange(1, 400_000)]),
        "memory": r.choice([0, 200 << 20, r.randrange(1, 1 << 42), r.randrange(1, 1 << 30), r.randrange(1, 1 << 52)]),
    }


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("seed", range(4))
def test_vectors_score_as_the_scalar_functions(name: str, seed: int) -> None:
    """Whatever nodes have and hold and pods ask for, every node's score is that of the scalar arithmetic."""
    r = Random(seed)
    one = fleet_class()
    rooms = [amounts(r) for _ in range(120)]
    classes = [
        FleetClass(name=str(number), rules=one.rules, state=one.state, allocatable=room)
        for number, room in enumerate(rooms)
    ]
    asked = [amounts(r) for _ in range(20)]
    pod = shape("1").pod
    shapes = [FleetShape(name=str(i), pod=pod, requests=SchedulerRequests(*[own] * 5)) for i, own in enumerate(asked)]
    nodes = [FleetNode(str(i), i % len(classes)) for i in range(240)]
    table = LoadTable(Fleet(tuple(classes), tuple(nodes)), shapes)
    used, non_zero = [amounts(r) for _ in nodes], [amounts(r) for _ in nodes]
    loads = [NodeLoad(rooms[node.kind], *load) for node, *load in zip(nodes, used, non_zero, strict=True)]
    table.kind, table.room = (np.array([node.kind for node in nodes]), table.class_room[[node.kind for node in nodes]])
    table.used = np.array([[0, one["cpu"], one["memory"]] for one in used])
    table.non_zero = np.array([[one["cpu"], one["memory"]] for one in non_zero])
    alone = KubePolicy(table, name, balanced=False)
    both = KubePolicy(table, name, balanced=True)
    every = np.arange(len(nodes))
    for number, wanted in enumerate(asked):
        expected = [SCALAR[name](wanted, load) for load in loads]
        balanced = [balanced_allocation_score(wanted, load) for load in loads]
        assert alone.score(number, every).tolist() == expected
        assert (both.score(number, every) - alone.score(number, every)).tolist() == balanced


def test_scores_along_a_curve() -> None:
    """Between its points a curve is a line in whole numbers, before and after them it is flat."""
    curve = ((20, 0), (50, 10), (100, 5))
    shares = np.array([0, 20, 21, 35, 50, 75, 100])
    assert interpolate(curve, shares).tolist() == [0, 0, 3, 50, 100, 75, 50]


@pytest.mark.parametrize(
    ("nodes", "percentage", "found"),
    [
        (99, 0, 99),
        (100, 0, 100),
        (500, 0, 230),
        (1000, 0, 420),
        (5000, 0, 500),
        (6000, 0, 300),
        (100_000, 0, 5000),
        (1000, 30, 300),
        (1000, 1, 100),
        (1000, 100, 1000),
    ],
)
def test_how_many_nodes_are_looked_at(nodes: int, percentage: int, found: int) -> None:
    """Upstream's arithmetic: all below 100 nodes, else 50 - N/125 percent, at least 5 percent and 100 nodes."""
    assert nodes_to_find(nodes, percentage) == found
