"""The empty policy changes no byte of any recording, in either profile."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from podslice.config.policy import NO_POLICY, AnnotationRules, Defragmentation, PodslicePolicy
from podslice.config.policy_file import load_policy
from podslice.node.kubelet import Kubelet
from podslice.replay import managers
from podslice.replay.api import cgroups
from podslice.replay.run import compare, read_cases, run_case
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks

VECTORS = Path(__file__).parents[1] / "vectors"
HISTORIES = ("managers.jsonl.gz", "managers-cpu.jsonl.gz", "found.jsonl.gz", "api.jsonl.gz", "api-change.jsonl.gz")
OTHER_SECTIONS = PodslicePolicy(defrag=Defragmentation(movable="all"), annotations=AnnotationRules(invalid="ignore"))


@pytest.fixture
def empty(tmp_path: Path) -> PodslicePolicy:
    """The policy of a file that says nothing, which is another object than what stands for no policy."""
    file = tmp_path / "policy.yaml"
    file.write_text("{apiVersion: podslice.io/v1alpha1, kind: PodslicePolicy, metadata: {name: x}, spec: {resize: {}}}")
    policy = load_policy(str(file))
    assert policy is not NO_POLICY
    return policy


def under(policy: PodslicePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded cases are decided by kubelets with this policy from now on."""
    for module in (managers, cgroups):
        monkeypatch.setattr(module, "Kubelet", partial(Kubelet, policy=policy))


def results(cases: list[dict[str, Any]], quirks: Quirks) -> list[str]:
    return [json.dumps(run_case(one["case"], quirks)) for one in cases]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HISTORIES if name != "api-change.jsonl.gz"])
def test_as_recorded(name: str, empty: PodslicePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it every history of v1.36.2 comes out as it was recorded."""
    under(empty, monkeypatch)
    for case in read_cases(VECTORS / name):
        compared = compare(case, KUBELET_1_36)
        assert compared.difference == "", compared.name


@pytest.mark.slow
@pytest.mark.parametrize("name", HISTORIES)
def test_as_without(name: str, empty: PodslicePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """In profile podslice answers, messages and state files are those without one; so they are where only sections
    speak that no recording is about."""
    cases = list(islice(read_cases(VECTORS / name), 60))
    without = results(cases, PODSLICE)
    for policy in (empty, OTHER_SECTIONS):
        with monkeypatch.context() as patched:
            under(policy, patched)
            assert results(cases, PODSLICE) == without
