"""Pods that run, on the state files of the kubelet that runs them."""

from __future__ import annotations

from podslice import KubeletConfig, Node
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod

MACHINE = from_synthetic("pack:1 numa:2(memory=64GB) core:4 pu:1")
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0",
    topology_manager_policy="restricted",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
)


def test_a_kubelet_that_goes_on_keeps_the_pods_that_its_successor_refuses() -> None:
    """In profile kubelet-1.36 a running pod with a budget of its own is refused by the next kubelet, which then has its
    CPUs for others; as long as this one runs, they stay the pod's."""
    pod_cpus = make_pod("bubble", ("c", None), budget="3")
    first = Node(MACHINE, CONFIG, profile="kubelet-1.36")
    assert first.admit(pod_cpus).admitted
    successor = Node(MACHINE, CONFIG, profile="kubelet-1.36", files=first.files)
    assert [decision.name for decision in successor.readmit([pod_cpus])] == ["bubble"]
    same = Node(MACHINE, CONFIG, profile="kubelet-1.36", files=first.files)
    assert same.resume([pod_cpus]) == []
    assert same.files == first.files
    later = make_pod("later", ("c", "4"))
    assert same.admit(later).containers == first.try_admit(later).containers
    assert len(successor.assignable_cpus) == len(first.assignable_cpus) + 3


def test_a_pod_that_the_files_do_not_know_is_admitted() -> None:
    """A pod that runs and holds nothing in the files gets what it asks for; one that does not fit is refused."""
    first = Node(MACHINE, CONFIG)
    assert first.admit(make_pod("known", ("c", "3"))).admitted
    again = Node(MACHINE, CONFIG, files=first.files)
    assert again.resume([make_pod("known", ("c", "3")), make_pod("new", ("c", "2"))]) == []
    assert again.view.owners["known"] == first.view.owners["known"]
    assert again.view.owners["new"]["c"].bit_count() == 2
    assert again.pods == ("known", "new")
    full = Node(MACHINE, CONFIG, files=first.files)
    refused = full.resume([make_pod("known", ("c", "3")), make_pod("large", ("c", "7"))])
    assert [decision.name for decision in refused] == ["large"]
    assert full.pods == ("known",)
