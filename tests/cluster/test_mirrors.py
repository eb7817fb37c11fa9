"""Pods that claim to be the mirror of another."""

from __future__ import annotations

import pytest

from podslice.cluster.extender.messages import BindRequest
from tests.cluster.bench import Bench, filter_request, mirror_object, pod_object


def _claim(kind: str, node: str) -> dict[str, object]:
    """A tenant's pod that says it is the victim's mirror: by the annotation, or by all that it can write."""
    if kind == "complete":
        return mirror_object("uid-victim", "evil", "1", node, schedulerName="x")
    claim = pod_object("evil", "1", node, schedulerName="x")
    claim["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "uid-victim"}
    return claim


def _holds(bench: Bench, uid: str) -> list[str]:
    return [hold.node for hold in bench.placing.model.holds() if hold.uid == uid]


@pytest.mark.parametrize("kind", ["annotation", "complete"])
@pytest.mark.parametrize("first", ["victim", "claim"])
def test_a_claim_moves_and_drops_no_hold(kind: str, first: str) -> None:
    """The victim's hold stays where it is while the tenant's pod comes and goes, whichever came first."""
    bench = Bench("a", "b")
    claim = _claim(kind, "b")
    if first == "claim":
        bench.watch_pod(claim, node_hears=False)
    bench.watch_pod(pod_object("victim", "8"))
    assert bench.placing.model.choose(bench.placing.pods["uid-victim"].pod, bench.now, names=["a"]) == "a"
    if first == "victim":
        bench.watch_pod(claim, node_hears=False)
    assert _holds(bench, "uid-victim") == ["a"]
    bench.delete_pod("evil")
    assert _holds(bench, "uid-victim") == ["a"]
    assert bench.placing.bind(BindRequest("victim", "default", "uid-victim", "a")).error == ""
    assert bench.placing.filter(filter_request(pod_object("other", "8"), ["a"])).nodes == []


def test_a_claimant_can_be_evicted() -> None:
    """Only a kubelet's own mirror is spared."""
    bench = Bench("a")
    bench.watch_pod(_claim("annotation", "a"), node_hears=False)
    assert not bench.placing.pods["uid-evil"].mirror
    bench.watch_pod(mirror_object("static", "true", "1", "a"), node_hears=False)
    assert bench.placing.pods["uid-true"].mirror
