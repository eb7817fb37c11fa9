"""Hints over very many NUMA nodes: v1.36.2 lists every set of them, which takes minutes or years."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from podslice import Device, DeviceInventory, DeviceResource, KubeletConfig, Node
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.cli.main import main
from podslice.config.kubelet import MemoryReservation
from podslice.machine.gallery import load_gallery
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.errors import UpstreamDefectError

GPU = "nvidia.com/gpu"
ALL = tuple(range(34))


def pod(**amounts: str) -> Pod:
    limits = {"cpu": "8", "memory": "8Gi", **{GPU if name == "gpu" else name: value for name, value in amounts.items()}}
    one = {"name": "c", "resources": {"requests": limits, "limits": limits}}
    return pod_from_dict({"metadata": {"name": "p", "namespace": "x", "uid": "u"}, "spec": {"containers": [one]}})


def tray(profile: str, near: tuple[int, ...] | None = None, **config: Any) -> Node:
    """Return a GB200 tray with two GPUs that are `near` some of its NUMA nodes."""
    return Node(
        load_gallery("gb200-34-nodes"),
        KubeletConfig(
            cpu_manager_policy="static",
            reserved_system_cpus="0,72",
            topology_manager_policy_options={"max-allowable-numa-nodes": "64"},
            **{"topology_manager_policy": "best-effort", **config},
        ),
        profile=profile,
        devices=DeviceInventory((DeviceResource(GPU, (Device("gpu-0", near), Device("gpu-1", near))),)),
    )


def ends(node: Node, one: Pod) -> str:
    """Return what would end the kubelet's search."""
    with pytest.raises(UpstreamDefectError) as caught:
        node.admit(one)
    assert caught.value.hangs
    return caught.value.remedy


def hangs(node: Node, one: Pod) -> str:
    """Return what a v1.36.2 kubelet does not come to the end of."""
    with pytest.raises(UpstreamDefectError) as caught:
        node.admit(one)
    assert (caught.value.name, caught.value.hangs) == ("searches_take_any_time", True)
    assert node.pods == ()
    return caught.value.detail


def test_devices_of_a_tray() -> None:
    """GPUs that name all 34 NUMA nodes are hinted by sets of them: upstream does not come to an end, we do."""
    assert hangs(tray("kubelet-1.36", ALL), pod(gpu="1")) == "hints for nvidia.com/gpu list 2^34 sets of NUMA nodes"
    ours = tray("podslice", ALL).admit(pod(gpu="1"))
    assert ours.admitted
    assert list(ours.containers[0].numa_nodes) == [0]


@pytest.mark.parametrize(
    ("near", "config"),
    [
        pytest.param(None, {}, id="GPUs near no NUMA node"),
        pytest.param((0,), {}, id="GPUs on one NUMA node"),
        pytest.param(ALL, {"topology_manager_policy": "none"}, id="no Topology Manager"),
    ],
)
def test_no_hints_no_listing(near: tuple[int, ...] | None, config: dict[str, str]) -> None:
    """Hints are sets of the NUMA nodes that have devices, and of the two with CPUs; without a policy there are none."""
    assert tray("kubelet-1.36", near, **config).admit(pod(gpu="1")).admitted


def test_few_nodes_are_listed() -> None:
    """Up to 28 NUMA nodes upstream comes to an end within minutes, and its decision is predicted."""
    assert tray("kubelet-1.36", ALL[:28]).admit(pod(gpu="1")).admitted
    assert hangs(tray("kubelet-1.36", ALL[:29]), pod(gpu="1"))


def test_memory_of_a_tray() -> None:
    """The Memory Manager lists sets of all NUMA nodes too, whatever a pod asks for."""
    reserved = (MemoryReservation(0, {"memory": "100Mi"}),)
    node = tray("kubelet-1.36", memory_manager_policy="Static", reserved_memory=reserved)
    assert hangs(node, pod()) == "hints for memory list 2^34 sets of NUMA nodes"


def test_many_nodes_with_cpus() -> None:
    """CPUs are hinted by sets of the NUMA nodes that have some."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="best-effort",
        topology_manager_policy_options={"max-allowable-numa-nodes": "64"},
    )
    machine = from_synthetic("numa:29(memory=16GiB) core:16 pu:1")
    assert hangs(Node(machine, config, profile="kubelet-1.36"), pod()) == "hints for cpu list 2^29 sets of NUMA nodes"
    assert Node(machine, config).admit(pod()).admitted


def test_a_command_says_it_of_a_pod_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of running pods with which the kubelet would not come to an end is bad input, with what would end it."""
    file = tmp_path / "pods.json"
    limits = {"cpu": "1", "memory": "1Gi"}
    one = {"name": "c", "image": "x", "resources": {"limits": limits}}
    asked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [one]}}
    file.write_text(json.dumps(asked))
    options = ["--from", "numa:29(memory=16GiB) core:2 pu:1", "--set", "cpuManagerPolicy=static"]
    options += [
        "--set",
        "reservedSystemCPUs=0",
        "--set",
        "topologyManagerPolicy=restricted",
        "--profile",
        "kubelet-1.36",
    ]
    options += ["--set", "topologyManagerPolicyOptions={max-allowable-numa-nodes: '64'}"]
    monkeypatch.setattr(sys, "argv", ["podslice", "draw", "--pods", str(file), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "never answers, and the pod stays Pending" in (said := capsys.readouterr().err)
    assert "What would end it: topologyManagerPolicy none" in said


def machine_of(nodes: int, policy: str, *, profile: str = "kubelet-1.36") -> Node:
    """Return a node with CPUs and memory on so many NUMA nodes, under both static policies."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy=policy,
        topology_manager_policy_options={"max-allowable-numa-nodes": "64"},
        memory_manager_policy="Static",
        reserved_memory=(MemoryReservation(0, {"memory": "100Mi"}),),
    )
    return Node(from_synthetic(f"numa:{nodes}(memory=16GiB) core:16 pu:1"), config, profile=profile)


def test_merging_what_was_listed() -> None:
    """Lists that are written within minutes may take a day to merge: every combination of their sets is tried."""
    assert machine_of(16, "restricted").admit(pod()).admitted
    detail = hangs(machine_of(24, "restricted"), pod())
    assert detail == "the hints for cpu, memory are merged in at least 2^46 combinations"
    assert machine_of(24, "restricted", profile="podslice").admit(pod()).admitted


@pytest.mark.parametrize("policy", ["single-numa-node", "none"])
def test_policies_that_end_the_merge(policy: str) -> None:
    """The two policies that the remedy names admit the pod."""
    assert policy in ends(machine_of(24, "restricted"), pod())
    assert machine_of(24, policy).admit(pod()).admitted


def test_what_would_end_the_listing() -> None:
    """A device plugin that names no more NUMA nodes than the remedy says ends it; where others list as many, no plugin
    does, and only the policy is named."""
    text = ends(tray("kubelet-1.36", ALL), pod(gpu="1"))
    assert text.startswith("a device plugin that names at most 28 NUMA nodes for nvidia.com/gpu, or topologyManager")
    assert tray("kubelet-1.36", ALL[:28]).admit(pod(gpu="1")).admitted
    reserved = (MemoryReservation(0, {"memory": "100Mi"}),)
    both = tray("kubelet-1.36", ALL, memory_manager_policy="Static", reserved_memory=reserved)
    assert ends(both, pod(gpu="1")) == "topologyManagerPolicy none, under which no hints are made"
    assert hangs(both, pod(gpu="1")) == (
        "hints for nvidia.com/gpu list 2^34 sets and hints for memory list 2^34 sets of NUMA nodes"
    )
