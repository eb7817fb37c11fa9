"""PodslicePolicy: reading it, and that the empty one changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podslice import InputError, KubeletConfig, Node
from podslice.core.config.policy import (
    AnnotationRules,
    Defragmentation,
    ExclusiveResize,
    Hotplug,
    InterferenceGuards,
    PodslicePolicy,
)
from podslice.k8s.policy import load_policy, policy_from_dict
from tests.resize.helpers import guaranteed, pod
from tests.resize.test_exclusive import MACHINE

KIND = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy"}


def test_all_fields() -> None:
    """Every field of a file arrives."""
    spec = {
        "resize": {
            "exclusive": True, "belowBaseline": "allow", "eligibilityChange": "allow", "misfit": "infeasible",
            "memoryNodes": "follow",
        }
    }  # fmt: skip
    expected = ExclusiveResize(
        exclusive=True,
        below_baseline="allow",
        eligibility_change="allow",
        misfit="infeasible",
        memory_nodes="follow",
    )
    assert policy_from_dict({**KIND, "metadata": {"name": "x"}, "spec": spec}) == PodslicePolicy(resize=expected)
    hotplug = {
        "newCPUs": "ignore", "lostCPUs": "drain", "memory": "fixed", "afterReboot": "refuse", "driftTolerance": "1Mi",
    }  # fmt: skip
    wanted = Hotplug(new_cpus="ignore", lost_cpus="drain", memory="fixed", after_reboot="refuse", drift_tolerance="1Mi")
    assert policy_from_dict({**KIND, "spec": {"hotplug": hotplug}}) == PodslicePolicy(hotplug=wanted)
    assert policy_from_dict({**KIND, "spec": {"hotplug": {}}}) == PodslicePolicy(hotplug=Hotplug())
    assert policy_from_dict(KIND) == policy_from_dict({**KIND, "spec": {"resize": {}}}) == PodslicePolicy()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "Pod"}, "kind: 'Pod' is not PodslicePolicy (kind: PodslicePolicy)"),
        ({"apiVersion": "v1"}, "apiVersion: 'v1' is not podslice.io/v1alpha1 (apiVersion: podslice.io/v1alpha1)"),
        ({"resize": {}}, "resize: unknown field (everything but the name is below spec)"),
        ({"spec": {"resise": {}}}, "spec.resise: unknown field (did you mean resize?)"),
        ({"spec": {"resize": {"misfitt": 1}}}, "spec.resize.misfitt: unknown field (did you mean misfit?)"),
        ({"spec": {"resize": {"exclusive": "yes"}}}, "spec.resize.exclusive: expected true or false, got text"),
        ({"spec": {"resize": {"misfit": "wait"}}},
         "spec.resize.misfit: invalid enum value 'wait' (one of deferred, infeasible)"),
        ({"spec": {"resize": {"shrinkDelaySeconds": 11}}}, "spec.resize.shrinkDelaySeconds: expected a number <= 10.0"),
        ({"spec": {"defrag": {"carryOut": "always"}}},
         "spec.defrag.carryOut: invalid enum value 'always' (one of never, onRequest, automatic)"),
        ({"spec": {"defrag": {"maxMovesPerHour": -1}}}, "spec.defrag.maxMovesPerHour: expected a whole number >= 0"),
        ({"spec": {"annotations": {"namespaces": "x"}}}, "spec.annotations.namespaces: expected a list, got text"),
        ({"spec": {"annotations": {"invalid": "warn"}}},
         "spec.annotations.invalid: invalid enum value 'warn' (one of refuse, ignore)"),
        ({"spec": {"resize": []}}, "spec.resize: expected an object, got a list"),
        ({"spec": {"hotplug": {"newCPU": 1}}}, "spec.hotplug.newCPU: unknown field (did you mean newCPUs?)"),
        ({"spec": {"hotplug": {"memory": "x"}}}, "spec.hotplug.memory: invalid enum value 'x' (one of track, fixed)"),
        ({"spec": {"hotplug": {"driftTolerance": "-1"}}},
         "spec.hotplug.driftTolerance: '-1' is negative (auto, off, legacy or an amount such as 128Mi)"),
        ({"spec": {"plugins": {"profile": [{"name": ""}]}}},
         "spec.plugins.profile[0].name: expected `str` of length >= 1"),
        ({"spec": {"plugins": {"profile": [{}]}}},
         "spec.plugins.profile[0]: object missing required field `name` (add the field)"),
        ({"spec": {"plugins": {"profile": [{"name": "static", "onErrors": "skip"}]}}},
         "spec.plugins.profile[0].onErrors: unknown field (did you mean onError?)"),
        ({"spec": {"plugins": {"profile": [{"name": "static", "onError": "x"}]}}},
         "spec.plugins.profile[0].onError: invalid enum value 'x' (one of refuse, skip, static)"),
        ({"spec": {"plugins": {"maxCandidates": 0}}}, "spec.plugins.maxCandidates: expected a whole number >= 1"),
        ({"spec": {"topology": {"weights": {"cpu": 1001}}}},
         "spec.topology.weights[...]: expected a whole number <= 1000"),
        ({"spec": {"cpuClasses": [{"name": "P"}]}},
         "spec.cpuClasses[0].name: expected `str` matching regex '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$'"),
        ({"spec": {"assign": [{}]}}, "spec.assign[0]: object missing required field `classes` (add the field)"),
        ({"spec": "x"}, "spec: expected an object, got text"),
    ],
)  # fmt: skip
def test_wrong(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    """What is wrong is told in one line, with file, field and value or remedy."""
    file = tmp_path / "policy.yaml"
    file.write_text(str({**KIND, **data}))
    with pytest.raises(InputError) as caught:
        load_policy(str(file))
    assert str(caught.value) == f"{file}: {message}"


def test_further_sections() -> None:
    """So do those of moves and of annotations; one that says nothing is as none."""
    defrag = {"carryOut": "onRequest", "movable": "all", "memory": "follow", "maxMovesPerHour": 2}
    annotations = {"invalid": "ignore", "namespaces": ["team-*"]}
    read = policy_from_dict({**KIND, "spec": {"defrag": defrag, "annotations": annotations}})
    assert read.defrag == Defragmentation("onRequest", "all", "follow", 2)
    assert read.annotations == AnnotationRules("ignore", ("team-*",))
    guarded = policy_from_dict({**KIND, "spec": {"guards": {"irq": "enforce"}}})
    assert guarded == PodslicePolicy(guards=InterferenceGuards("enforce"))
    assert policy_from_dict({**KIND, "spec": {"defrag": {}, "annotations": {}}}) == PodslicePolicy()


def test_the_empty_policy_changes_nothing() -> None:
    """Decisions and state files are byte for byte those without a policy."""
    nodes = [Node(MACHINE, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1"), **fields)
             for fields in ({}, {"policy": PodslicePolicy()})]  # fmt: skip
    for cpu in ("4", "6", "1500m", "40"):
        answers = [node.admit(pod(guaranteed(cpu, "1Gi"), name=f"p{cpu}")) for node in nodes]
        assert answers[0] == answers[1]
        assert nodes[0].files == nodes[1].files
