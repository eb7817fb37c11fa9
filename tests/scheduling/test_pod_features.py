"""Nodes that do not take pod-level resources."""

from __future__ import annotations

import pytest

from podslice.scheduling.pod_features import pod_level_refusal
from podslice.values.gates import FeatureGates
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks, quirks_of
from podslice.values.releases.table import RELEASES
from tests.node.resize.helpers import GATES, burstable, pod, resources

OFF = FeatureGates.from_overrides({"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False})
PLAIN, SIZED = pod(burstable("1")), pod({}, pod_level=resources({"cpu": "1"}))


@pytest.mark.parametrize(
    ("gates", "os", "cgroup_version", "quirks", "expected"),
    [
        pytest.param(GATES, "linux", 2, PODSLICE, "", id="supported"),
        pytest.param(OFF, "linux", 2, PODSLICE, "PodLevelResources feature gate is disabled", id="gate"),
        pytest.param(GATES, "windows", 2, PODSLICE, "pod-level resources are not supported on Windows", id="windows"),
        pytest.param(GATES, "plan9", 2, PODSLICE, "pod-level resources are not supported on the node", id="other"),
        pytest.param(
            GATES, "linux", 1, PODSLICE, "pod-level resources need cgroup v2, and this node uses cgroup v1", id="v1"
        ),
        pytest.param(GATES, "linux", 1, KUBELET_1_36, "", id="v1 upstream"),
    ],
)
def test_refusals(gates: FeatureGates, os: str, cgroup_version: int, quirks: Quirks, expected: str) -> None:
    """Pods with pod-level resources are refused with reason PodLevelResourcesNotSupported, others never."""
    refusal = pod_level_refusal(SIZED, gates, quirks, os=os, cgroup_version=cgroup_version)
    assert (refusal is None) == (expected == "")
    if refusal is not None:
        assert (refusal.reason, refusal.message) == ("PodLevelResourcesNotSupported", expected)
    assert pod_level_refusal(PLAIN, gates, quirks, os=os, cgroup_version=cgroup_version) is None


@pytest.mark.parametrize(
    ("minor", "refused"), [(31, False), (32, False), (33, False), (34, True), (35, True), (37, True)]
)
def test_releases_before_1_34_ignore_the_field(minor: int, refused: bool) -> None:
    """The handler came with 1.34: an older kubelet without the gate admits the pod and ignores its resources."""
    refusal = pod_level_refusal(SIZED, OFF, quirks_of(RELEASES[minor]), release=RELEASES[minor])
    assert (refusal is not None) == refused
