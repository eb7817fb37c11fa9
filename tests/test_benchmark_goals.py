"""The figures to reach for explaining and inspecting are measured and compared by `python -m benchmarks`."""

from __future__ import annotations

import pytest
from benchmarks import explain
from benchmarks.admissions import decision_and_release
from benchmarks.flows import measure_walk
from benchmarks.goals import evaluate_goals
from benchmarks.measure import Result


@pytest.mark.slow
def test_explaining_and_inspecting_are_measured() -> None:
    """The benchmark measures the goals: an average over all mixes, and both kinds of pages."""
    found = [*explain.explaining(refused=2), *explain.inspecting()]
    *mixes, average = found[:-2]
    assert average.median == pytest.approx(sum(one.median for one in mixes) / len(mixes), abs=0.01)
    assert [one.goal.unit for one in evaluate_goals(found)] == ["ms", "ms"]
    assert all(one.ours[0] > 0 for one in evaluate_goals(found))


def test_a_slow_page_misses_the_goal() -> None:
    """One of the two kinds of pages above 2 ms is a miss."""
    pages = [Result(explain.GROUP, name, time, unit="ms") for name, time in ((explain.INSPECTED, 1.0),)]
    assert [one.ok for one in evaluate_goals(pages)] == [True]
    pages.append(Result(explain.GROUP, f"{explain.INSPECTED}, placed", 2.1, unit="ms"))
    assert [one.ok for one in evaluate_goals(pages)] == [False]


@pytest.mark.parametrize("policy", ["none", "restricted", "single-numa-node"])
def test_a_decision_takes_few_steps(policy: str) -> None:
    """Deciding about a container with CPUs, memory and a device and releasing it again takes at most 175 calls, which
    is what their cost is made of."""
    cycle = decision_and_release(policy)()
    cycle()
    assert measure_walk(cycle).calls <= 175
