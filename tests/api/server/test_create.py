"""Decoding and creating a pod: errors and warnings of the decoder, gates, status and dropped fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podslice.api.pod.spec import pod_from_dict
from podslice.api.pod.unknown_fields import find_unknown_fields
from podslice.api.server.create import prepare_for_create
from podslice.api.server.decode import decode_error
from podslice.values.gates import FeatureGates, GateError, dependents_to_disable
from tests.api.server.helpers import gates, pod, resources

_NOT_A_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_STRUCT = "json: cannot unmarshal {} into Go struct field {} of type v1.{}"


def of_container(stanza: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": stanza}]}}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(of_container({"requests": {"cpu": "1", "memory": None}}), "", id="fine"),
        pytest.param(of_container(None), "", id="null is absent"),
        pytest.param(of_container({"requests": {"cpu": " 1 "}}), "", id="blanks around an amount"),
        pytest.param(of_container({"requests": {"cpu": "\t1"}}), _NOT_A_QUANTITY, id="a tab is not a blank"),
        pytest.param(of_container({"requests": {"cpu": ""}}), _NOT_A_QUANTITY, id="empty amount"),
        pytest.param(of_container({"limits": {"cpu": True}}), _NOT_A_QUANTITY, id="boolean amount"),
        pytest.param(of_container({"limits": {"cpu": "1K"}}), "unable to parse quantity's suffix", id="suffix"),
        pytest.param({"spec": {"overhead": {"cpu": "x"}}}, _NOT_A_QUANTITY, id="overhead"),
        pytest.param(
            {"spec": {"resources": "1"}},
            _STRUCT.format("string", "PodSpec.spec.resources", "ResourceRequirements"),
            id="text for an object",
        ),
        pytest.param(
            {"spec": {"resources": {"requests": [], "limits": True}}},
            _STRUCT.format("array", "ResourceRequirements.spec.resources.requests", "ResourceList"),
            id="the first value of a wrong kind",
        ),
        pytest.param(
            {"spec": {"resources": {"requests": [], "limits": {"cpu": "x"}}}},
            _NOT_A_QUANTITY,
            id="an amount that cannot be read ends the reading",
        ),
        pytest.param(
            of_container(7),
            _STRUCT.format("number", "Container.spec.containers.resources", "ResourceRequirements"),
            id="number",
        ),
        pytest.param(
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            id="object for a list",
        ),
        pytest.param(True, "json: cannot unmarshal bool into Go value of type v1.Pod", id="no pod at all"),
    ],
)
def test_decode_errors(data: Any, error: str) -> None:
    """Unreadable values are reported as by the API server's decoder."""
    assert decode_error(data) == error


def test_unknown_fields_are_warnings() -> None:
    """Fields that Kubernetes does not know are named with their path, in the API server's words and order."""
    data = {
        "spec": {
            "restartPolicy": "Never",
            "restartPolic": "Never",
            "resources": {"request": {}, "limits": {"anything": "1"}},
            "containers": [{"name": "a", "image": "b"}, {"resources": {"limit": {}, "claims": [{"names": "x"}]}}],
        }
    }
    assert list(map(str, find_unknown_fields(data))) == [
        'unknown field "spec.restartPolic"',
        'unknown field "spec.resources.request"',
        'unknown field "spec.containers[1].resources.limit"',
        'unknown field "spec.containers[1].resources.claims[0].names"',
    ]


def test_a_created_pod_starts_with_a_fresh_status() -> None:
    """The status has the phase and the QoS class; a submitted class is kept, as v1.36.2 does."""
    data = {"spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running", "resources": {"requests": {}}}}
    status = prepare_for_create(pod_from_dict(data), gates()).status
    assert (status.phase, status.qos_class, status.resources) == ("Pending", "BestEffort", None)
    data["status"] = {"qosClass": "Guaranteed"}
    assert prepare_for_create(pod_from_dict(data), gates()).status.qos_class == "Guaranteed"


def test_the_stanza_is_dropped_without_its_gate() -> None:
    """With PodLevelResources off a new pod has no `spec.resources`, and its containers decide the QoS class."""
    raw = pod(resources({"cpu": "1"}), resources=resources({"cpu": "2"}, {"cpu": "2"}))
    off = gates(PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False)
    created = prepare_for_create(raw, off)
    assert created.spec.resources is None
    assert created.status.qos_class == "Burstable"
    assert prepare_for_create(raw, gates()).spec.resources == raw.spec.resources


def test_every_unmet_dependency_is_named() -> None:
    """A component that would not start says all that is wrong with its gates."""
    with pytest.raises(GateError) as raised:
        FeatureGates.from_overrides({"PodLevelResources": False, "PodLevelResourceManagers": True})
    assert str(raised.value) == (
        "[InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: "
        "[PodLevelResources], PodLevelResourceManagers is enabled, but depends on features that are disabled: "
        "[PodLevelResources]]"
    )


@pytest.mark.parametrize(
    ("overrides", "dependents"),
    [
        pytest.param({}, (), id="nothing"),
        pytest.param(
            {"PodLevelResources": False}, ("InPlacePodLevelResourcesVerticalScaling",), id="only what is on by default"
        ),
        pytest.param(
            {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}, (), id="named already"
        ),
        pytest.param(
            {"NodeDeclaredFeatures": False},
            (
                "ExtendWebSocketsToKubelet",
                "InPlacePodLevelResourcesVerticalScaling",
                "InPlacePodVerticalScalingInitContainers",
                "RestartAllContainersOnContainerExits",
            ),
            id="gates of other fields",
        ),
    ],
)
def test_gates_that_must_go_too(overrides: dict[str, bool], dependents: tuple[str, ...]) -> None:
    """Switching a gate off needs its dependents off, and these are named."""
    assert dependents_to_disable(overrides) == dependents
    FeatureGates.from_overrides({**overrides, **dict.fromkeys(dependents, False)})


def test_the_documented_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of docs/development/api-server.md runs, and its comments are its output."""
    text = (Path(__file__).parents[3] / "docs" / "development" / "api-server.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/development/api-server.md", "exec"), {})
    shown = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
    assert capsys.readouterr().out.splitlines() == shown
