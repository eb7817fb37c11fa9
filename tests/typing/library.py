"""What a type checker of a program that uses podslice sees: mypy checks this file with the sources (`make lint`).

Nothing here runs. A line that mypy refuses is a change of the library for its users (docs/stability.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import podslice
from podslice import (
    CPUSet,
    Decision,
    DeviceInventory,
    Explanation,
    Finding,
    KubeletConfig,
    LoadedConfig,
    LoadedPod,
    Machine,
    Node,
    NodeView,
    Outcome,
    Pod,
    Scenario,
    explain,
    lint,
    load_devices,
    load_gallery,
    load_kubelet_config,
    load_machine,
    load_pods,
    pod_from_dict,
    whatif,
)
from podslice.testing import assert_admitted, assert_aligned


def loading(data: dict[str, Any]) -> None:
    assert_type(podslice.__version__, str)
    assert_type(load_machine("epyc-9654-nps4"), Machine)
    assert_type(load_machine(Path("machine.yaml")), Machine)
    assert_type(load_gallery("epyc-9654-nps4"), Machine)
    assert_type(load_kubelet_config("kubelet.yaml"), LoadedConfig)
    assert_type(load_kubelet_config(Path("kubelet.yaml")).config, KubeletConfig)
    assert_type(load_devices([{"resource": "example.com/nic", "count": 2}]), DeviceInventory)
    assert_type(load_pods(data), list[LoadedPod])
    assert_type(load_pods(Path("deploy"), replicas=True), list[LoadedPod])
    assert_type(Pod.load("apiVersion: v1\n"), Pod)
    assert_type(pod_from_dict(data), Pod)


def asking(node: Node, pod: Pod, loaded: LoadedPod) -> None:
    decision = node.admit(pod)
    assert_type(decision, Decision)
    assert_type(decision.aligned, bool)
    assert_type(decision.containers[0].cpus, CPUSet)
    assert_type(decision.to_dict(), dict[str, Any])
    assert_type(decision.to_json(), str)
    assert_type(node.try_admit(pod), Decision)
    assert_type(node.copy(), Node)
    assert_type(node.view, NodeView)
    assert_type(node.remove("uid"), bool)
    assert_type(explain(node, pod), Explanation)
    assert_type(explain(node, pod).why, tuple[str, ...])
    assert_type(lint(pod), list[Finding])
    assert_type(assert_admitted(node, loaded), Decision)
    assert_type(assert_aligned(node, pod), Decision)


def comparing(pods: list[Pod], machine: Machine, config: KubeletConfig) -> None:
    assert_type(whatif(pods, [Scenario("now", machine, config)]), list[Outcome])
