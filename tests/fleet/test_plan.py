"""Nodes that a plan removes: of all classes by weight, or of one class while all others stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.fleet.scenario.sizing import NotEnoughError, find_least_nodes, order_by_weight, removal_order
from podslice.values.errors import InputError
from tests.fleet.test_runs import fleet
from tests.read_documents import read_document

MIXED: dict[str, Any] = {
    "apiVersion": "podslice.dev/fleet/v1",
    "name": "mixed",
    "seeds": [1, 2, 3],
    "machines": {
        "big": {"from": "pack:1 numa:1(memory=64GiB) core:16 pu:1"},
        "small": {"from": "pack:1 numa:1(memory=64GiB) core:4 pu:1"},
        "gpu": {"from": "pack:1 numa:1(memory=64GiB) core:4 pu:1", "gpus": 1, "gpuModel": "G"},
    },
    "nodes": [{"class": "big", "count": 4}, {"class": "small", "count": 6}, {"class": "gpu", "count": 3}],
    "workload": [
        {
            "synthetic": {
                "shapes": [{"cpu": 8, "memory": "1Gi"}],
                "arrivals": {"every": "1s"},
                "pods": 6,
            }
        },
    ],
}
"""Six pods of 8 CPUs go on three big nodes and nowhere else."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(MIXED))
    return path


def test_one_class_goes_while_all_others_stay(scenario: Path, tmp_path: Path) -> None:
    """Of the big nodes one may go, of the others all, whatever the seed; the page has it too."""
    run = tmp_path / "run"
    assert fleet("run", scenario, "--out", run, "--workers", 1).exit_code == 0
    found = fleet("plan", scenario, "--by-class", "--workers", 1, "--out", run, "-o", "json")
    assert found.exit_code == 0, found.output
    (one,) = read_document(found.stdout, "FleetPlan")["configurations"]
    data = {kind["name"]: (kind["nodes"], kind["fewer"], kind["bySeed"]) for kind in one["classes"]}
    assert data == {"big": (4, 1, [1, 1, 1]), "small": (6, 6, [6, 6, 6]), "gpu": (3, 3, [3, 3, 3])}
    text = fleet("plan", scenario, "--by-class", "--workers", 1).stdout
    assert "1 of the 4 nodes of class big fewer (1 to 1), if all others stay" in " ".join(text.split())
    assert fleet("report", run).exit_code == 0
    assert "Nodes fewer of each class, while all others stay." in (run / "report.html").read_text()


def test_classes_go_together_by_weight(scenario: Path) -> None:
    """Two small ones for each big one: when the second big node would go it is over, so one big and three small nodes
    go; nodes of the class without weight stay."""
    found = fleet("plan", scenario, "--weight", "big=1", "--weight", "sm*=2", "--workers", 1, "-o", "json")
    assert found.exit_code == 0, found.output
    document = read_document(found.stdout, "FleetPlan")
    (one,) = document["configurations"]
    assert document["weights"] == {"big": 1, "small": 2}
    assert {kind["name"]: kind["bySeed"] for kind in one["classes"]} == {"big": [1, 1, 1], "small": [3, 3, 3]}
    assert (one["least"], one["most"]) == (9, 9)


def test_a_class_may_go_whole_by_weight(scenario: Path) -> None:
    """The nodes that are never removed remain, and they are enough."""
    found = fleet("plan", scenario, "--weight", "small=1", "--workers", 1)
    assert "7 nodes (7 to 7), 6 fewer than the scenario has" in " ".join(found.stdout.split())
    assert "6 of the 6 nodes of class small fewer (6 to 6)" in " ".join(found.stdout.split())


@pytest.mark.process
def test_two_processes_find_the_same_of_classes(scenario: Path) -> None:
    """However many find it."""
    one, two = (fleet("plan", scenario, "--by-class", "--workers", count, "-o", "json").stdout for count in (1, 2))
    assert one == two


def test_a_class_of_too_few_nodes_says_so(tmp_path: Path) -> None:
    """No class may lose any node where all nodes are not enough."""
    path = tmp_path / "scenario.yaml"
    data = json.loads(json.dumps(MIXED))
    data["workload"][0]["synthetic"]["pods"] = 60
    path.write_text(json.dumps(data))
    found = fleet("plan", path, "--by-class", "--workers", 1, "-o", "json")
    assert found.exit_code == 1
    (one,) = read_document(found.stdout, "FleetPlan")["configurations"]
    assert (one["enough"], one["classes"]) == (False, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--weight", "big"), "'big' is not a weight of a class (write CLASS=N, such as 'gpu*=2')"),
        (("--weight", "big=-1"), "'big=-1' is not a weight of a class"),
        (("--weight", "huge=1"), "no class of nodes is called huge (classes are big, small, gpu)"),
        (("--weight", "big=0"), "no class of nodes has a weight (give one of them at least 1)"),
        (("--weight", "big=1", "--by-class"), "--by-class and --weight are two questions"),
    ],
)
def test_weights_without_effect_are_refused(scenario: Path, words: tuple[str, ...], said: str) -> None:
    """With the value and what to write instead."""
    result = fleet("plan", scenario, "--workers", 1, *words)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_nodes_go_as_weights_say() -> None:
    """At every moment the classes that go have lost nodes in the ratio of their weights, as far as they have some; the
    order within a class is that of the seed."""
    kinds = [0] * 10 + [1] * 20 + [2] * 5
    order = removal_order(35, 7)
    stay, staying = order_by_weight(order, kinds, {0: 1, 1: 3, 2: 0})
    assert staying == 5
    assert sorted(stay) == list(range(35))
    assert all(kinds[node] == 2 for node in stay[:5])
    going = stay[:4:-1]
    for count in range(4, 25, 4):
        assert [kinds[node] for node in going[:count]].count(1) == 3 * count // 4
    assert [kinds[node] for node in going[27:]] == [0] * 3
    for kind in (0, 1):
        assert [node for node in stay if kinds[node] == kind] == [node for node in order if kinds[node] == kind]


def test_none_may_be_enough() -> None:
    """No node at all is tried where that is not known to be too few; a number known to be too small is not tried."""
    asked: list[int] = []

    def enough(count: int) -> bool:
        asked.append(count)
        return True

    assert find_least_nodes(enough, 8, -1) == (0, ())
    assert 0 in asked
    asked.clear()
    assert find_least_nodes(enough, 8, 3) == (4, ())
    assert min(asked) == 4
    with pytest.raises(NotEnoughError):
        find_least_nodes(lambda count: False, 8)
