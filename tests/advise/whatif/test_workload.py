"""Sequences of admissions, resizes and departures, and comparing policies by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice import InputError
from podslice.advise.whatif.compare import Scenario, evaluate, populate
from podslice.advise.whatif.objective import rank
from podslice.advise.whatif.page import comparison_page
from podslice.advise.whatif.table import matrix
from podslice.advise.whatif.workload import Admit, Counts, Leave, Resize, Step, carry_out, count_outcomes, resize_to
from podslice.advise.whatif.workload_file import load_workload
from podslice.config.policy import ExclusiveResize, PodslicePolicy
from podslice.values.quantity import Quantity
from tests.node.resize.test_exclusive import ALLOW, ELASTIC, MACHINE, held, node, one
from tests.read_documents import read_document
from tests.shell import podslice as run

KIND = {"apiVersion": "podslice.io/v1alpha1", "kind": "ResizeWorkload"}
EXAMPLE = Path(__file__).parents[3] / "examples" / "elastic"


def to(cpu: str, name: str = "p") -> Resize:
    return Resize(f"default/{name}", {("c0", "cpu"): Quantity.parse(cpu)})


DAY: tuple[Step, ...] = (Admit(one("4")), Admit(one("8", "q")), to("8"), to("6", "q"), Leave("q"), to("2"))
SINGLE: dict[str, Any] = {"topology_manager_policy": "single-numa-node"}


def test_a_day() -> None:
    """A deferred resize is granted when another pod shrinks or leaves; one below the promised CPUs never is."""
    here = node(**SINGLE)
    done = carry_out(here, DAY)
    assert [(pod.metadata.name, getattr(answer, "admitted", answer)) for pod, answer in done.admissions] == [
        ("p", True), ("q", True),
    ]  # fmt: skip
    assert [(answer.pod, answer.outcome, answer.late) for answer in done.resizes] == [
        ("default/p", "Allocated", True),
        ("default/q", "Infeasible", False),
        ("default/p", "Infeasible", False),
    ]
    assert count_outcomes(done.resizes) == Counts(1, 0, 2)
    assert held(here) == "2-9"
    assert here.pods == ("uid-p",)


def test_as_the_node_itself() -> None:
    """Step by step the answers are those of a node."""
    here, other = node(ALLOW, **SINGLE), node(ALLOW, **SINGLE)
    answers = carry_out(here, DAY[:5]).resizes
    other.admit(one("4"))
    other.admit(one("8", "q"))
    assert other.resize(one("8")).outcome == "Deferred"
    (granted,) = other.resize(one("6", "q")).others
    assert (granted.uid, granted.outcome) == ("uid-p", "Allocated")
    other.remove("uid-q")
    assert [answer.outcome for answer in answers] == ["Allocated", "Allocated"]
    assert here.files == other.files


def test_what_cannot_be() -> None:
    """A pod that is not there, or a resize that the API server would not store, is an answer, not the end."""
    here = node()
    done = carry_out(here, [to("4"), Admit(one("4")), Leave("nobody"), to("-1"), resize_to(one("6"))])
    assert [answer.outcome for answer in done.resizes] == ["NotThere", "Refused", "Allocated"]


def scenario(name: str, resize: ExclusiveResize) -> Scenario:
    config = node(resize, **SINGLE).rules.config
    return Scenario(name, MACHINE, config, policy=PodslicePolicy(resize=resize), steps=DAY)


def test_policies_compared() -> None:
    """Of two policies the one that grants more resizes is recommended, and the numbers are in the table."""
    outcomes = [evaluate(scenario("strict", ELASTIC), []), evaluate(scenario("generous", ALLOW), [])]
    assert [(one.granted, one.deferred, one.infeasible) for one in outcomes] == [(1, 0, 2), (3, 0, 0)]
    ranking = rank(outcomes)
    assert ranking.outcomes[0].scenario == "generous"
    assert ranking.best["granted"] == (3, ("generous",))
    assert "3 granted, 0 deferred, 0 infeasible" in matrix(outcomes).text
    assert "RESIZES" in matrix(outcomes).text.splitlines()[0]
    assert "Most resizes" not in comparison_page(outcomes, ranking, 2, recommend=False)
    shown = populate(scenario("generous", ALLOW), [])
    assert shown is not None
    assert shown.pods == ("uid-p",)


def test_without_resizes() -> None:
    """Without resizes the tables have no column about them."""
    outcome = evaluate(Scenario("s", MACHINE, node().rules.config), [one("4")])
    assert "RESIZES" not in matrix([outcome]).text
    assert "granted" not in rank([outcome]).best


# The file


def write(tmp_path: Path, steps: Any, **more: Any) -> str:
    file = tmp_path / "day.yaml"
    file.write_text(json.dumps({**KIND, "steps": steps, **more}))
    return str(file)


def test_read(tmp_path: Path) -> None:
    """A workload names files beside it, pods in it, and amounts by container or for the pod as a whole."""
    assert [type(step).__name__ for step in load_workload(str(EXAMPLE / "workload.yaml"))] == [
        "Admit", "Admit", "Resize", "Resize", "Leave", "Resize",
    ]  # fmt: skip
    inside = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}}
    steps = [{"admit": inside}, {"resize": "x", "containers": {"c": {"cpu": 2, "memory": "1Gi"}}, "pod": {"cpu": "3"}}]
    admit, resize = load_workload(write(tmp_path, steps))
    assert isinstance(admit, Admit)
    assert isinstance(resize, Resize)
    assert {place: str(amount) for place, amount in resize.amounts.items()} == {
        ("c", "cpu"): "2", ("c", "memory"): "1Gi", ("", "cpu"): "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "more", "problem"),
    [
        ([], {"kind": "Pod"}, "kind: 'Pod' is not ResizeWorkload"),
        ([], {"apiVersion": "v1"}, "apiVersion: 'v1' is not podslice.io/v1alpha1"),
        ([], {"spec": {}}, "spec: unknown field"),
        ({}, {}, "steps: is not a list"),
        ([{}], {}, "steps[0]: {} has not exactly one action"),
        ([{"admit": "x", "remove": "y"}], {}, "has not exactly one action"),
        (["x"], {}, "steps[0]: 'x' has not exactly one action"),
        ([{"remove": "x", "containers": {}}], {}, "steps[0].containers: unknown field"),
        ([{"remove": 3}], {}, "steps[0].remove: 3 is not the name of a pod"),
        ([{"admit": 3}], {}, "steps[0].admit: 3 is neither a file nor a Pod"),
        ([{"admit": "nowhere.yaml"}], {}, "nowhere.yaml: steps[0]"),
        ([{"resize": "x"}], {}, "steps[0].resize: has no amounts to request"),
        ([{"resize": "x", "containers": {"c": 3}}], {}, "steps[0].containers.c: 3 is not amounts by resource"),
        ([{"resize": "x", "containers": {"c": {"cpu": "many"}}}], {}, "steps[0].containers.c.cpu: 'many'"),
    ],
)
def test_wrong(tmp_path: Path, steps: Any, more: dict[str, Any], problem: str) -> None:
    """A mistake is reported in one line, with file and place."""
    with pytest.raises(InputError) as raised:
        load_workload(write(tmp_path, steps, **more))
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.slow
def test_on_the_command_line(tmp_path: Path) -> None:
    """Policies side by side in one document, and a page."""
    page = tmp_path / "what.html"
    result = run(
        "whatif", "--workload", "examples/elastic/workload.yaml", "--from", "numa:2(memory=32GB) core:8 pu:2",
        "--config", "examples/elastic/kubelet.yaml", "--policy", "examples/elastic/policy.yaml",
        "--policy", "examples/elastic/generous.yaml", "--out", str(page), "-o", "json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    document = read_document(result.stdout, "Comparison")
    assert [(one["scenario"].split(" / ")[1], one["granted"]) for one in document["scenarios"]] == [
        ("policy", 1), ("generous", 3),
    ]  # fmt: skip
    assert document["scenarios"][0]["resizes"][0] == {
        "pod": "default/db", "outcome": "Allocated", "message": "", "late": True,
    }  # fmt: skip
    assert "Resizes" in page.read_text()
    assert run("whatif", "--resize", "examples/elastic/grow.yaml").returncode == 2
