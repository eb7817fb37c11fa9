"""Pods that upstream's arithmetic changes while it is asked about them (docs/development/cgroups.md)."""

from __future__ import annotations

from podslice.api.pod.demand import pod_limits, pod_requests
from podslice.replay.api.growing import add_overhead
from podslice.values.quantity import Quantity
from tests.node.effects.helpers import pod

OVERHEAD = {"memory": "1Gi"}
BIG = {"requests": {"memory": "1.5Gi"}, "limits": {"memory": "2.5Gi"}}


def test_big_amounts_grow() -> None:
    """An amount kept as a big decimal grows with every question, requests and limits apart."""
    one = pod({}, resources=BIG, overhead=OVERHEAD)
    seen = add_overhead(one, 2, 1)
    assert pod_requests(seen, overhead=False) == {"memory": Quantity.parse("3584Mi")}
    assert pod_limits(seen, overhead=False) == {"memory": Quantity.parse("3584Mi")}
    assert add_overhead(one, 0, 0) is one


def test_other_amounts_stay() -> None:
    """Small amounts, other resources and pods without overhead are left alone."""
    small = {"requests": {"memory": "1536Mi"}}
    for one in (
        pod({}, resources=small, overhead=OVERHEAD),
        pod({}, resources=BIG, overhead={"cpu": "1"}),
        pod({}, resources=BIG),
        pod({"requests": {"memory": "1.5Gi"}}, overhead=OVERHEAD),
    ):
        assert add_overhead(one, 3, 3) is one
