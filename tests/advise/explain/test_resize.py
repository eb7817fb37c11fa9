"""Explanations of resizes: granted, put off or refused, and the changes that let them in."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from podslice import InputError, Node
from podslice import explain_resize as explain_everything
from podslice.advise.explain.command import explain
from podslice.advise.explain.fixes.changes import EditPod, MoveContainers, Reconfigure, Remove, grants
from podslice.advise.explain.resize import ResizeExplanation, explain_resize, explain_resizes
from podslice.advise.trial.trial import Trial
from podslice.config.policy import Defragmentation, ExclusiveResize
from tests.node.resize.helpers import drawn_node
from tests.node.resize.histories import draw_sizes
from tests.node.resize.test_exclusive import budget, node, one, pod_node
from tests.read_documents import read_document

SINGLE: dict[str, Any] = {"topology_manager_policy": "single-numa-node"}
ROOT = Path(__file__).parents[3]


def fixes(explanation: ResizeExplanation) -> dict[str, str]:
    """Return the first fix of each class."""
    return {fix.code: fix.text for fix in reversed(explanation.fixes)}


def test_put_off() -> None:
    """The story has the CPUs of the pod, those that are free, and that it waits; the fixes name pods to evict and sizes
    that fit."""
    here = node(**SINGLE)
    here.admit(one("4"))
    here.admit(one("8", "other"))
    explanation = explain_resize(here, one("8"))
    assert (explanation.outcome, explanation.message) == (
        "Deferred",
        "Resources cannot be allocated with Topology locality",
    )
    assert explanation.story[1:] == (
        "Container c0 owns 4 CPUs (2-5), all of them promised at its admission, and asks for 8 CPUs instead of 4.",
        "Free for exclusive use: 18 (NUMA 0: 2, NUMA 1: 16).",
        "single-numa-node requires everything of a container on one NUMA node. What the pod has already counts: a "
        "growth keeps it.",
        "It waits, and is tried again whenever a pod changes, comes, leaves or ends, and every three minutes.",
    )
    found = fixes(explanation)
    assert found["shrink"] == "Ask for 6 instead of 8 CPUs in container c0"
    assert found["evict-pods"] == "Delete default/other, which owns 8 CPUs, and let it run on another node"
    assert "best-effort" in found["config"]
    assert next(fix.losses for fix in explanation.fixes if fix.code == "config") == ("alignment",)


def test_several_must_go() -> None:
    """Where one departure is not enough, two are named, and where it takes more a set none of which can stay."""
    here = node(**SINGLE)
    here.admit(one("4"))
    for name in ("a", "b", "c", "d"):
        here.admit(one("2", name))
    for size, names in (("8", 1), ("10", 2), ("12", 3)):
        (fix,) = (fix for fix in explain_resize(here, one(size)).fixes if fix.code == "evict-pods")
        assert isinstance(fix.change, Remove)
        assert len(fix.change.uids) == names


@pytest.mark.parametrize(
    ("size", "config", "policy", "expected"),
    [
        ("2", {}, {"exclusive": True}, {"policy": "Set resize.belowBaseline: allow in the PodslicePolicy"}),
        (
            "4500m",
            {},
            {"exclusive": True},
            {
                "whole-number": "Ask for 5 instead of 4500m CPUs in container c0",
                "policy": "Set resize.belowBaseline: allow and resize.eligibilityChange: allow in the PodslicePolicy",
            },
        ),
        (
            "7",
            {"cpu_manager_policy_options": {"full-pcpus-only": "true"}},
            {"exclusive": True},
            {"whole-cores": "Ask for 8 instead of 7 CPUs in container c0"},
        ),
        ("8", {}, {}, {"policy": "Set resize.exclusive: true in the PodslicePolicy"}),
    ],
)
def test_refused(size: str, config: dict[str, Any], policy: dict[str, Any], expected: dict[str, str]) -> None:
    """Each refusal has the change that helps: another size, or a permission in the policy."""
    here = node(ExclusiveResize(**policy), **config)
    here.admit(one("4"))
    explanation = explain_resize(here, one(size))
    assert explanation.outcome == "Infeasible"
    assert explanation.story[-1] == "It is not tried again before the pod changes."
    assert fixes(explanation).items() >= expected.items()


def test_never() -> None:
    """A resize that no departure helps is said to be final, and no pod is named."""
    here = node(**SINGLE)
    here.admit(one("4"))
    here.admit(one("4", "other"))
    explanation = explain_resize(here, one("18"))
    assert (explanation.outcome, explanation.detail) == ("Infeasible", "topology")
    assert "It would not fit if no other pod were here either." in explanation.story[-1]
    assert "evict-pods" not in fixes(explanation)
    assert fixes(explanation)["shrink"] == "Ask for 10 instead of 18 CPUs in container c0"


def test_back_to_the_promise() -> None:
    """A resize below the promised CPUs gets the least that is possible."""
    here = node()
    here.admit(one("4"))
    here.resize(one("10"))
    explanation = explain_resize(here, one("2"))
    assert fixes(explanation)["promised"] == "Ask for 4 instead of 2 CPUs in container c0"
    assert "10 CPUs (2-11), of which 2-5 were promised" in explanation.story[1]


def test_granted() -> None:
    """The story of a granted resize names the CPUs that come or go; there is no fix."""
    here = node()
    here.admit(one("4"))
    explanation = explain_resize(here, one("6"))
    assert explanation.granted
    assert explanation.story[-1].endswith("It gets 6-7.")
    here.resize(one("6"))
    assert explain_resize(here, one("4")).story[-1].endswith("It gives back 6-7.")
    assert explain_resize(here, one("6")).story == ("default/p: the resize is granted already: nothing changes.",)


def test_a_whole_pod() -> None:
    """A pod that owns CPUs as a whole is described as a whole."""
    here = pod_node()
    assert here.admit(budget("6", "4")).admitted
    assert here.admit(one("6", "other")).admitted
    explanation = explain_resize(here, budget("10", "4"))
    assert explanation.outcome == "Deferred"
    assert (
        "The pod owns 6 CPUs (2-7), all of them promised at its admission, and asks for 10 as a whole."
        in explanation.story
    )
    assert fixes(explanation)["shrink"] == "Ask for 8 instead of 10 CPUs for the pod as a whole"


def test_one_after_the_other() -> None:
    """Resizes are explained on the node that those before them left; the node itself stays as it is."""
    here = node()
    here.admit(one("4"))
    before = here.files
    explanation = [step.explanation.outcome for step in explain_resizes(here, [one("8"), one("6"), one("3")])]
    assert explanation == ["Allocated", "Allocated", "Infeasible"]
    assert here.files == before
    assert here.pending_resizes == []


def test_what_cannot_be_asked() -> None:
    """A resize that the API server would not store is an error, not an answer."""
    here = node()
    with pytest.raises(InputError, match="not on the node"):
        explain_resize(here, one("4"))


@pytest.mark.parametrize("seed", range(40))
def test_every_fix_works(seed: int) -> None:
    """On random nodes the answer is that of the node, every proposed fix lets the resize in, and nothing stays
    behind."""
    random = Random(seed)
    here = drawn_node(random, 6)
    if here is None:
        return
    before = here.files
    for uid in here.pods[:3]:
        resized = draw_sizes(random, here.state.pods[uid].spec)
        try:
            explanation = explain_everything(here, resized)
        except InputError:
            continue
        assert here.files == before
        answer = here.copy().resize(resized)
        assert (explanation.outcome, explanation.message, explanation.detail) == (
            answer.outcome,
            answer.message,
            answer.detail,
        )
        assert explanation.granted <= (not explanation.fixes)
        for fix in explanation.fixes:
            assert grants(Trial.of(here), resized, fix.change), (fix.code, fix.text)
            if isinstance(fix.change, EditPod):
                assert fix.edits
            elif isinstance(fix.change, Reconfigure):
                assert fix.change.config != here.rules.config


NODE = ["--from", "pack:2 numa:1(memory=64GB) core:8 pu:2", "--config", "examples/elastic/kubelet.yaml"]
NODE += ["--policy", "examples/elastic/policy.yaml"]


def test_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stories of pods, then of resizes; exit 1 where one is not granted."""
    monkeypatch.chdir(ROOT)
    arguments = ["examples/elastic/pods.yaml", *NODE, "--resize", "examples/elastic/grow.yaml"]
    result = CliRunner().invoke(explain, [*arguments, "-o", "json"])
    assert result.exit_code == 1
    document = read_document(result.output, "ExplanationList")
    (explanation,) = document["resizes"]
    assert [one["name"] for one in document["items"]] == ["db", "web"]
    assert explanation["containers"] == [
        {
            "name": "db",
            "askedBefore": "4",
            "asked": "8",
            "promised": "1-2,17-18",
            "cpusBefore": "1-2,17-18",
            "cpus": "1-2,17-18",
        }
    ]
    assert (explanation["fixes"][0]["code"], explanation["fixes"][0]["pods"]) == ("move-containers", ["default.web"])
    assert explanation["fixes"][1]["edits"][0] == {
        "path": "spec.containers[db].resources.requests.cpu", "before": "8", "after": "6",
    }  # fmt: skip
    table = CliRunner().invoke(explain, [*arguments, "--only-refused"])
    assert "\ndefault/db: the resize is put off" in table.output
    assert "2. Ask for 6 instead of 8 CPUs in container db." in table.output


def test_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any pod the command ends with an error."""
    monkeypatch.chdir(ROOT)
    assert isinstance(CliRunner().invoke(explain, NODE).exception, InputError)


def test_a_page_shows_resizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`--out` has an article for each resize after those of the pods: verdict, story, fixes, and the picture of the
    node where it was granted."""
    monkeypatch.chdir(ROOT)
    page = tmp_path / "x.html"
    resizes = ["--resize", "examples/elastic/grow.yaml", "--resize", "examples/elastic/shrink.yaml"]
    result = CliRunner().invoke(explain, ["examples/elastic/pods.yaml", *NODE, *resizes, "--out", str(page)])
    assert result.exit_code == 1
    text = page.read_text()
    assert text.count("<article") == 4
    assert "resize deferred: Resources cannot be allocated with Topology locality" in text
    assert "What lets it in, best first" in text
    assert "db resized" in text
    policy = tmp_path / "policy.yaml"
    policy.write_text((ROOT / "examples/elastic/policy.yaml").read_text())
    free = [*NODE[:-1], str(policy), "--set", "topologyManagerPolicy=best-effort", *resizes[:2]]
    result = CliRunner().invoke(explain, ["examples/elastic/pods.yaml", *free, "--out", str(page)])
    assert result.exit_code == 0, result.output
    assert "would be resized" in page.read_text()
    assert page.read_text().count("After the resize") == 1


def test_containers_of_others_move() -> None:
    """A resize that waits for room in one piece comes with the fewest moves that make it; the plan was carried out and
    the resize granted. One that is infeasible, or whose moves a policy forbids, has no such fix."""
    here = node(topology_manager_policy="single-numa-node")
    for size in (one("4"), one("6", "q"), one("4", "r")):
        assert here.admit(size).admitted
    explanation = explain_everything(here, one("12"))
    assert explanation.outcome == "Deferred"
    (fix,) = (fix for fix in explanation.fixes if fix.code == "move-containers")
    assert isinstance(fix.change, MoveContainers)
    assert fix.text.startswith("Move running containers within the node: default/")
    assert " c0 from " in fix.text
    assert fix.change.uids
    trial = Trial.of(here)
    for moved in fix.change.moves:
        trial.move(moved)
    assert trial.resize(one("12")).outcome == "Allocated"
    assert all(fix.code != "move-containers" for fix in explain_everything(here, one("40")).fixes)
    policy = replace(here.rules.policy, defrag=Defragmentation(movable="none"))
    still = Node(here.machine, here.rules.config, policy=policy)
    for size in (one("4"), one("6", "q"), one("4", "r")):
        assert still.admit(size).admitted
    assert all(fix.code != "move-containers" for fix in explain_everything(still, one("12")).fixes)
