"""Growth: how many more pods the nodes of a scenario take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.traces.growth import MOST_PERCENT, NOT_AS_IT_IS, GrowingWorkload, find_most_growth
from tests.fleet.fleets import shape
from tests.fleet.test_runs import fleet
from tests.read_documents import read_document


def test_copies_come_with_their_pods() -> None:
    """A larger growth has all pods of a smaller one; copies are for no node, and those of DaemonSets are not copied."""
    shapes = [shape("4"), shape("1", owner="daemonset")]
    work = Workload.of(shapes, [1, 0, 0, 0, 0], [0, 0, 10, 20, 30], [NEVER, 5, 6, 7, 8], [3, 2, -1, -1, -1], {1: "uid"})
    growing = GrowingWorkload(work, 7)
    found = [growing.grow(percent) for percent in (200, 0, 50, 100)]
    assert [len(one) for one in found] == [13, 5, 7, 9]
    rows = [sorted(zip(one.arrival, one.shape, one.length, one.node, strict=True)) for one in found]
    assert rows[1] == sorted(zip(work.arrival, work.shape, work.length, work.node, strict=True))
    for smaller, larger in ((1, 2), (2, 3), (3, 0)):
        left = list(rows[larger])
        for row in rows[smaller]:
            left.remove(row)
        assert {(one[1], one[3]) for one in left} == {(0, NEVER)}
    for one in found:
        assert list(one.arrival) == sorted(one.arrival)
        assert [(one.node[pod], uid) for pod, uid in one.initial.items()] == [(2, "uid")]


@pytest.mark.parametrize(
    ("most", "found"), [(0, 0), (1, 1), (37, 37), (MOST_PERCENT, MOST_PERCENT), (9999, MOST_PERCENT)]
)
def test_the_most_is_found(most: int, found: int) -> None:
    """Whatever it is, up to a bound."""
    assert find_most_growth(lambda percent: percent <= most) == found
    assert find_most_growth(lambda percent: False) == NOT_AS_IT_IS


@pytest.mark.process
def test_a_cluster_with_room_for_half_as_many(tmp_path: Path) -> None:
    """Seven CPUs are free on one NUMA node and eight on the other, so each of six nodes takes two pods of seven: eight
    come, four nodes would do, and twelve would fit. Thirteen are too many."""
    path = tmp_path / "scenario.yaml"
    static = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    data = {
        "apiVersion": "podslice.dev/fleet/v1",
        "name": "growth",
        "seeds": [1, 2],
        "machines": {"small": {"from": "pack:2 numa:1(memory=64GiB) core:8 pu:1"}},
        "nodes": [{"class": "small", "count": 6}],
        "workload": [{"synthetic": {"shapes": [{"cpu": 7}], "arrivals": {"poisson": "1/s"}, "pods": 8}}],
        "kubelets": {"single": {"set": {**static, "topologyManagerPolicy": "single-numa-node"}}},
        "schedulers": {"exact": {"filter": "exact"}},
    }
    path.write_text(json.dumps(data))
    found = fleet("plan", path, "--growth", "-o", "json")
    (one,) = read_document(found.stdout, "FleetPlan")["configurations"]
    assert one["bySeed"] == [4, 4]
    assert one["growth"] == [50, 50]
    assert "all 6 nodes take 50 % more pods (50 to 50)" in fleet("plan", path, "--growth").stdout
    data["workload"][0]["synthetic"]["pods"] = 13
    path.write_text(json.dumps(data))
    full = fleet("plan", path, "--growth", "-o", "json")
    assert full.exit_code == 1
    assert read_document(full.stdout, "FleetPlan")["configurations"][0]["growth"] == [-1, -1]
