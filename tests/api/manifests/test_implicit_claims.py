"""Pods that ask for devices by the name of a class: the scheduler makes their claims before a kubelet sees them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from podslice import Node
from podslice.advise.inspect.build import inspect_pod
from podslice.api.manifests.loaded import LoadedPod
from podslice.api.manifests.manifest import load_pods_text
from podslice.machine.gallery import load_gallery
from podslice.values.gates import FeatureGates
from podslice.values.quirks import PROFILES

CLASS = "deviceclass.resource.kubernetes.io/gpu.example.com"


def load(**status: Any) -> LoadedPod:
    spec: dict[str, Any] = {"containers": [
        {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi", CLASS: "1"}}},
        {"name": "b", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
    ]}  # fmt: skip
    spec |= {"nodeName": status.pop("nodeName")} if "nodeName" in status else {}
    data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": status}
    (one,) = load_pods_text(yaml.safe_dump(data), "p.yaml")
    return one


def test_a_manifest_is_completed_as_the_scheduler_does() -> None:
    """The claim covers the resource in the container that asks, and a warning says that devices are not checked."""
    one = load()
    made = one.pod.status.extended_resource_claim_status
    assert made is not None
    assert [(each.container_name, each.resource_name) for each in made.request_mappings] == [("a", CLASS)]
    assert one.warnings == (
        f"p.yaml: Pod p: the scheduler makes a claim for {CLASS} before a kubelet sees the pod; "
        "whether there is such a device is not checked",
    )


def test_the_node_admits_it() -> None:
    """A kubelet counts no amounts that a claim covers."""
    node = Node(load_gallery("xeon-6338-2s"))
    assert node.admit(load().pod).admitted


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"nodeName": "n1"}, id="on a node without a claim"),
        pytest.param({"extendedResourceClaimStatus": {"resourceClaimName": "c"}}, id="with the scheduler's own status"),
    ],
)
def test_what_a_cluster_says_stays(status: dict[str, Any]) -> None:
    """A pod that a scheduler has bound is as it is."""
    one = load(**status)
    made = one.pod.status.extended_resource_claim_status
    assert (made.request_mappings if made is not None else ()) == ()
    assert one.warnings == ()


def test_lint_and_inspect_admit_it_as_well() -> None:
    """The empty node on which they try a pod meets it after the scheduler."""
    one = load()
    gates = FeatureGates.from_overrides({})
    page = inspect_pod(one.pod, gates, PROFILES["podslice"], data=one.data, node=Node(load_gallery("xeon-6338-2s")))
    assert page.placement is not None
    assert page.placement.admitted
