"""Recorded histories of kubelets, asked as a scheduler asks (cluster-integration.md F.3)."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from podslice.api.pod.spec import pod_from_dict
from podslice.cluster.model.model import ClusterModel
from podslice.replay.managers import RecordedHistory
from podslice.replay.run import Json, read_cases
from podslice.values.quirks import KUBELET_1_36

SAMPLE = Path(__file__).parents[2] / "vectors" / "managers.jsonl.gz"
PARTS = 4


def verdicts(case: Json, recorded: Json) -> list[tuple[bool, bool]]:
    """Of each new pod that wants something for itself: what the filter says before it comes, and what the kubelet said
    when it came."""
    history, found = RecordedHistory(case, KUBELET_1_36), []
    if not history.start().get("ok"):
        return []
    for operation, outcome in zip(case["ops"], recorded.get("ops") or (), strict=False):
        if "panic" in outcome:
            break
        kubelet = history.kubelet
        new = operation["op"] == "admit" and operation["pod"]["metadata"]["uid"] not in kubelet.state.pods
        if new and kubelet.running and "ok" in outcome:
            pod, model = pod_from_dict(operation["pod"]), ClusterModel()
            model.add_node("n", kubelet.rules, kubelet.state)
            if model.wants_exclusive(pod) and model.node("n").kind.needs(model.classes.signature(pod)).exclusive:
                found.append((model.filter(pod, ["n"], 0.0).nodes == ["n"], outcome["ok"]))
        history.run(operation)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_the_filter_says_what_the_kubelet_said(part: int) -> None:
    """For each pod and state of a recorded history the scheduler's verdict is the recorded one."""
    seen: list[tuple[bool, bool]] = []
    for record in islice(read_cases(SAMPLE), part, None, PARTS):
        found = verdicts(record["case"], record["result"])
        assert all(mine == theirs for mine, theirs in found), (record["case"]["name"], found)
        seen += found
    assert min(seen.count((True, True)), seen.count((False, False))) > 10
