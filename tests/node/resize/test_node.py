"""Resizes of pods on a node, from the request to the ledgers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from podslice import InputError, Node, StartError
from podslice.api.pod.spec import Pod
from podslice.node import readmission
from podslice.node.checkpoints.allocation import dump_data, load
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE
from tests.conftest import make_node
from tests.node.resize.helpers import burstable, guaranteed, pod, resources


def node(profile: str = "podslice", **config: Any) -> Node:
    """16 CPUs, one reserved, 64 GB."""
    return make_node("pack:1 numa:1(memory=64GB) core:8 pu:2", profile, **config)


def whole(cpu: str, **fields: Any) -> Pod:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return pod({}, pod_level=resources(amounts, dict(amounts)), **fields)


def test_a_resize_is_granted() -> None:
    """A resize that fits is granted: the node counts the new amount, and says so on the pod."""
    here = node()
    here.admit(pod(burstable("2")))
    decision = here.resize(pod(burstable("15")))
    assert (decision.outcome, decision.message, decision.trigger) == ("Allocated", "", "pod_updated")
    assert decision.condition is not None
    assert (decision.condition.type, decision.condition.observed_generation) == ("PodResizeInProgress", 2)
    assert [event.reason for event in decision.events] == ["ResizeStarted"]
    assert here.admit(pod(burstable("1"), name="late")).reason == "OutOfcpu"
    assert '"cpu":"15"' in dump_data(here.kubelet.allocations())
    assert here.resize(pod(burstable("15"))).outcome == "Unchanged"


def test_a_resize_waits_for_room() -> None:
    """A resize that does not fit is deferred, the pod keeps what it has, and gets more when another pod leaves."""
    here = node()
    here.admit(pod(burstable("8")))
    here.admit(pod(burstable("4"), name="other"))
    decision = here.resize(pod(burstable("12")))
    assert decision.outcome == "Deferred"
    assert decision.message == "Node didn't have enough resource: cpu, requested: 12000, used: 4000, capacity: 15000"
    assert [event.reason for event in decision.events] == ["ResizeDeferred"]
    assert here.pending_resizes == ["uid-p"]
    assert '"cpu":"12"' not in dump_data(here.kubelet.allocations())
    again = here.retry_resizes()
    assert [(one.outcome, one.events) for one in again] == [("Deferred", ())]
    here.remove("uid-other")
    granted = here.retry_resizes("pods_removed")
    assert [one.outcome for one in granted] == ["Allocated"]
    assert here.pending_resizes == []


def test_one_pod_makes_room_for_another() -> None:
    """A resize that gives back lets a waiting one through in the same pass."""
    here = node()
    here.admit(pod(burstable("8")))
    here.admit(pod(burstable("6"), name="other"))
    assert here.resize(pod(burstable("12"))).outcome == "Deferred"
    decision = here.resize(pod(burstable("2"), name="other"))
    assert (decision.name, decision.outcome) == ("other", "Allocated")
    assert [(other.name, other.outcome) for other in decision.others] == [("p", "Allocated")]


def test_exclusive_cpus_cannot_grow() -> None:
    """A Guaranteed pod with CPUs of its own cannot be resized, and the verdict is final."""
    here = node()
    before = here.admit(pod(guaranteed("2", "1Gi")))
    decision = here.resize(pod(guaranteed("4", "1Gi")))
    assert (decision.outcome, decision.detail) == ("Infeasible", "guaranteed_pod_cpu_manager_static_policy")
    assert decision.condition is not None
    assert (decision.condition.type, decision.condition.reason) == ("PodResizePending", "Infeasible")
    assert here.pending_resizes == []
    assert before.containers[0].cpus == node().admit(pod(guaranteed("2", "1Gi"))).containers[0].cpus


def test_a_deferred_resize_leaves_the_managers_alone() -> None:
    """The managers free what they took for a resize that is then refused."""
    gates = {"InPlacePodVerticalScalingExclusiveCPUs": True}
    here = node(feature_gates=gates)
    here.admit(pod(guaranteed("2", "1Gi")))
    here.admit(pod(burstable("10"), name="other"))
    files = dict(here.files)
    assert here.resize(pod(guaranteed("8", "1Gi"))).outcome == "Deferred"
    assert here.files == files


def test_pod_level_resize_of_a_managed_pod() -> None:
    """CPUs held for a whole pod do not grow; v1.36.2 allocates it another set, or defers it for ever."""
    config: dict[str, Any] = {"feature_gates": {"PodLevelResourceManagers": True}, "topology_manager_scope": "pod"}
    here = node(**config)
    assert here.admit(whole("2")).pod_cpus is not None
    assert here.resize(whole("4")).outcome == "Infeasible"
    for policy, outcome in (("best-effort", "Allocated"), ("restricted", "Deferred")):
        upstream = node("kubelet-1.36", **config, topology_manager_policy=policy)
        upstream.admit(whole("2"))
        assert upstream.resize(whole("4")).outcome == outcome


def test_what_the_api_server_would_refuse() -> None:
    """A resize that could not be stored is an error, with the field and the API server's words."""
    here = node()
    with pytest.raises(InputError, match="'uid-p' is not on the node"):
        here.resize(pod(burstable("1")))
    here.admit(pod(burstable("1")))
    with pytest.raises(InputError, match=r"spec: .*Pod QOS Class may not change"):
        here.resize(pod(guaranteed("1", "1Gi")))


def test_a_pod_that_left_waits_no_more() -> None:
    """Removing a pod removes its resize."""
    here = node()
    here.admit(pod(burstable("8")))
    here.admit(pod(burstable("6"), name="other"))
    assert here.resize(pod(burstable("12"))).outcome == "Deferred"
    here.remove("uid-p")
    assert here.pending_resizes == []
    assert here.retry_resizes() == []


def test_ignored_pod_level_resources_are_announced() -> None:
    """A Guaranteed pod that the managers ignore because of its pod-level resources carries a warning each."""
    aligning = {"topology_manager_policy": "restricted"}
    static = {"cpu_manager_policy": "static", "topology_manager_policy": "none"}
    (event,) = node(**static).admit(whole("2")).events
    assert (event.type, event.reason) == ("Warning", "PodLevelResourcesIgnored")
    assert event.message == (
        'CPU Manager policy "static" ignores pods with pod-level resources while the feature gate '
        "PodLevelResourceManagers is off: the pod uses the node's shared CPUs"
    )
    (event,) = node(cpu_manager_policy="none", **aligning).admit(whole("2")).events
    assert event.message == (
        'Topology Manager policy "restricted" ignores pods with pod-level resources while the feature gate '
        "PodLevelResourceManagers is off: the pod's CPUs and memory are not aligned"
    )
    assert len(node(cpu_manager_policy="static", **aligning).admit(whole("2")).events) == 2
    assert node(**static).admit(whole("1500m")).events == ()
    assert node(cpu_manager_policy="none", topology_manager_policy="none").admit(whole("2")).events == ()
    assert node(feature_gates={"PodLevelResourceManagers": True}).admit(whole("2")).events == ()
    assert node().admit(pod(guaranteed("2", "1Gi"))).events == ()
    assert node("kubelet-1.36").admit(whole("2")).events == ()


def test_cgroup_v1() -> None:
    """KEP-2837 excludes cgroup v1 nodes; v1.36.2 does not."""
    kubelet = node().kubelet
    config = replace(kubelet.config, other_fields={"failCgroupV1": False})
    here = Node(kubelet.machine, config, cgroup_version=1)
    refused = here.admit(whole("2"))
    assert (refused.reason, refused.message) == (
        "PodLevelResourcesNotSupported",
        "pod-level resources need cgroup v2, and this node uses cgroup v1",
    )
    assert here.admit(pod(guaranteed("2", "1Gi"))).admitted
    upstream = Node(kubelet.machine, config, profile="kubelet-1.36", cgroup_version=1)
    assert upstream.admit(whole("2")).admitted


def test_started_event_lists_resources() -> None:
    """The event carries the granted resources as JSON; v1.36.2 leaves the pod's own out."""
    for profile, members in (("podslice", ["containers", "resources", "generation"]),
                             ("kubelet-1.36", ["containers", "generation"])):  # fmt: skip
        here = node(profile, cpu_manager_policy="none", topology_manager_policy="none")
        here.admit(whole("2"))
        (event,) = here.resize(whole("4", generation=7)).events
        words, _, detail = event.message.partition(": ")
        assert words == "Pod resize started"
        assert list(json.loads(detail)) == members
        assert json.loads(detail)["generation"] == 7


def test_waiting_outlives_a_restart() -> None:
    """A resize that waits when the kubelet restarts still waits, and is granted later."""
    here = node()
    here.admit(pod(burstable("8")))
    here.admit(pod(burstable("4"), name="other"))
    assert here.resize(pod(burstable("12"))).outcome == "Deferred"
    kubelet = here.kubelet
    kubelet.restart()
    assert all(one.refusal is None for one in readmission.readmit(kubelet))
    kubelet.sources_ready()
    kubelet.collect()
    assert here.pending_resizes == ["uid-p"]
    here.remove("uid-other")
    assert [one.outcome for one in here.retry_resizes("pods_removed")] == ["Allocated"]


def test_what_was_granted_survives_a_restart() -> None:
    """A new node on the same files goes on with what was granted; a resize that waited waits again."""
    before = node()
    before.admit(pod(burstable("8")))
    before.admit(pod(burstable("4"), name="other"))
    assert before.resize(pod(burstable("12"))).outcome == "Deferred"
    files = before.files
    assert '"cpu":"8"' in dump_data(load(files[ALLOCATED_STATE_FILE]))
    after = Node(before.machine, before.kubelet.config, files=files)
    assert after.readmit([pod(burstable("12")), pod(burstable("4"), name="other")]) == []
    assert after.files == files
    assert after.pending_resizes == ["uid-p"]
    after.remove("uid-other")
    assert [one.outcome for one in after.retry_resizes("pods_removed")] == ["Allocated"]
    assert '"cpu":"12"' in dump_data(load(after.files[ALLOCATED_STATE_FILE]))


def test_a_broken_record_stops_the_kubelet() -> None:
    """A damaged `allocated_pods_state` is a start error with the kubelet's advice."""
    here = node()
    here.admit(pod(burstable("8")))
    files = {**here.files, ALLOCATED_STATE_FILE: here.files[ALLOCATED_STATE_FILE].replace(b"8", b"9", 1)}
    with pytest.raises(StartError, match="please drain this node and delete pod resource information checkpoint file"):
        Node(here.machine, here.kubelet.config, files=files)


@pytest.mark.parametrize("cpu", ["17", "1000"])
def test_more_than_the_node_has_is_never_granted(cpu: str) -> None:
    """Profile podslice answers Infeasible with the API server's sentence; with kubelet-1.36 that server refuses."""
    here = node()
    here.admit(pod(burstable("1")))
    decision = here.resize(pod(burstable(cpu)))
    sentence = f"node didn't have enough allocatable resources: cpu, requested: {cpu}000, allocatable: 15000"
    assert (decision.outcome, decision.message, decision.detail) == ("Infeasible", sentence, "node_allocatable")
    upstream = node("kubelet-1.36")
    upstream.admit(pod(burstable("1")))
    with pytest.raises(InputError, match="the API server refuses the resize: node didn't have enough"):
        upstream.resize(pod(burstable(cpu)))


def test_a_resize_says_what_it_restarts() -> None:
    """Containers whose resizePolicy wants it for what changes, and no others."""
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    here = node()
    here.admit(pod(burstable("1") | {"resizePolicy": policy}))
    assert here.resize(pod(burstable("2") | {"resizePolicy": policy})).restarts == ("c0",)
    assert here.resize(pod(burstable("2", "2Gi") | {"resizePolicy": policy})).restarts == ()
