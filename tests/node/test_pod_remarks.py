"""Remarks about reserved CPUs that a pod was given and about budgets that no container can use up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from podslice import CPUSet, KubeletConfig, Node
from podslice.advise.explain.explain import explain
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.machine.readers.short_form import ShortForm, expand_short_form
from podslice.node.pod_remarks import budget_remarks, describe_reserved
from podslice.values.gates import FeatureGates

GATES = FeatureGates.from_overrides({"PodLevelResourceManagers": True})


def pod(budget: dict[str, str], *limits: dict[str, str]) -> Pod:
    containers = [{"name": f"c{at}", "resources": {"limits": one}} for at, one in enumerate(limits)]
    spec: dict[str, Any] = {"resources": {"requests": budget, "limits": budget}, "containers": containers}
    return default_pod(pod_from_dict({"metadata": {"name": "p", "namespace": "x", "uid": "u"}, "spec": spec}), GATES)


def remarks(asked: Pod, *, whole: bool) -> list[str]:
    return list(budget_remarks(AdmissionPod.of(asked, GATES), GATES, whole=whole))


BUDGET = {"cpu": "8", "memory": "4Gi"}


@pytest.mark.parametrize(
    ("limits", "whole", "said"),
    [
        (
            ({"cpu": "4", "memory": "2Gi"}, {"cpu": "2", "memory": "2Gi"}),
            True,
            ["of the pod's budget of 8 CPUs its containers own 6 and none shares: 2 CPUs stay reserved that no "
             "container can use"],
        ),
        (
            ({"cpu": "4", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}),
            False,
            ["the pod reserves 8 CPU, and the cpu limits of its containers add up to 6: no container can use the rest",
             "the pod reserves 4Gi of memory, and the memory limits of its containers add up to 3Gi: no container can "
             "use the rest"],
        ),
        (({"cpu": "4", "memory": "2Gi"}, {"memory": "2Gi"}), True, []),
        (({"cpu": "4", "memory": "2Gi"}, {}), False, []),
        (({"cpu": "6", "memory": "2Gi"}, {"cpu": "2", "memory": "2Gi"}), True, []),
    ],
)  # fmt: skip
def test_budgets(limits: tuple[dict[str, str], ...], whole: bool, said: list[str]) -> None:
    """A part of a budget that no container can use is said once, by the managers' division or by the limits."""
    assert remarks(pod(BUDGET, *limits), whole=whole) == said


def test_reserved_cpus() -> None:
    """One CPU and several."""
    assert "gets CPU 0, which is reserved" in describe_reserved("c", CPUSet([0]))
    assert "gets CPUs 0-1, which are reserved" in describe_reserved("c", CPUSet([0, 1]))


def test_explain_says_a_reserved_cpu_first() -> None:
    """A kubelet that hands out a reserved CPU is in danger: the second sentence says so, and never without it."""
    kinds = [{"name": "P", "cores": 8, "threadsPerCore": 2}, {"name": "E", "cores": 12, "threadsPerCore": 1}]
    data = {"sockets": 1, "coreKinds": kinds, "numbering": "consecutive", "memoryPerNuma": "32Gi"}
    machine = expand_short_form(msgspec.convert(data, ShortForm))
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    limits = {"cpu": "2", "memory": "1Gi"}
    one = {"name": "c", "resources": {"limits": limits}}
    asked = pod_from_dict({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [one]}})
    stories = {name: explain(Node(machine, config, profile=name), asked).story for name in ("kubelet-1.36", "podslice")}
    said = "Container c gets CPU 0, which is reserved for the system: the kubelet does not start again"
    assert any(one.startswith(said) for one in stories["kubelet-1.36"][:3])
    assert not any("reserved for the system" in one for one in stories["podslice"])
