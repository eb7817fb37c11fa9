"""Claims that count with requests of pods: a real kubelet's admission beside podslice's (cluster-integration A.7)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.controlplane import MERGE, ControlPlane, Settings
from e2e.programs import Programs
from prediction.kubelet import cgroup_version
from prediction.machine import Shape
from prediction.model import Model
from prediction.node import NODE, OneNode, is_over, node_of

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
GATES = {"DRANodeAllocatableResources": True}
CONFIG = {
    "featureGates": GATES,
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
}


def wanted(name: str, cpu: str, *claims: Json, init: str = "", whole: str = "") -> tuple[Json, list[Json]]:
    """A pod, and what the scheduler writes of its claims: claim by claim what it counts for."""
    named = [{"name": f"c{at}"} for at in range(len(claims))]
    container = {"name": "app", "image": "x", "resources": {"requests": {"cpu": cpu}, "claims": named}}
    spec: Json = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "resourceClaims": [{**one, "resourceClaimName": f"{name}-{one['name']}"} for one in named],
    }
    if init:
        spec["initContainers"] = [{"name": "init", "image": "x", "resources": {"requests": {"cpu": init}}}]
    if whole:
        spec["resources"] = {"requests": {"cpu": whole}}
    said = [
        {"resourceClaimName": f"{name}-c{at}", "containers": ["app"], "resources": one} for at, one in enumerate(claims)
    ]
    return {"metadata": {"name": name}, "spec": spec}, said


PODS_IN_ORDER = (
    wanted("plain", "1", {"cpu": "4"}),
    wanted("too-much", "9500m", {"cpu": "1", "memory": "1Mi"}),
    wanted("peak", "1", {"cpu": "2", "memory": "512Mi"}, init="3"),
    wanted("out-of-memory", "100m", {"memory": "100Gi"}),
    wanted("two", "100m", {"cpu": "1"}, {"cpu": "500m"}),
    wanted("whole", "100m", {"cpu": "1"}, whole="2"),
    wanted("replaced", "100m", {"cpu": "9"}, whole="1"),
    wanted("no-pages", "100m", {"hugepages-2Mi": "4Mi"}),
    wanted("last", "1", {"cpu": "1"}),
)


@pytest.fixture(scope="module")
def node(programs: Programs) -> Iterator[OneNode]:
    """Two NUMA nodes of eight CPUs each, and the gate on."""
    options = Settings(nodes=(NODE,), gates=GATES, api_server=("--disable-admission-plugins=ServiceAccount",))
    shape = Shape("two nodes", sockets=2, nodes=2, cores=4)
    with (
        tempfile.TemporaryDirectory(prefix="podslice-") as name,
        ControlPlane(programs, Path(name, "plane"), options) as plane,
        node_of(plane, programs, Path(name), shape) as node,
    ):
        node.kubelet.start(CONFIG)
        yield node


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_claims_count_for(node: OneNode) -> None:
    """Pod after pod has the same verdict in the same words, as others with their claims fill the node. A pod that is
    admitted waits for its claims, which nobody prepares."""
    model = Model(node.kubelet.machine, cgroup_version())
    model.start(node.kubelet.config_file, ())
    verdicts = []
    for pod, said in PODS_IN_ORDER:
        name = pod["metadata"]["name"]
        node.api.call("POST", PODS, pod)
        status = {"nodeAllocatableResourceClaimStatuses": said}
        stored = node.api.call("PATCH", f"{PODS}/{name}/status", {"status": status}, MERGE)
        predicted = model.admit(stored)
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        node.api.call("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})
        uid = stored["metadata"]["uid"]
        found = node.until(name, lambda pod, uid=uid: is_over(pod) or waits(node, uid))  # type: ignore[misc]
        told = found["status"].get("reason"), found["status"].get("message")
        if predicted is None:
            assert told == (None, None), name
        else:
            assert told == (predicted.reason, f"Pod was rejected: {predicted.message}"), name
        verdicts.append(told[0])
    assert verdicts == [None, "OutOfcpu", None, "OutOfmemory", None, None, None, "OutOfhugepages-2Mi", "OutOfcpu"]


def waits(node: OneNode, uid: str) -> bool:
    return any(one["reason"] == "FailedPrepareDynamicResources" for one in node.events(uid))
