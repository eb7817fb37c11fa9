"""PodslicePolicy: reading it, and that the empty one changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from podslice import InputError, KubeletConfig, Node
from podslice.config.policy import (
    AnnotationRules,
    Defragmentation,
    ExclusiveResize,
    Hotplug,
    InterferenceGuards,
    PodslicePolicy,
    PowerProfile,
    check_policy,
)
from podslice.config.policy_file import load_policy, policy_from_dict
from podslice.reading.yaml import load_documents
from podslice.values.quirks import PODSLICE
from tests.node.resize.helpers import guaranteed, pod
from tests.node.resize.test_exclusive import MACHINE

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
        ({"spec": {"resize": {"exclusive": "yes"}}}, "spec.resize.exclusive: expected true or false, got text: 'yes'"),
        ({"spec": {"resize": {"misfit": "wait"}}},
         "spec.resize.misfit: invalid enum value 'wait' (one of deferred, infeasible)"),
        ({"spec": {"resize": {"shrinkDelaySeconds": 11}}},
         "spec.resize.shrinkDelaySeconds: expected a number <= 10.0, got 11"),
        ({"spec": {"defrag": {"carryOut": "always"}}},
         "spec.defrag.carryOut: invalid enum value 'always' (one of never, onRequest, automatic)"),
        ({"spec": {"defrag": {"maxMovesPerHour": -1}}},
         "spec.defrag.maxMovesPerHour: expected a whole number >= 0, got -1"),
        ({"spec": {"annotations": {"namespaces": "x"}}}, "spec.annotations.namespaces: expected a list, got text: 'x'"),
        ({"spec": {"annotations": {"invalid": "warn"}}},
         "spec.annotations.invalid: invalid enum value 'warn' (one of refuse, ignore)"),
        ({"spec": {"resize": []}}, "spec.resize: expected an object, got a list"),
        ({"spec": {"hotplug": {"newCPU": 1}}}, "spec.hotplug.newCPU: unknown field (did you mean newCPUs?)"),
        ({"spec": {"hotplug": {"memory": "x"}}}, "spec.hotplug.memory: invalid enum value 'x' (one of track, fixed)"),
        ({"spec": {"hotplug": {"driftTolerance": "-1"}}},
         "spec.hotplug.driftTolerance: '-1' is negative (auto, off, legacy or an amount such as 128Mi)"),
        ({"spec": {"plugins": {"profile": [{"name": ""}]}}},
         "spec.plugins.profile[0].name: expected text of length >= 1, got ''"),
        ({"spec": {"plugins": {"profile": [{}]}}},
         "spec.plugins.profile[0]: object missing required field `name` (add the field)"),
        ({"spec": {"plugins": {"profile": [{"name": "static", "onErrors": "skip"}]}}},
         "spec.plugins.profile[0].onErrors: unknown field (did you mean onError?)"),
        ({"spec": {"plugins": {"profile": [{"name": "static", "onError": "x"}]}}},
         "spec.plugins.profile[0].onError: invalid enum value 'x' (one of refuse, skip, static)"),
        ({"spec": {"plugins": {"maxCandidates": 0}}},
         "spec.plugins.maxCandidates: expected a whole number >= 1, got 0"),
        ({"spec": {"topology": {"weights": {"cpu": 1001}}}},
         "spec.topology.weights[cpu]: expected a whole number <= 1000, got 1001"),
        ({"spec": {"cpuClasses": [{"name": "P"}]}},
         "spec.cpuClasses[0].name: expected text matching regex '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$', got 'P'"),
        ({"spec": {"mixed": {"environment": ["x"]}}},
         "spec.mixed.environment[0]: invalid enum value 'x' (one of openshift, cpu-pooler, downward)"),
        ({"spec": {"guards": {"powerProfiles": {"a": {"minFreq": "3GHz"}}}}},
         "spec.guards.powerProfiles[a].minFreq: expected text matching regex '^(min|base|turbo|[0-9]{1,9})$', "
         "got '3GHz' (min, base, turbo, or kHz)"),
        ({"spec": {"assign": [{}]}}, "spec.assign[0]: object missing required field `classes` (add the field)"),
        ({"spec": "x"}, "spec: expected an object, got text: 'x'"),
        ({"spec": {"defrag": {"maxMovesPerHour": 1.5}}},
         "spec.defrag.maxMovesPerHour: expected a whole number, got a number with a fraction or an exponent: 1.5"),
        ({"spec": {"hotplug": {"driftTolerance": 1e99}}},
         "spec.hotplug.driftTolerance: expected text, got a number with a fraction or an exponent: 1e+99 "
         "(put it in quotes)"),
    ],
)  # fmt: skip
def test_wrong(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    """An error is one line, with file, field and value or remedy."""
    file = tmp_path / "policy.yaml"
    file.write_text(str({**KIND, **data}))
    with pytest.raises(InputError) as caught:
        load_policy(str(file))
    assert str(caught.value) == f"{file}: {message}"


SECTIONS: dict[str, Any] = {
    "resize": {"belowBaseline": "allow"}, "defrag": {"memory": "follow"}, "annotations": {"invalid": "ignore"},
    "plugins": {"profile": [{"name": "balance-numa"}]}, "cpuClasses": [{"name": "a"}],
    "assign": [{"classes": ["default"]}], "topology": {"bestEffort": "scored"}, "hotplug": {}, "mixed": {},
    "guards": {"irq": "enforce"}, "claims": {"cpus": "8-15"},
}  # fmt: skip


def test_beside_a_kubelet() -> None:
    """Profile `kubelet-1.36` takes no section that decides: the error names the first one. Guards that only look and
    what a node should reserve are not among them, and a wrong annotation for such a guard refuses no pod there."""
    assert SECTIONS.keys() | {"reservation"} == {one.encode_name for one in msgspec.structs.fields(PodslicePolicy)}
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    for section, value in SECTIONS.items():
        policy = policy_from_dict({**KIND, "spec": {section: value, "reservation": {"measure": True}}})
        with pytest.raises(InputError) as caught:
            Node(MACHINE, config, profile="kubelet-1.36", policy=policy)
        remedy = "leave it out, or use profile podslice"
        assert str(caught.value) == f"spec.{section}: a kubelet has no such policy ({remedy})"
    looks = policy_from_dict({**KIND, "spec": {"guards": {"irq": "observe"}, "reservation": {"measure": True}}})
    wrong = pod(guaranteed("2", "1Gi"), annotations={"podslice.io/irq": "no such request"})
    outcomes = {
        profile: Node(MACHINE, config, profile=profile, policy=looks).admit(wrong).admitted
        for profile in ("podslice", "kubelet-1.36")
    }
    assert outcomes == {"podslice": False, "kubelet-1.36": True}


def documented_policies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Policies on pages, also those of which only the specification is shown."""
    sections = {field.encode_name for field in msgspec.structs.fields(PodslicePolicy)}
    for page in sorted((Path(__file__).parents[2] / "docs").rglob("*.md")):
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            for document in load_documents(block):
                found = document.get("policy", document) if isinstance(document, dict) else {}
                if found.get("kind") == "PodslicePolicy" or (set(found) == {"spec"} and set(found["spec"]) <= sections):
                    yield page.name, {**KIND, "spec": found["spec"]}


def test_policies_on_pages() -> None:
    """Every policy that a page shows can be read as it is written there: an unquoted `off` is not text."""
    pages = set()
    for page, policy in documented_policies():
        policy_from_dict(policy)
        pages.add(page)
    assert {"dra.md", "isolation.md", "policy.md", "reserve.md"} <= pages


def test_further_sections() -> None:
    """So do those of moves and of annotations; one that says nothing is as none."""
    defrag = {"carryOut": "onRequest", "movable": "all", "memory": "follow", "maxMovesPerHour": 2}
    annotations = {"invalid": "ignore", "namespaces": ["team-*"]}
    read = policy_from_dict({**KIND, "spec": {"defrag": defrag, "annotations": annotations}})
    assert read.defrag == Defragmentation("onRequest", "all", "follow", 2)
    assert read.annotations == AnnotationRules("ignore", ("team-*",))
    guarded = policy_from_dict({**KIND, "spec": {"guards": {"irq": "enforce"}}})
    assert guarded == PodslicePolicy(guards=InterferenceGuards("enforce"))
    power = {"powerProfiles": {"fast": {"minFreq": "base", "disabledIdleStates": ["C6"]}}, "defaultPower": "fast"}
    profile = PowerProfile(min_freq="base", disabled_idle_states=("C6",))
    guards = InterferenceGuards(power_profiles={"fast": profile}, default_power="fast")
    assert policy_from_dict({**KIND, "spec": {"guards": power}}) == PodslicePolicy(guards=guards)
    with pytest.raises(InputError, match="'slow' is not a power profile"):
        check_policy(PodslicePolicy(guards=replace(guards, default_power="slow")), PODSLICE)
    with pytest.raises(InputError, match=r"spec\.guards\.housekeepingCPUs: '4-2' ends before it begins"):
        check_policy(PodslicePolicy(guards=InterferenceGuards(housekeeping_cpus="4-2")), PODSLICE)
    assert policy_from_dict({**KIND, "spec": {"defrag": {}, "annotations": {}}}) == PodslicePolicy()


def test_the_empty_policy_changes_nothing() -> None:
    """Decisions and state files are byte for byte those without a policy."""
    nodes = [Node(MACHINE, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1"), **fields)
             for fields in ({}, {"policy": PodslicePolicy()})]  # fmt: skip
    for cpu in ("4", "6", "1500m", "40"):
        answers = [node.admit(pod(guaranteed(cpu, "1Gi"), name=f"p{cpu}")) for node in nodes]
        assert answers[0] == answers[1]
        assert nodes[0].files == nodes[1].files
