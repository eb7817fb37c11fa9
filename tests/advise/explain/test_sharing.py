"""Why a container owns no CPUs: the exact field, and the smallest edit, which is tried."""

from __future__ import annotations

import pytest

from podslice import KubeletConfig, Node, Pod, pod_from_dict
from podslice.advise.explain.explain import explain
from podslice.machine.readers.synthetic import from_synthetic

MACHINE = from_synthetic("numa:2(memory=16GiB) core:8 pu:2")


def asked(cpu: str, limit: str = "", **spec: object) -> Pod:
    limits = {"cpu": limit or cpu, "memory": "1Gi"}
    app = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": limits}}
    return pod_from_dict({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [app], **spec}})


def told(pod: Pod, policy: str = "static") -> tuple[str, ...]:
    reserved = "0,16" if policy == "static" else ""
    node = Node(MACHINE, KubeletConfig(cpu_manager_policy=policy, reserved_system_cpus=reserved))
    return explain(node, pod).story[1:3]


@pytest.mark.parametrize(
    ("cpu", "limit", "policy", "why", "edit"),
    [
        (
            "2500m", "", "static",
            "Container app owns no CPUs, because its limits.cpu 2500m is not a whole number.",
            "Smallest edit: set requests.cpu and limits.cpu: 3 of app. Then app owns 3 CPUs.",
        ),
        (
            "4", "6", "static",
            "No container owns CPUs, because container app has cpu request 4 below its limit 6: the pod is Burstable.",
            "Smallest edit: set limits.cpu: 4 of app. Then app owns 4 CPUs.",
        ),
        (
            "1", "", "none",
            "No container owns CPUs, because the node's cpuManagerPolicy is none.",
            "Smallest edit: set cpuManagerPolicy: static on the node, with a CPU reservation. Then app owns 1 CPU.",
        ),
    ],
)  # fmt: skip
def test_the_field_and_the_edit(cpu: str, limit: str, policy: str, why: str, edit: str) -> None:
    """The first lines after the verdict."""
    assert told(asked(cpu, limit), policy) == (why, edit)


def test_a_budget_that_is_not_divided() -> None:
    """Pod-level resources share while their gate is off."""
    amounts = {"cpu": "8", "memory": "4Gi"}
    why, edit = told(asked("4", resources={"requests": amounts, "limits": amounts}))
    assert "PodLevelResourceManagers is off" in why
    assert edit.startswith("Smallest edit: turn the gate on")


def test_releases_without_the_gate() -> None:
    """1.34 and 1.35 have no gate to turn on; up to 1.33 the kubelet does not read the budget at all."""
    amounts = {"cpu": "8", "memory": "4Gi"}
    pod = asked("4", resources={"requests": amounts, "limits": amounts})
    node = Node(MACHINE, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"), kubernetes="1.35")
    text = "\n".join(explain(node, pod).story)
    assert "the managers of Kubernetes 1.35 leave such pods alone." in text
    assert "turn the gate on" not in text
    older = Node(MACHINE, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"), kubernetes="1.33")
    assert "the kubelet does not read pod-level resources: only the containers count" in "\n".join(
        explain(older, pod).story
    )


@pytest.mark.parametrize(("cpu", "policy"), [("500m", "static"), ("500m", "none"), ("4", "static")])
def test_nothing_to_say(cpu: str, policy: str) -> None:
    """A container that owns its CPUs, or asks for a part of one."""
    assert not any("owns no CPUs" in text or "No container owns" in text for text in told(asked(cpu), policy))
