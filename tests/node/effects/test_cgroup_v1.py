"""Pods with pod-level resources on cgroup v1 (pod-level-resources 16, 17.23)."""

from __future__ import annotations

import pytest

from podslice import KubeletConfig, Node
from podslice.machine.readers.synthetic import from_synthetic
from tests.node.effects.helpers import pod, requirements

MACHINE = from_synthetic("pack:1 numa:1(memory=64GB) core:4 pu:1")
ALLOWED = KubeletConfig(other_fields={"failCgroupV1": False})
POD_LEVEL = pod({}, resources=requirements("1/1Gi", "1/1Gi"))


@pytest.mark.parametrize(
    ("profile", "version", "admitted"),
    [
        pytest.param("podslice", 1, False, id="refused as the KEP says"),
        pytest.param("kubelet-1.36", 1, True, id="admitted by v1.36.2"),
        pytest.param("podslice", 2, True, id="cgroup v2"),
    ],
)
def test_pod_level(profile: str, version: int, admitted: bool) -> None:
    """Whether a pod with pod-level resources is admitted."""
    decision = Node(MACHINE, ALLOWED, profile=profile, cgroup_version=version).admit(POD_LEVEL)
    assert decision.admitted is admitted
    assert decision.reason == ("" if admitted else "PodLevelResourcesNotSupported")


def test_other_pods_are_welcome() -> None:
    """A pod without pod-level resources runs on cgroup v1."""
    assert Node(MACHINE, ALLOWED, cgroup_version=1).admit(pod(requirements("1/1Gi"), resources={})).admitted
