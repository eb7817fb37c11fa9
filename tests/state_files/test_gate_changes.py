"""The gate PodLevelResourceManagers goes on and off while pods with pod-level resources run."""

from __future__ import annotations

import json

import pytest

from podslice import KubeletConfig, Node
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import MemoryReservation
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.releases import release as release_of
from podslice.state_files.convert import convert
from tests.conftest import make_pod

ON = {"PodLevelResourceManagers": True}


def node(gates: dict[str, bool], files: dict[str, bytes] | None = None, **settings: str) -> Node:
    """A node with both static managers."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        memory_manager_policy="Static",
        reserved_system_cpus="0",
        topology_manager_policy="single-numa-node",
        topology_manager_scope=settings.get("scope", "pod"),
        reserved_memory=(MemoryReservation(0, {"memory": "100Mi"}),),
        feature_gates=gates,
    )
    machine = from_synthetic("pack:1 numa:1(memory=32GiB) core:8 pu:1")
    return Node(machine, config, files=files, profile=settings.get("profile", "podslice"))


def pods() -> list[Pod]:
    """One with a shared pool, one without pod-level resources."""
    return [make_pod("p", ("a", "2"), ("b", None), ("c", None), budget="4"), make_pod("std", ("a", "1"))]


def sets(one: Node) -> dict[tuple[str, str], tuple[str, str]]:
    """CPUs and isolation of every container."""
    kubelet = one.kubelet
    found = {}
    for uid, pod in kubelet.active.items():
        for container in pod.containers:
            got = kubelet.inspect(pod, container)
            found[uid, container.name] = (bin(got.cpus), got.isolation)
    return found


def convert_files(files: dict[str, bytes], release: str, *, pod_level: bool) -> dict[str, bytes]:
    """The managers' files as another kubelet writes them."""
    target = release_of(release, pod_level=pod_level)
    return {
        name: convert(read_content(data), target, {}).data if "manager" in name else data
        for name, data in files.items()
    }


@pytest.mark.parametrize("scope", ["pod", "container"])
def test_the_gate_moves_no_running_pod(scope: str) -> None:
    """A pod that came without the gate stays on shared resources, over further restarts, until it ends; the next one
    under its UID is managed."""
    before = node({}, scope=scope)
    for pod in pods():
        assert before.admit(pod).admitted
    files, had = dict(before.files), sets(before)
    for _ in range(2):
        after = node(ON, files, scope=scope)
        assert after.readmit(pods()) == []
        assert sets(after) == had
        files = dict(after.files)
        assert "podEntries" not in json.loads(files["cpu_manager_state"])
    after.remove("p")
    assert after.admit(pods()[0]).containers[0].exclusive


def test_upstream_moves_it() -> None:
    """Profile kubelet-1.36 gives the running pod CPUs, as v1.36.2 does."""
    before = node({}, profile="kubelet-1.36")
    assert before.admit(pods()[0]).admitted
    after = node(ON, dict(before.files), profile="kubelet-1.36")
    after.readmit(pods()[:1])
    assert sets(after) != sets(before)


def test_pod_entries_come_back() -> None:
    """Down to a format without pod entries and up again: files, sets and isolation are what they were."""
    before = node(ON)
    for pod in pods():
        assert before.admit(pod).admitted
    files, had = dict(before.files), sets(before)
    old = node({}, convert_files(files, "1.35", pod_level=False))
    assert old.readmit(pods()) == []
    again = node(ON, convert_files(dict(old.files), "1.36", pod_level=True))
    assert again.readmit(pods()) == []
    assert sets(again) == had
    for name in ("cpu_manager_state", "memory_manager_state"):
        assert json.loads(again.files[name]) == json.loads(files[name])
    again.remove("p")
    again.remove("std")
    empty = json.loads(again.files["memory_manager_state"])["machineState"]["0"]
    assert (len(again.shared_cpus), empty["numberOfAssignments"]) == (8, 0)


def test_entries_that_do_not_fit_stay_as_they_are() -> None:
    """Where containers own other CPUs than the specification asks for, no pod entry is invented."""
    before = node(ON)
    assert before.admit(pods()[0]).admitted
    old = convert_files(dict(before.files), "1.35", pod_level=False)
    files = convert_files(old, "1.36", pod_level=True)
    del files["allocated_pods_state"]
    again = node(ON, files)
    again.readmit([make_pod("p", ("a", "2"), ("b", None), ("c", None), budget="5")])
    assert "podEntries" not in json.loads(again.files["cpu_manager_state"])


@pytest.mark.parametrize(
    "gates",
    [{}, {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}],
    ids=["managers off", "pod-level resources off"],
)
def test_a_pod_that_runs_keeps_its_settings(gates: dict[str, bool]) -> None:
    """With gates turned off, on files that a 1.35 kubelet could read, its cgroups stay as they are: quota, weight,
    memory, OOM score, QoS class (KEP-2837, KEP-5526)."""
    before = node(ON)
    pod = make_pod("p", ("a", "2"), ("b", None), ("c", None), budget="5")
    assert before.admit(pod).admitted
    after = node(gates, convert_files(dict(before.files), "1.35", pod_level=False))
    assert after.readmit([pod]) == []
    assert after.effects("p") == before.effects("p")
    assert after.effects("p").files["cpu.max"] == "500000 100000"
    upstream = node(gates, convert_files(dict(before.files), "1.35", pod_level=False), profile="kubelet-1.36")
    upstream.readmit([pod])
    assert "p" not in upstream.view.pods or upstream.effects("p") != before.effects("p")
