"""Sections about the API server: gates, decoding, defaults, validation, what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from podslice.api.pod.demand import compute_qos
from podslice.api.pod.field_error import FieldError
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements
from podslice.api.pod.unknown_fields import find_unknown_fields
from podslice.api.server.limitrange import ANNOTATION
from podslice.api.server.limitrange_check import limit_range_refusals
from podslice.api.server.validate import validate_create
from podslice.api.server.warnings import create_warnings
from podslice.replay.api.case import ABSENT, ApiCase, Json, effective_gates
from podslice.values.gate_table import gate_dependencies
from podslice.values.gates import GATES, FeatureGates, GateError, dependents_to_disable, later_gates
from podslice.values.quirks import Quirks

SHOWN_GATES = (
    "CustomCPUCFSQuotaPeriod",
    "DRANodeAllocatableResources",
    "DisableCPUQuotaWithExclusiveCPUs",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "MemoryQoS",
    "NodeDeclaredFeatures",
    "PodLevelResourceManagers",
    "PodLevelResources",
    "SidecarContainers",
)
"""The gates whose effective value a recording shows."""

_KNOWN_BESIDES = (
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "CPUManagerPolicyOptions",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "TopologyManagerPolicyOptions",
)


def gates_to_json(overrides: dict[str, bool], quirks: Quirks) -> Json:
    """Return the effective gates, or the error with which the component would not start (with the default gates)."""
    shown: Json = {}
    try:
        gates = effective_gates(overrides, quirks)
    except GateError as error:
        gates = FeatureGates.from_overrides({}, fixes=later_gates(quirks))
        shown["error"] = "; ".join(error.problems)
    shown["effective"] = {name: gates[name] for name in SHOWN_GATES}
    if gates.unknown:
        shown["unknown"] = list(gates.unknown)
    disabled = dependents_to_disable(overrides)
    if disabled:
        shown["autoDisabled"] = list(disabled)
    return shown


def run_gates(case: Json, quirks: Quirks) -> Json:
    """Run a case of type `gates`: the effect of a gate setting, and the known facts of the gates."""
    known = {
        name: {
            "default": GATES[name].default,
            "dependsOn": list(gate_dependencies().get(name, ())),
            "locked": GATES[name].locked,
            "stage": GATES[name].stage,
        }
        for name in (*SHOWN_GATES, *_KNOWN_BESIDES)
    }
    return {
        "name": case["name"],
        "type": case["type"],
        "gates": gates_to_json(case.get("featureGates") or {}, quirks),
        "known": known,
    }


def texts(amounts: ResourceList | None) -> Json | None:
    """Return a resource list with amounts as text; null stays null."""
    return None if amounts is None else {name: str(amount) for name, amount in amounts.items()}


def requirements_to_json(resources: ResourceRequirements) -> Json:
    shown: Json = {"requests": texts(resources.requests), "limits": texts(resources.limits)}
    if resources.claims is not None:
        shown["claims"] = resources.claims
    return shown


def resources_to_json(pod: Pod) -> Json:
    """Return all resources of a pod as recordings show them."""
    spec = pod.spec
    shown: Json = {
        "resources": None if spec.resources is None else requirements_to_json(spec.resources),
        "containers": _containers(spec.containers),
    }
    if spec.init_containers:
        shown["initContainers"] = _containers(spec.init_containers)
    if spec.ephemeral_containers:
        shown["ephemeralContainers"] = _containers(spec.ephemeral_containers)
    if spec.overhead is not None:
        shown["overhead"] = texts(spec.overhead)
    return shown


def _containers(containers: tuple[Container, ...]) -> list[Json]:
    return [_container(one) for one in containers]


def _container(container: Container) -> Json:
    shown: Json = {"name": container.name, **requirements_to_json(container.resources)}
    if container.restart_policy is not None:
        shown["restartPolicy"] = container.restart_policy
    if container.resize_policy:
        shown["resizePolicy"] = list(msgspec.to_builtins(container.resize_policy))
    return shown


def _gates(case: ApiCase) -> Json:
    return gates_to_json(case.json.get("featureGates") or {}, case.quirks)


def _defaulted_to_json(case: ApiCase) -> Json:
    return resources_to_json(case.defaulted_pod)


_UNREADABLE = {"spec.os": {"badValue": "<core.OSName>"}}
"""Values that the recorder shows by their type."""


def errors_to_json(errors: Iterable[FieldError]) -> list[Json]:
    """Return field errors sorted as in the recordings, with values as text. Upstream's own order is random."""
    return [
        {**msgspec.to_builtins(error), "badValue": str(error.bad_value), **_UNREADABLE.get(error.field, {})}
        for error in sorted(errors)
    ]


def _validation_errors(case: ApiCase) -> list[Json]:
    return errors_to_json(validate_create(case.prepared_pod_without_limit_ranges, case.gates))


def _warnings(case: ApiCase) -> list[str] | None:
    return create_warnings(case.prepared_pod_without_limit_ranges) or None


def _created_to_json(case: ApiCase) -> Json:
    mutated = bool(case.json.get("limitRanges"))
    errors = validate_create(case.prepared_pod, case.gates)
    refusals = [text for one in case.limit_ranges for text in limit_range_refusals(case.prepared_pod, one, case.gates)]
    shown: Json = {
        "accepted": not errors and not refusals,
        "statusQOSClass": case.prepared_pod.status.qos_class,
        "computedQOSAfterStorage": compute_qos(case.stored_pod, case.gates),
        **resources_to_json(case.stored_pod),
    }
    if mutated:
        shown["validationErrors"] = errors_to_json(errors)
        shown["limitRangerErrors"] = sorted(refusals)
        shown["annotation"] = (case.mutated_pod.metadata.annotations or {}).get(ANNOTATION, "")
    return shown


def _decode_warnings(case: ApiCase) -> Any:
    return [str(field) for field in find_unknown_fields(case.json["pod"])] or ABSENT


SECTIONS: dict[str, Callable[[ApiCase], Any]] = {
    "gates": _gates,
    "decodeWarnings": _decode_warnings,
    "defaulted": _defaulted_to_json,
    "validationErrors": _validation_errors,
    "warnings": _warnings,
    "created": _created_to_json,
}
