"""The QoS class (pod-level-resources 6) and the gate of KEP-2837's fix."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.demand import compute_qos, pod_qos
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.effects.helpers import gates, pod

BOTH = {"cpu": "1", "memory": "1Gi"}
EQUAL = {"requests": BOTH, "limits": BOTH}
FIX = "PodLevelResourcesFixKubeletQOSClass"


@pytest.mark.parametrize(
    ("container", "stanza", "qos"),
    [
        pytest.param({}, None, "BestEffort", id="nothing"),
        pytest.param({"limits": BOTH}, None, "Guaranteed", id="containers with both limits"),
        pytest.param({"limits": {"cpu": "1"}}, None, "Burstable", id="one limit missing"),
        pytest.param({"requests": {"example.com/gpu": "1"}}, None, "BestEffort", id="other resources do not count"),
        pytest.param({"requests": {"cpu": "0"}}, None, "BestEffort", id="zero does not count"),
        pytest.param({}, EQUAL, "Guaranteed", id="pod level equal"),
        pytest.param({}, {"limits": BOTH}, "Guaranteed", id="pod limits only"),
        pytest.param({}, {"requests": BOTH}, "Burstable", id="pod requests only"),
        pytest.param({}, {"limits": {"cpu": "1"}}, "Burstable", id="pod level with one resource"),
        pytest.param({"limits": BOTH}, {"requests": {"cpu": "1"}}, "Burstable", id="pod level hides the containers"),
        pytest.param({"limits": BOTH}, {"limits": {"cpu": "1"}}, "Burstable", id="no per-resource mixture"),
        pytest.param({"limits": BOTH}, {"requests": {"cpu": "0"}}, "BestEffort", id="a pod-level zero hides them too"),
    ],
)
def test_class(container: dict[str, Any], stanza: dict[str, Any] | None, qos: str) -> None:
    """The class of a pod with one container; the profiles agree about the same defaulted pod."""
    one = pod(container, resources=stanza)
    assert [compute_qos(one, gates(quirks)) for quirks in (KUBELET_1_36, PODSLICE)] == [qos, qos]


@pytest.mark.parametrize("stanza", [{}, {"requests": {}}, {"limits": {}}, {"requests": {"example.com/gpu": "1"}}])
def test_empty_stanza(stanza: dict[str, Any]) -> None:
    """An empty `spec.resources` makes v1.36.2 forget the containers; with the fix they decide."""
    one = pod({"limits": BOTH}, resources=stanza)
    assert compute_qos(one, gates()) == "BestEffort"
    assert compute_qos(one, gates(PODSLICE)) == "Guaranteed"
    assert compute_qos(one, gates(PODSLICE, **{FIX: False})) == "BestEffort"


def test_without_the_gate_containers_decide() -> None:
    """With PodLevelResources off the stanza is not looked at."""
    off = gates(PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False)
    assert compute_qos(pod({}, resources=EQUAL), off) == "BestEffort"


def test_plain_init_containers_count() -> None:
    """Every init container needs both limits as well; ephemeral ones do not matter."""
    debug = [{"name": "debug"}]
    assert compute_qos(pod({"limits": BOTH}, init={"i": {}}), gates()) == "Burstable"
    assert compute_qos(pod({"limits": BOTH}, ephemeralContainers=debug), gates()) == "Guaranteed"


def test_stored_class_wins() -> None:
    """The kubelet takes the class the API server stored."""
    one = pod({}, status={"qosClass": "Burstable"})
    assert (pod_qos(one, gates()), compute_qos(one, gates())) == ("Burstable", "BestEffort")


def test_the_fix_gate_is_no_gate_of_1_36() -> None:
    """v1.36.2 does not know the fix by name, so setting it changes nothing; profile podslice has it, on."""
    theirs = FeatureGates.from_overrides({FIX: True}, fixes=later_gates(KUBELET_1_36))
    assert (theirs[FIX], theirs.unknown) == (False, (FIX,))
    ours = FeatureGates.from_overrides({}, fixes=later_gates(PODSLICE))
    assert (ours[FIX], ours.unknown) == (True, ())
