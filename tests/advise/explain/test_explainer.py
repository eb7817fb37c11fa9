"""One explainer for many pods answers as a new one for each, and trials leave no traces."""

from __future__ import annotations

import msgspec
import pytest

from podslice.advise.explain.explain import Explainer, explain, explain_each
from podslice.advise.explain.fixes.bench import Bench, PodNeeds
from podslice.advise.explain.fixes.changes import EditPod
from podslice.advise.trial.trial import Trial
from tests.advise.explain.random_nodes import refusals
from tests.conftest import make_node, make_pod

replace = msgspec.structs.replace


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3020))
def test_what_was_learnt_changes_no_answer(seed: int) -> None:
    """Pods explained one after the other get the fixes that each gets alone, in the same order."""
    for setup, pod in refusals(seed):
        node = setup.node()
        shared = Explainer(Trial.of(node))
        smaller = make_pod("small", ("c0", "9"), ("c1", "1"))
        for one in (pod, smaller, pod):
            alone = explain(node, one)
            assert shared.explain(one) == alone


@pytest.mark.parametrize("seed", range(3100, 3130))
def test_rehearsals_decide_like_admissions(seed: int) -> None:
    """A bench answers as an admission on a copy, however often it is used, and its node stays as it is."""
    for setup, pod in refusals(seed):
        node = setup.node()
        kubelet = node.kubelet.copy()
        kubelet.save()
        bench, before = Bench(Trial(kubelet)), dict(kubelet.files)
        for cpus in ("1", "2", "3", "5", "7", "1500m"):
            for memory in ("256Mi", "1Gi", "3Gi"):
                tried = make_pod("tried", ("c", cpus), memory=memory)
                needs = PodNeeds.of(tried, node.view)
                assert bench.admits(needs) == Trial.of(node).try_run(tried) == bench.admits(needs)
        assert bench.admits(PodNeeds.of(pod, node.view)) == Trial.of(node).try_run(pod)
        kubelet.save()
        assert kubelet.files == before


def test_replicas_are_told_under_their_own_names() -> None:
    """A pod that differs in name and UID only gets its own name in the story and its own metadata in the fixes."""
    node = make_node()
    explainer = Explainer(Trial.of(node))
    first, second = make_pod("a", ("c", "64")), make_pod("b", ("c", "64"))
    told = explainer.explain(first), explainer.explain(second)
    assert [one.trace.name for one in told] == ["a", "b"]
    assert told[1].story[0].startswith("default/b is")
    for one, pod in zip(told, (first, second), strict=True):
        edits = [fix.change for fix in one.fixes if isinstance(fix.change, EditPod)]
        assert edits
        assert all(edit.pod.metadata == pod.metadata for edit in edits)


def test_admitted_pods_are_there_for_the_next() -> None:
    """Pods are explained in order on a copy: the second finds the first there, the node itself none."""
    node = make_node("pack:1 numa:1(memory=64GB) core:4 pu:2", topology_manager_policy="none")
    pods = [make_pod("a", ("c", "5")), make_pod("b", ("c", "5")), make_pod("d", ("c", "2"))]
    told = list(explain_each(node, pods))
    assert [one.explanation.trace.admitted for one in told] == [True, False, True]
    assert any(fix.code == "evict-pods" and "default/a" in fix.text for fix in told[1].explanation.fixes)
    assert [tuple(one.after.pods) for one in told] == [("a",), ("a",), ("a", "d")]
    assert node.pods == ()
