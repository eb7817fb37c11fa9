"""Claims that count with requests of pods: a real kubelet's admission beside podslice's (cluster-integration A.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from e2e.controlplane import MERGE
from e2e.programs import Programs
from tools.prediction.compare import device_state
from tools.prediction.kubelet import cgroup_version
from tools.prediction.model import Model
from tools.prediction.node import NODE, OneNode, is_over
from tools.prediction.plugins import FOLDER, Plugins

from podslice.machine.devices import inventory_from_data
from podslice.node.checkpoints.names import DEVICE_STATE_FILE
from tests.prediction.counting import PODS, counting_node

Json = dict[str, Any]
GPU = "example.com/gpu"


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
    with counting_node(programs) as (_, found, _):
        yield found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_claims_count_for(node: OneNode) -> None:
    """Pod after pod has the same verdict in the same words, as others with their claims fill the node. A pod that is
    admitted waits for its claims, which nobody prepares."""
    model = Model(node.kubelet.machine, cgroup_version())
    model.start(node.kubelet.config_file, ())
    verdicts = [
        verdict(node, model, pod, {"nodeAllocatableResourceClaimStatuses": said}) for pod, said in PODS_IN_ORDER
    ]
    assert verdicts == [None, "OutOfcpu", None, "OutOfmemory", None, None, None, "OutOfhugepages-2Mi", "OutOfcpu"]


def verdict(node: OneNode, model: Model, pod: Json, status: Json) -> str | None:
    """Why the kubelet refuses a pod with this status, None where it does not; podslice says the same."""
    name = pod["metadata"]["name"]
    node.api.call("POST", PODS, pod)
    stored = node.api.call("PATCH", f"{PODS}/{name}/status", {"status": status}, MERGE)
    predicted = model.admit(stored)
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    node.api.call("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})
    uid = stored["metadata"]["uid"]
    found = node.until(name, lambda pod: is_over(pod) or waits(node, uid) or "containerStatuses" in pod["status"])
    told = found["status"].get("reason"), found["status"].get("message")
    expected = (None, None) if predicted is None else (predicted.reason, f"Pod was rejected: {predicted.message}")
    assert told == expected, name
    return None if predicted is None else predicted.reason


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_extended_resources_of_claims(node: OneNode) -> None:
    """A resource for which the scheduler made a claim takes no device of a plugin, in the kubelet and here, and no
    plugin is called; but it counts against the next pod."""
    listed = {"resource": GPU, "devices": [{"id": "a"}, {"id": "b"}]}
    inventory = inventory_from_data([listed])
    with Plugins(inventory, node.kubelet.folder) as plugins:
        plugins.register()
        node.kubelet.wait("devices", lambda: node.allocatable().get(GPU) == "2")
        model = Model(node.kubelet.machine, cgroup_version(), inventory)
        model.start(node.kubelet.config_file, ())
        verdicts = [
            verdict(node, model, with_gpus("claimed", 1), of_claim("claimed")),
            verdict(node, model, with_gpus("too-many", 2), {}),
            verdict(node, model, with_gpus("own", 1), {}),
            verdict(node, model, with_gpus("claimed-beside", 2), of_claim("claimed-beside")),
            verdict(node, model, with_gpus("one-more", 1), {}),
        ]
        assert verdicts == [None, f"OutOf{GPU}", None, None, f"OutOf{GPU}"]
        assert device_state(node.kubelet.file(f"{FOLDER}/{DEVICE_STATE_FILE}")) == device_state(model.device_file())


def with_gpus(name: str, count: int) -> Json:
    amounts = {"cpu": "100m", GPU: str(count)}
    container = {"name": "app", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def of_claim(name: str) -> Json:
    """As the scheduler says that a claim is for a container's devices."""
    mapping = {"containerName": "app", "resourceName": GPU, "requestName": "container-0-request-0"}
    return {"extendedResourceClaimStatus": {"resourceClaimName": f"{name}-gpus", "requestMappings": [mapping]}}


def waits(node: OneNode, uid: str) -> bool:
    return any(one["reason"] == "FailedPrepareDynamicResources" for one in node.events(uid))
