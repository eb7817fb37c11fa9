"""The inputs of a simulation, and random numbers that no other draw changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from podslice.fleet.engine.shapes import SchedulerRequests
from podslice.fleet.engine.streams import IndexedStream, draw_below, shuffle, stream
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import PROFILES
from tests.conftest import make_pod

DRAW = """
from podslice.fleet.engine.streams import IndexedStream, draw_below, shuffle, stream
things = list(range(8))
shuffle(stream(7, "shuffle"), things)
ties = IndexedStream(7, "ties")
print(things, [draw_below(stream(7, "plan"), 100), ties.draw_below(1000, 3, 1), ties.draw_below(1000, 3, 2)])
"""
SHOWN = "[5, 3, 1, 0, 2, 7, 4, 6] [55, 436, 721]"


@pytest.mark.process
def test_chance_is_the_same_everywhere() -> None:
    """Whatever Python hashes names to, a seed and a purpose give these numbers."""
    for seed in ("0", "1"):
        shown = subprocess.run(
            [sys.executable, "-c", DRAW],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        assert shown.strip() == SHOWN


def test_an_indexed_stream_does_not_depend_on_what_else_was_drawn() -> None:
    """The same index gives the same number, in whatever order it is asked for; purposes and seeds differ."""
    ties = IndexedStream(1, "ties")
    first = [ties.draw_below(1 << 40, pod, 0) for pod in range(50)]
    assert [IndexedStream(1, "ties").draw_below(1 << 40, pod, 0) for pod in reversed(range(50))] == first[::-1]
    assert IndexedStream(2, "ties").draw_below(1 << 40, 0, 0) != first[0]
    assert IndexedStream(1, "nodes").draw_below(1 << 40, 0, 0) != first[0]


def test_draws_are_even() -> None:
    """Every number below the limit comes about as often as any other, and nothing else comes."""
    source, ties = stream(1, "plan"), IndexedStream(1, "ties")
    for drawn in (
        Counter(draw_below(source, 6) for _ in range(6000)),
        Counter(ties.draw_below(6, i) for i in range(6000)),
    ):
        assert sorted(drawn) == list(range(6))
        assert min(drawn.values()) > 850
    firsts = Counter()
    for seed in range(3000):
        things = [0, 1, 2]
        shuffle(stream(seed, "shuffle"), things)
        firsts[tuple(things)] += 1
    assert len(firsts) == 6
    assert min(firsts.values()) > 400


def test_a_scheduler_counts_what_core_scheduling_counts() -> None:
    """Requests of the filter with sidecars, defaults for what is not requested where nodes are compared."""
    gates = FeatureGates.from_overrides({}, fixes=later_gates(PROFILES["podslice"]))
    pod = make_pod("p", ("a", "1500m"), ("b", None), init=(("s", "200m", True),))
    counted = SchedulerRequests.of(pod, gates, PROFILES["podslice"])
    assert counted.asked == counted.taken == {"cpu": 1700, "memory": 2 << 30}
    assert counted.balanced == {"cpu": 1700, "memory": 2 << 30}
    assert counted.scored == counted.non_zero == {"cpu": 1800, "memory": (2 << 30) + (200 << 20)}


def test_columns_of_a_workload() -> None:
    """Without lengths and nodes, no pod ends and the scheduler decides about all."""
    workload = Workload.of((), [0, 1], [5, 9])
    assert len(workload) == 2
    assert list(workload.length) == list(workload.node) == [NEVER, NEVER]
