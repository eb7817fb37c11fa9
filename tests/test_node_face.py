"""Promises of `Node` to programs beside its decisions."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import (
    AllocateResponse,
    Device,
    InputError,
    KubeletConfig,
    Node,
    Pod,
    RunOptions,
    Series,
    StartError,
    load_kubelet_config,
    load_machine,
    pod_from_dict,
)
from podslice.node.devices.plugin import SimulatedPlugin

MACHINE = load_machine("pack:1 numa:1(memory=32GiB) core:4 pu:1")
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")


def owner(cpus: str, **metadata: str) -> Pod:
    limits = {"cpu": cpus, "memory": "1Gi"}
    return pod_from_dict(
        {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    )


def test_what_is_left() -> None:
    """The sets of a node follow its pods; a refusal changes none."""
    node = Node(MACHINE, STATIC)
    assert [str(node.reserved_cpus), str(node.shared_cpus), str(node.assignable_cpus)] == ["0", "0-3", "1-3"]
    assert node.admit(owner("2", name="a", uid="u")).admitted
    assert not node.admit(owner("2", name="b")).admitted
    assert [str(node.reserved_cpus), str(node.shared_cpus), str(node.assignable_cpus)] == ["0", "0,3", "3"]
    assert node.pods == ("u",)
    assert repr(node) == "<Node machine: 1 pod, 1 of 4 CPUs free>"
    node.remove("u")
    assert str(node.assignable_cpus) == "1-3"


def test_without_pinning_nothing_is_assignable() -> None:
    """With CPU manager policy none there is no shared pool and nothing to give away."""
    node = Node(MACHINE)
    assert not node.shared_cpus
    assert not node.assignable_cpus


def test_pods_without_uid() -> None:
    """A pod without UID is known by namespace and name, everywhere; without a name it is none."""
    node = Node(MACHINE, STATIC)
    assert [node.admit(owner("1", name=name)).uid for name in ("a", "b")] == ["default.a", "default.b"]
    assert node.admit(owner("1", name="a", namespace="other")).uid == "other.a"
    assert node.pods == ("default.a", "default.b", "other.a")
    assert node.resize(owner("2", name="a")).outcome == "Infeasible"
    node.remove("default.a")
    assert str(node.assignable_cpus) == "1"
    with pytest.raises(InputError, match=r"metadata\.uid: is empty, and so is metadata\.name"):
        node.admit(owner("1"))


@pytest.mark.parametrize(
    ("config", "stage", "remedy"),
    [
        (KubeletConfig(cpu_manager_reconcile_period="soon"), "configuration", ""),
        (KubeletConfig(topology_manager_policy="best"), "configuration", ""),
        (KubeletConfig(cpu_manager_policy="static"), "cpuManager", "reservedSystemCPUs: 0-1"),
        (KubeletConfig(cpu_manager_policy="fast"), "cpuManager", "none or static"),
        (KubeletConfig(reserved_system_cpus="0-9"), "reservedSystemCPUs", "online on this machine"),
        (KubeletConfig(memory_manager_policy="Static"), "memoryManager", "must add up"),
        (KubeletConfig(memory_manager_policy="Fast"), "memoryManager", "None or Static"),
        (KubeletConfig(system_reserved={"cpu": "9"}), "nodeAllocatable", "reserve less"),
    ],
)
def test_a_kubelet_that_would_not_start(config: KubeletConfig, stage: str, remedy: str) -> None:
    """The error names the step and, where the kubelet's message does not, what helps."""
    with pytest.raises(StartError) as error:
        Node(MACHINE, config)
    assert error.value.stage == stage
    assert remedy in error.value.remedy


NIC = "example.com/nic"


class EnvironmentPlugin(SimulatedPlugin):
    """A plugin that names the devices in an environment variable."""

    def allocate(self, ids: list[str]) -> AllocateResponse | None:
        return AllocateResponse(envs={"NICS": ",".join(ids)})


def nic_user(name: str) -> Pod:
    limits = {"cpu": "1", "memory": "1Gi", NIC: "1"}
    return pod_from_dict(
        {
            "metadata": {"name": name, "uid": name},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        }
    )


def test_device_plugins_come_and_go() -> None:
    """A plugin's devices are the node's from its first list on, containers are told what it says, and without it they
    are unhealthy while who holds some keeps them."""
    node = Node(MACHINE, STATIC)
    assert node.try_admit(nic_user("a")).containers[0].devices == {}
    node.register_devices(NIC, [Device("n0", (0,))], EnvironmentPlugin())
    assert node.admit(nic_user("a")).containers[0].devices == {NIC: ["n0"]}
    assert node.run_options("a", "c").envs == {"NICS": "n0"}
    assert str(node.view.allocatable[NIC]) == "1"
    assert node.try_admit(nic_user("b")).reason == "UnexpectedAdmissionError"
    node.update_devices(NIC, [Device("n0", (0,)), Device("n1", (0,))])
    assert node.try_admit(nic_user("b")).containers[0].devices == {NIC: ["n1"]}
    node.disconnect_devices(NIC, now=0.0)
    assert str(node.view.allocatable[NIC]) == "0"
    assert not node.try_admit(nic_user("b")).admitted
    assert node.view.devices_of("a", "c") == {NIC: ("n0",)}


def test_containers_without_devices_get_no_options() -> None:
    """Nothing is added to a container that holds no devices; a pod that is not there is a `KeyError`."""
    node = Node(MACHINE, STATIC)
    node.admit(owner("1", name="a", uid="u"))
    assert node.run_options("u", "c") == node.run_options("u", "other") == RunOptions()
    with pytest.raises(KeyError):
        node.run_options("nobody", "c")


def test_what_was_counted() -> None:
    """A node counts under the kubelet's names; what is handed out does not go on counting."""
    node = Node(MACHINE, STATIC)
    before = node.counters
    node.admit(owner("1", name="a"))
    requests = Series("cpu_manager_pinning_requests_total")
    assert (before.get(requests, 0), node.counters[requests]) == (0, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"machine": "epyc-9654-nps4"}, r"machine: is a str, not a Machine \(load_machine\(…\) makes one\)"),
        ({"config": {}}, "^$"),
        ({"config": {"cpuManagerPolicy": "static"}}, "config: is a dict, not a KubeletConfig"),
        ({"devices": [Device("a")]}, "devices: is a list, not a DeviceInventory"),
        ({"policy": {}}, "policy: is a dict, not a PodslicePolicy"),
    ],
)
def test_what_is_meant(given: dict[str, object], said: str) -> None:
    """The arguments of a node are checked before anything else, so that an error is raised where it was made."""
    arguments: Any = {"machine": MACHINE, **given}
    if said == "^$":
        Node(**arguments)
        return
    with pytest.raises(InputError, match=said):
        Node(**arguments)


def test_a_loaded_configuration_is_none() -> None:
    """The slip that is made most often."""
    with pytest.raises(InputError, match=r"is a LoadedConfig, not a KubeletConfig \(load_kubelet_config\(…\)\.config"):
        Node(MACHINE, load_kubelet_config("examples/kubelet.yaml"))  # type: ignore[arg-type]


def test_a_workload_is_no_pod() -> None:
    """Its pods are in a template, and it would be a pod without containers."""
    with pytest.raises(InputError, match=r"kind: 'Deployment' is not Pod \(load_pods\(…\) reads"):
        pod_from_dict({"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {}}})
