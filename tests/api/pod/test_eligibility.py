"""Containers that may own CPUs, and the number of CPUs the pod needs at a time."""

from __future__ import annotations

import pytest

from podslice.api.pod.demand import is_container_equivalent_guaranteed
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import pod_from_dict
from podslice.values.gates import FeatureGates
from tests.conftest import make_pod, resources


@pytest.mark.parametrize(
    ("init", "cpus"),
    [
        pytest.param((), 1, id="the app alone"),
        pytest.param((("setup", "6", False),), 6, id="an init container needs more than the app"),
        pytest.param(
            (("mesh", "2", True), ("setup", "6", False)), 8, id="a sidecar runs beside a later init container"
        ),
        pytest.param((("setup", "6", False), ("mesh", "2", True)), 6, id="but not beside an earlier one"),
        pytest.param((("mesh", "2", True),), 3, id="a sidecar runs beside the app"),
    ],
)
def test_cpus_of_a_whole_pod(init: tuple[tuple[str, str, bool], ...], cpus: int) -> None:
    """In pod scope a pod is placed with as many CPUs as its containers own at a time at most."""
    pod = AdmissionPod.of(make_pod("p", ("app", "1"), init=init), FeatureGates.from_overrides({}))
    assert pod.cpus == cpus


@pytest.mark.parametrize(
    ("amounts", "guaranteed"),
    [
        pytest.param(resources("2"), True, id="equal"),
        pytest.param(resources("0"), False, id="equal, but nothing"),
        pytest.param({"limits": {"cpu": "2", "memory": "1Gi"}}, False, id="no requests"),
        pytest.param({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}, False, id="no memory"),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}, False, id="not equal"
        ),
    ],
)
def test_a_container_that_is_guaranteed_on_its_own(amounts: dict[str, dict[str, str]], guaranteed: bool) -> None:
    """Inside a pod with a budget only a container with equal requests and limits of both, above zero, owns a part."""
    pod = pod_from_dict({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": amounts}]}})
    assert is_container_equivalent_guaranteed(pod.spec.containers[0]) is guaranteed
