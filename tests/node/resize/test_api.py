"""The API server's handling of updates and of the subresource resize."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from podslice.api.pod.spec import Container, ContainerState, ContainerStatus, Pod
from podslice.api.server.resize import prepare_for_resize, validate_resize
from podslice.api.server.resize_admission import (
    ResizedPodsNode,
    missing_features_error,
    needed_features,
    node_capacity_error,
    node_platform_error,
    resize_refusal,
)
from podslice.api.server.update import IMMUTABLE, prepare_for_update, pull_policy, validate_update
from podslice.replay.api.case import ApiCase
from podslice.replay.api.change import SECTIONS
from podslice.replay.run import first_difference, read_cases
from podslice.values.gates import FeatureGates
from podslice.values.quantity import Quantity
from podslice.values.quirks import KUBELET_1_36
from tests.node.resize.helpers import GATES, burstable, guaranteed, pod, resources

SAMPLE = Path(__file__).parents[2] / "vectors" / "api-change.jsonl.gz"
PLR_OFF = FeatureGates.from_overrides({"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False})
PLR_RESIZE_OFF = FeatureGates.from_overrides({"InPlacePodLevelResourcesVerticalScaling": False})
INIT_RESIZE_OFF = FeatureGates.from_overrides({"InPlacePodVerticalScalingInitContainers": False})
PLAIN_INIT = {"name": "i", "image": "busybox", **burstable("1")}
BUDGET = {"cpu": "2", "memory": "2Gi"}


def test_recorded_changes() -> None:
    """Updates and resizes are answered as upstream answered them, every kind of error among them."""
    compared = 0
    for record in read_cases(SAMPLE):
        case = ApiCase(record["case"], KUBELET_1_36)
        for section, compute in SECTIONS.items():
            difference = first_difference(record["result"][section], compute(case), section)
            assert not difference, f"{record['case']['name']}: {difference}"
            compared += 1
    assert compared > 150


def messages(new: Pod, old: Pod, gates: FeatureGates = GATES) -> list[str]:
    return sorted(map(str, validate_resize(prepare_for_resize(new, old, gates), old, gates)))


PLAIN = burstable("1", "1Gi")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(pod(PLAIN), pod(burstable("2", "2Gi")), [], id="allowed"),
        pytest.param(
            pod(PLAIN),
            pod(guaranteed("1", "1Gi")),
            ['spec: Invalid value: "": Pod QOS Class may not change as a result of resizing'],
            id="qos",
        ),
        pytest.param(
            pod(PLAIN, annotations={"kubernetes.io/config.mirror": "x"}, nodeName="n"),
            pod(burstable("2", "1Gi")),
            ["[]: Forbidden: static pods cannot be resized"],
            id="mirror pod",
        ),
        pytest.param(
            pod(PLAIN, init=[PLAIN_INIT]),
            pod(PLAIN, init=[{**PLAIN_INIT, **burstable("2"), "resizePolicy": [
                {"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]),
            [
                'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be '
                "set to 'RestartContainer' for non-sidecar initContainers",
                "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of "
                "RestartContainer cannot be resized",
                "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are "
                "mutable",
            ],
            id="init container that would restart",
        ),
        pytest.param(
            pod(PLAIN, init=[PLAIN_INIT]),
            pod(PLAIN),
            ["spec.initContainers: Forbidden: initContainers may not be added or removed on resize"],
            id="init container removed",
        ),
        pytest.param(
            pod(PLAIN, init=[PLAIN_INIT]),
            pod(PLAIN, init=[{**PLAIN_INIT, "name": "j"}]),
            ["spec.initContainers[0].name: Forbidden: initContainers may not be renamed or reordered on resize"],
            id="init container renamed",
        ),
        pytest.param(
            pod(PLAIN, PLAIN),
            pod(*[{**PLAIN, "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}] * 2),
            ["spec: Forbidden: only cpu and memory resources are mutable"] * 2,
            id="another policy",
        ),
        pytest.param(
            pod({}),
            pod({}, pod_level={}),
            ["spec: Forbidden: only cpu and memory resources are mutable"],
            id="an empty pod-level stanza",
        ),
        pytest.param(
            pod(PLAIN, PLAIN),
            pod(PLAIN),
            ["spec.containers: Forbidden: containers may not be added or removed on resize"],
            id="container removed",
        ),
        pytest.param(
            pod({"resources": resources(BUDGET, BUDGET)}, pod_level=resources(BUDGET, BUDGET)),
            pod({"resources": resources(BUDGET, BUDGET)}),
            ["spec.resources: Forbidden: pod-level resources cannot be removed"],
            id="pod-level stanza removed",
        ),
    ],
)  # fmt: skip
def test_what_a_resize_may_not_do(old: Pod, new: Pod, expected: list[str]) -> None:
    """Each rule of the subresource answers with upstream's path and sentence."""
    assert messages(new, old) == expected


def test_everything_but_resources_is_reset() -> None:
    """Whatever else a resize submits is ignored."""
    old = pod(PLAIN, annotations={"a": "old"})
    new = pod({**burstable("2"), "image": "other"}, annotations={"a": "new"}, nodeName="elsewhere")
    prepared = prepare_for_resize(new, old, GATES)
    assert prepared.metadata == old.metadata
    assert prepared.spec.containers[0].image == "busybox"
    assert prepared.spec.node_name == ""
    assert prepared.spec.containers[0].resources == new.spec.containers[0].resources


def test_a_node_without_support() -> None:
    """A running container whose status has no resources indicates an old kubelet."""
    running = ContainerStatus("c0", state=ContainerState(running={}))
    old = _with_status(pod(PLAIN), container_statuses=(running,))
    assert "spec: Forbidden: Pod running on node without support for resize" in messages(pod(burstable("2")), old)


def test_claims_on_node_allocatable_resources() -> None:
    """A pod that holds cpu or memory through a resource claim cannot be resized."""
    old = _with_status(pod(PLAIN), node_allocatable_resource_claim_statuses=({"resourceClaimName": "c"},))
    expected = ["spec: Forbidden: pods with node allocatable resource claims cannot be resized"]
    assert messages(pod(burstable("2", "1Gi")), old) == expected


def _with_status(one: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, **fields))


def test_pod_level_resize_without_its_gate() -> None:
    """A pod with pod-level resources cannot be resized at all without the gate, its containers included."""
    old = pod(PLAIN, pod_level=resources({"cpu": "2", "memory": "2Gi"}))
    new = pod(burstable("2", "1Gi"), pod_level=resources({"cpu": "3", "memory": "2Gi"}))
    assert messages(new, old, PLR_RESIZE_OFF) == [
        "[]: Forbidden: resize of pods with pod-level resources is forbidden when "
        "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
    ]
    assert prepare_for_resize(new, old, PLR_RESIZE_OFF).spec.resources == old.spec.resources


def test_init_containers_without_their_gate() -> None:
    """Without its gate the resources of plain init containers are immutable."""
    old, new = pod(PLAIN, init=[PLAIN_INIT]), pod(PLAIN, init=[{**PLAIN_INIT, **burstable("2")}])
    expected = ["spec: Forbidden: resources for non-sidecar init containers are immutable"]
    assert messages(new, old, INIT_RESIZE_OFF) == expected
    assert messages(new, old) == []


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(pod({**PLAIN, "image": "other"}), [], id="image"),
        pytest.param(
            pod({**PLAIN, "image": "other:1"}), [f"spec: Forbidden: {IMMUTABLE}"], id="pull policy follows the tag"
        ),
        pytest.param(pod(burstable("2", "1Gi")), [f"spec: Forbidden: {IMMUTABLE}"], id="resources"),
        pytest.param(
            pod(PLAIN, PLAIN, name="p"),
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
            id="container added",
        ),
        pytest.param(pod(PLAIN, activeDeadlineSeconds=5), [], id="a first deadline"),
    ],
)
def test_ordinary_updates(new: Pod, expected: list[str]) -> None:
    """An ordinary update may change images and deadlines, and no resources."""
    old = pod(PLAIN)
    errors = validate_update(prepare_for_update(new, old, GATES), old, GATES)
    assert list(map(str, errors)) == expected


def test_deadlines_only_shrink() -> None:
    """A deadline can be lowered, not raised or taken away."""
    old = pod(PLAIN, activeDeadlineSeconds=10)

    def answer(**spec: Any) -> list[str]:
        return [error.detail for error in validate_update(pod(PLAIN, **spec), old, GATES)]

    assert answer(activeDeadlineSeconds=9) == []
    assert answer(activeDeadlineSeconds=11) == ["must be less than or equal to previous value"]
    assert answer() == ["must not update from a positive integer to nil value"]


def test_pod_level_resources_are_dropped_with_their_gate() -> None:
    """With the gate off a new `spec.resources` is dropped; one that the old pod has stays, unvalidated."""
    budget = resources({"cpu": "1"}, {"cpu": "1m"})
    without, having = pod(PLAIN), pod(PLAIN, pod_level=budget)
    assert prepare_for_update(having, without, PLR_OFF).spec.resources is None
    kept = prepare_for_update(having, having, PLR_OFF)
    assert kept.spec.resources is not None
    assert validate_update(kept, having, PLR_OFF) == []


@pytest.mark.parametrize(
    ("image", "policy"),
    [("nginx", "Always"), ("nginx:latest", "Always"), ("nginx:1.25", "IfNotPresent"),
     ("registry:5000/nginx", "Always"), ("registry:5000/nginx:1", "IfNotPresent"), ("n@sha256:0", "IfNotPresent")],
)  # fmt: skip
def test_pull_policy(image: str, policy: str) -> None:
    """Without a tag, or with the tag latest, an image is always pulled."""
    assert pull_policy(Container("c", image=image)) == policy
    assert pull_policy(Container("c", image=image, image_pull_policy="Never")) == "Never"


def test_plugins_about_the_node() -> None:
    """A resize needs a Linux node that is known, large enough and declares what the resize uses."""
    allocatable = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}
    assert node_capacity_error(pod(burstable("2", "1Gi")), allocatable) == ""
    assert node_capacity_error(pod(burstable("2500m", "2Gi")), allocatable) == (
        "node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000; "
        "memory, requested: 2147483648, allocatable: 1073741824"
    )
    assert node_platform_error("n", None) == 'node "n" not found'
    assert node_platform_error("n", {}) == ""
    assert node_platform_error("n", {"kubernetes.io/os": "windows"}) == (
        'pod resize is only supported on linux nodes, node "n" is "windows"'
    )


def test_plugins_look_at_what_changes() -> None:
    """A pod that is too large already may stay so, but not be resized; features come before the node's size, and a pod
    without a node is not checked."""
    old, less = pod(burstable("4", "1Gi"), nodeName="n"), pod(burstable("3500m", "1Gi"), nodeName="n")
    amounts = {"cpu": Quantity.parse("3"), "memory": Quantity.parse("2Gi")}
    small, gone = ResizedPodsNode("n", {}, amounts), ResizedPodsNode("n", None)
    assert resize_refusal(old, old, small) == resize_refusal(old, old, gone) == ""
    assert resize_refusal(less, old, small).endswith("cpu, requested: 3500, allocatable: 3000")
    assert resize_refusal(less, old, gone) == 'node "n" not found'
    whole = pod(burstable("4", "1Gi"), nodeName="n", pod_level=resources({"cpu": "4"}))
    assert resize_refusal(whole, old, small).startswith("pod update requires features InPlacePodLevelResources")
    assert resize_refusal(pod(burstable("9", "1Gi")), pod(burstable("4", "1Gi")), gone) == ""
    huge = pod(burstable("12345678901234567890", "1Gi"), nodeName="n")
    assert resize_refusal(huge, old, small).startswith("node didn't have enough allocatable resources: cpu")


def test_needed_features() -> None:
    """Resizes at pod level and of init containers need a node that declares so."""
    old = pod(PLAIN, init=[PLAIN_INIT], pod_level=resources({"cpu": "3"}))
    new = pod(PLAIN, init=[{**PLAIN_INIT, **burstable("2")}], pod_level=resources({"cpu": "4"}))
    needed = needed_features(new, old)
    assert needed == ("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers")
    assert needed_features(old, old) == ()
    assert missing_features_error(needed, needed, "n") == ""
    assert missing_features_error(needed, (), "n") == (
        "pod update requires features InPlacePodLevelResourcesVerticalScaling, "
        'InPlacePodVerticalScalingInitContainers which are not available on node "n"'
    )
