"""ResourceQuota: what a pod uses, and what the API server says (pod-level-resources 12)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.scheduling.quota import (
    QuotaError,
    ResourceQuota,
    check_quotas,
    matches_scope,
    missing_requirements,
    pod_usage,
    resource_quota_from_dict,
)
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks
from tests.scheduling.pods import OFF, ON, asks, pod, quantities, texts

EVERYTHING = ("cpu", "memory", "limits.cpu", "limits.memory", "pods")


def test_usage_names() -> None:
    """Requests count under two names, limits under one, extended resources as requests only."""
    resources = {
        "requests": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi", "example.com/gpu": "2"},
        "limits": {"cpu": "2", "hugepages-2Mi": "2Mi", "example.com/gpu": "2"},
    }
    assert texts(pod_usage(pod(resources, overhead={"cpu": "250m"}), ON, KUBELET_1_36)) == {
        "count/pods": "1", "pods": "1",
        "cpu": "1250m", "requests.cpu": "1250m", "limits.cpu": "2250m",
        "memory": "1Gi", "requests.memory": "1Gi",
        "hugepages-2Mi": "2Mi", "requests.hugepages-2Mi": "2Mi",
        "requests.example.com/gpu": "2",
    }  # fmt: skip


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pods_only_count_as_objects(phase: str) -> None:
    """A pod that has ended uses nothing but its place in the list of objects."""
    assert texts(pod_usage(pod(asks("1"), status={"phase": phase}), ON, PODSLICE)) == {"count/pods": "1"}


@pytest.mark.parametrize(("gates", "cpu"), [pytest.param(ON, "4", id="on"), pytest.param(OFF, "1", id="off")])
def test_pod_level_requests_replace_the_sum(gates: Any, cpu: str) -> None:
    """With the gate the pod-level request is what counts."""
    assert texts(pod_usage(pod(asks("1"), resources=asks("4")), gates, KUBELET_1_36))["cpu"] == cpu


@pytest.mark.parametrize(("quirks", "cpu"), [(KUBELET_1_36, "1"), (PODSLICE, "4")], ids=["kubelet-1.36", "podslice"])
def test_pending_pod_level_resize(quirks: Quirks, cpu: str) -> None:
    """Profile podslice frees quota when the node has taken the resources back, v1.36.2 as soon as one asks."""
    status = {"resources": asks("4"), "allocatedResources": {"cpu": "4"}}
    shrinking = pod({}, resources=asks("1"), status=status)
    assert texts(pod_usage(shrinking, ON, quirks))["cpu"] == cpu


@pytest.mark.parametrize("quirks", [KUBELET_1_36, PODSLICE], ids=["kubelet-1.36", "podslice"])
def test_pending_container_resize_keeps_its_quota(quirks: Quirks) -> None:
    """A container that is still to shrink counts with what it has, in both profiles."""
    status = {"containerStatuses": [{"name": "c0", "resources": asks("2"), "allocatedResources": {"cpu": "3"}}]}
    assert texts(pod_usage(pod(asks("1"), status=status), ON, quirks))["cpu"] == "3"


def test_every_container_must_name_what_the_quota_limits() -> None:
    """The refusal lists resources and containers in byte order; what is not a compute resource is not asked for."""
    wanted = pod(asks("1"), {"requests": {"memory": "1Gi"}, "limits": {"cpu": "1"}}, initContainers=[{"name": "a"}])
    assert missing_requirements(wanted, EVERYTHING, ON, PODSLICE) == (
        "must specify cpu for: a,c1; limits.cpu for: a,c0; limits.memory for: a,c0,c1; memory for: a,c0"
    )
    assert missing_requirements(wanted, ["pods", "count/pods", "services"], ON, PODSLICE) == ""


@pytest.mark.parametrize(
    ("gates", "quirks", "missing"),
    [
        pytest.param(ON, KUBELET_1_36, "", id="kubelet-1.36"),
        pytest.param(ON, PODSLICE, "must specify limits.cpu for: c0; memory for: c0", id="podslice"),
        pytest.param(OFF, PODSLICE, "must specify cpu for: c0; limits.cpu for: c0; memory for: c0", id="gate off"),
    ],
)
def test_pod_level_instead_of_containers(gates: Any, quirks: Quirks, missing: str) -> None:
    """A pod-level value stands for the containers' own; in v1.36.2 any one of them lifts all requirements."""
    wanted = pod({}, resources=asks("1"))
    assert missing_requirements(wanted, ["cpu", "memory", "limits.cpu"], gates, quirks) == missing


def test_scopes() -> None:
    """Pods are distinguished by their deadline and by their QoS class, stored or computed."""
    best_effort = pod({}, activeDeadlineSeconds=5)
    assert [matches_scope(best_effort, scope, ON) for scope in ("Terminating", "NotTerminating")] == [True, False]
    assert [matches_scope(best_effort, scope, ON) for scope in ("BestEffort", "NotBestEffort")] == [True, False]
    stored = pod({}, status={"qosClass": "Burstable"})
    assert [matches_scope(stored, scope, ON) for scope in ("BestEffort", "NotBestEffort")] == [False, True]


def test_decoding() -> None:
    """A ResourceQuota as kubectl prints it; one whose scopes do not depend on the pod alone is refused by name."""
    data: dict[str, Any] = {
        "metadata": {"name": "team"},
        "spec": {"hard": {"requests.cpu": "10", "pods": 5}, "scopes": ["NotTerminating"]},
        "status": {"used": {"requests.cpu": "9500m", "pods": "1"}},
    }
    decoded = resource_quota_from_dict(data)
    assert (decoded.name, decoded.scopes) == ("team", ("NotTerminating",))
    with pytest.raises(
        QuotaError, match=r"requested: requests.cpu=1, used: requests.cpu=9500m, limited: requests.cpu=10"
    ):
        check_quotas(pod(asks("1")), [decoded], ON, PODSLICE)
    assert resource_quota_from_dict({"spec": {"hard": {"pods": "1"}}}).used is None
    with pytest.raises(InputError, match=r"spec.scopes\[0\]: 'PriorityClass' is not a scope known here \(use one of"):
        resource_quota_from_dict({"spec": {"scopes": ["PriorityClass"]}})
    with pytest.raises(InputError, match=r"spec.scopeSelector: scope selectors are not supported"):
        resource_quota_from_dict({"spec": {"scopeSelector": {"matchExpressions": []}}})


def quota(*scopes: str, used: dict[str, str] | None = None, **hard: str) -> ResourceQuota:
    named = {name.replace("__", "."): text for name, text in (used or {}).items()}
    return ResourceQuota("team", quantities(**hard), None if used is None else quantities(**named), scopes)


@pytest.mark.parametrize(
    ("checked", "limited", "message"),
    [
        pytest.param(
            quota(cpu="10", memory="1Gi", used={"cpu": "9", "memory": "900Mi"}), (),
            "exceeded quota: team, requested: cpu=2,memory=512Mi, used: cpu=9,memory=900Mi, limited: cpu=10,memory=1Gi",
            id="two resources",
        ),
        pytest.param(
            quota(cpu="10", memory="8Gi", used={"cpu": "9", "memory": "0"}), (),
            "exceeded quota: team, requested: cpu=2, used: cpu=9, limited: cpu=10", id="only what is exceeded",
        ),
        pytest.param(
            quota(limits__cpu="10", used={"limits__cpu": "0"}), (),
            "failed quota: team: must specify limits.cpu for: c0", id="a value is missing",
        ),
        pytest.param(quota(cpu="10"), (), "status unknown for quota: team, resources: cpu", id="not counted yet"),
        pytest.param(quota("BestEffort", pods="0", used={}), (), None, id="another scope"),
        pytest.param(quota(cpu="10", used={"cpu": "8"}), (), None, id="fits exactly"),
        pytest.param(
            quota(cpu="10", used={"cpu": "8"}), ("cpu", "memory"), "insufficient quota to consume: memory",
            id="nothing covers a limited resource",
        ),
    ],
)  # fmt: skip
def test_refusals(checked: ResourceQuota, limited: tuple[str, ...], message: str | None) -> None:
    """A quota lets a pod in that keeps it below its hard limits, and says what is wrong otherwise."""
    wanted = pod(asks("2", "512Mi"))
    if message is None:
        check_quotas(wanted, [checked], ON, PODSLICE, limited=limited)
        return
    with pytest.raises(QuotaError) as refusal:
        check_quotas(wanted, [checked], ON, PODSLICE, limited=limited)
    assert str(refusal.value) == message


def test_resize_needs_quota_for_the_difference() -> None:
    """A resize is charged what it adds; what it gives back does not pay for another resource."""
    full = quota(cpu="10", memory="1Gi", used={"cpu": "9", "memory": "1Gi"})
    old = pod(asks("2", "512Mi"))
    check_quotas(pod(asks("3", "256Mi")), [full], ON, PODSLICE, old=old)
    with pytest.raises(QuotaError, match=r"requested: cpu=2, used: cpu=9, limited: cpu=10"):
        check_quotas(pod(asks("4", "256Mi")), [full], ON, PODSLICE, old=old)


def test_giving_back_is_always_allowed() -> None:
    """A resize that only gives back passes even where more is used than the quota allows."""
    overdrawn = quota(cpu="10", memory="1Gi", used={"cpu": "99", "memory": "2Gi"})
    check_quotas(pod(asks("1", "512Mi")), [overdrawn], ON, PODSLICE, old=pod(asks("2", "512Mi")))


def test_negative_usage_is_refused() -> None:
    """Negative amounts, which validation refuses elsewhere, never free quota."""
    with pytest.raises(QuotaError, match=r"quota usage is negative for resource\(s\): cpu,requests.cpu"):
        check_quotas(pod(asks("-1", "1")), [quota(cpu="1", used={"cpu": "0"})], ON, PODSLICE)


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=6), st.integers(0, 12000))
def test_admitted_pods_never_exceed_the_quota(requests: list[int], hard: int) -> None:
    """Pods admitted one after the other stay within the quota together, and a refused one would not have fitted."""
    used = Quantity.of(0)
    limit = Quantity.milli(hard)
    for milli in requests:
        wanted = pod(asks(f"{milli}m"))
        try:
            check_quotas(wanted, [ResourceQuota("q", {"cpu": limit}, {"cpu": used})], ON, PODSLICE)
        except QuotaError:
            assert used.add(Quantity.milli(milli)) > limit
        else:
            used = used.add(Quantity.milli(milli))
            assert used <= limit
