"""Nodes, LimitRange objects and a gate that goes off, with pods that have pod-level resources (KEP-2837)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podslice import KubeletConfig, Node, load_machine, pod_from_dict
from tests.shell import podslice as run

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resources: {limits: {cpu: "2", memory: 1Gi}}
  containers: [{name: c, image: i}]
"""
OFF = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}


def pod(name: str) -> Any:
    amounts = {"limits": {"cpu": "2", "memory": "1Gi"}}
    return pod_from_dict(
        {"metadata": {"name": name, "uid": name}, "spec": {"resources": amounts, "containers": [{"name": "c"}]}}
    )


@pytest.mark.parametrize(
    ("profile", "refused"), [("podslice", []), ("kubelet-1.36", ["PodLevelResourcesNotSupported"])]
)
def test_running_pods_stay_when_the_gate_goes_off(profile: str, refused: list[str]) -> None:
    """After a restart with the gate off, podslice keeps a running pod and refuses new ones; v1.36.2 refuses both."""
    machine = load_machine("pack:1 numa:2(memory=64GiB) core:8 pu:2")
    before = Node(machine, KubeletConfig(), profile=profile)
    assert before.admit(pod("runs")).admitted
    after = Node(machine, KubeletConfig(feature_gates=OFF), profile=profile, files=dict(before.files))
    assert [decision.reason for decision in after.readmit([pod("runs")])] == refused
    assert after.admit(pod("new")).reason == "PodLevelResourcesNotSupported"


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "plan9"])
def test_windows_node_refuses(system: str, tmp_path: Path) -> None:
    """A Node object that runs something else than Linux refuses the pod, by its report or its label."""
    told = "on Windows" if system == "windows" else "on the node"
    for place in (
        f"metadata: {{labels: {{kubernetes.io/os: {system}}}}}\nstatus: {{",
        f"status: {{nodeInfo: {{operatingSystem: {system}}}, ",
    ):
        node = tmp_path / "node.yaml"
        node.write_text(f"apiVersion: v1\nkind: Node\n{place}capacity: {{cpu: '16', memory: 64Gi}}}}\n")
        result = run("inspect", "-", "--node", str(node), stdin=POD)
        assert f"pod-level resources are not supported {told}" in " ".join(result.stdout.split()), result.stderr
    assert "not supported" not in run("inspect", "-", stdin=POD).stdout


def test_values_of_a_limit_range_name_it(tmp_path: Path) -> None:
    """A pod-level amount that a LimitRange filled in says which."""
    limits = tmp_path / "limits.yaml"
    limits.write_text(
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: house}\n"
        "spec: {limits: [{type: Pod, default: {cpu: '2'}, defaultRequest: {cpu: 500m}}]}\n"
    )
    plain = POD.replace('  resources: {limits: {cpu: "2", memory: 1Gi}}\n', "")
    gate = ("--gates", "PodLevelResourcesLimitRange=true")
    text = " ".join(run("inspect", "-", "--limit-range", str(limits), *gate, stdin=plain).stdout.split())
    assert "spec.resources.limits 2, from the LimitRange house" in text
    assert "spec.resources.requests 500m, from the LimitRange house" in text
