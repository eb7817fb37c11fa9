"""Hints over very many NUMA nodes: v1.36.2 lists every set of them, which takes minutes or years."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import Device, DeviceInventory, DeviceResource, KubeletConfig, Node
from podslice.api.pod.spec import Pod, pod_from_dict
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
