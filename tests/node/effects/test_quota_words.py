"""The sentence about CPU quotas says what the cgroup files say, and why in this release."""

from __future__ import annotations

import pytest

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.node.effects.quota_words import quota_sentence
from podslice.values.gates import FeatureGates
from podslice.values.releases.table import RELEASES

GATE = "DisableCPUQuotaWithExclusiveCPUs"


def pod(**limits: str) -> Pod:
    containers = [
        {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"} if cpu else {}}}
        for name, cpu in limits.items()
    ]
    data = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}}
    return default_pod(pod_from_dict(data), FeatureGates.from_overrides({}))


def sentence(
    asked: Pod, minor: int = 36, owners: tuple[str, ...] = (), *, cfs_quota: bool = True, **gates: bool
) -> str:
    release = RELEASES[minor]
    effective = FeatureGates.from_overrides(gates, release=release)
    return quota_sentence(asked, effective, release, owners, cfs_quota=cfs_quota)


@pytest.mark.parametrize("minor", [33, 34, 35, 36])
def test_owners_have_no_quota_since_1_33(minor: int) -> None:
    """An owner has none since 1.33; who shares has its limit."""
    assert sentence(pod(app="4", side="500m"), minor, ("app",)) == (
        f"CPU quota: none for app, which owns its CPUs (feature gate {GATE}, on since Kubernetes 1.33); side 500m."
    )


@pytest.mark.parametrize("minor", [31, 32])
def test_owners_have_a_quota_before(minor: int) -> None:
    """Before 1.33 an owner is throttled at its limit, and the release is named."""
    assert sentence(pod(app="4"), minor, ("app",)) == (
        f"CPU quota: app 4 CPUs although it owns its CPUs (Kubernetes 1.{minor} lacks feature gate {GATE}, which is on "
        "since 1.33)."
    )


def test_the_gate_is_off() -> None:
    """Where the configuration switches the gate off, that is the reason."""
    text = sentence(pod(a="1", b="2"), 36, ("a", "b"), **{GATE: False})
    assert text == f"CPU quota: a 1 CPU, b 2 CPUs although they own their CPUs (feature gate {GATE} is off)."


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (pod(a="2", b="250m"), "CPU quota: a 2 CPUs, b 250m."),
        (pod(a=""), ""),
        (pod(**{f"c{at}": "1" for at in range(6)}), "CPU quota: c0 1 CPU, c1 1 CPU, c2 1 CPU, c3 1 CPU and 2 more."),
    ],
)
def test_containers_that_share(asked: Pod, text: str) -> None:
    """Who shares CPUs has its limit; without limits nothing is said, and of many the first are named."""
    assert sentence(asked) == text


def test_no_quota_at_all() -> None:
    """cpuCFSQuota false is the reason where it is set."""
    assert "cpuCFSQuota is false" in sentence(pod(a="2"), cfs_quota=False)
