"""Sections about updates and resizes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec

from podslice.api.pod.demand import compute_qos, pod_qos
from podslice.api.pod.spec import Pod
from podslice.api.server.create import as_stored, prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.limitrange_check import limit_range_refusals
from podslice.api.server.resize import prepare_for_resize, validate_resize
from podslice.api.server.resize_admission import node_capacity_error
from podslice.api.server.update import normalize_spec, prepare_for_update, validate_update
from podslice.replay.api.case import ABSENT, ApiCase, Json, decode_pod, effective_gates
from podslice.replay.api.server import errors_to_json, resources_to_json
from podslice.values.quantity import Quantity

replace = msgspec.structs.replace

DEFAULT_ALLOCATABLE = {"cpu": "4", "memory": "16Gi"}


def old_pod(case: ApiCase) -> Pod:
    """Return the stored pod: created under the gates of its time, then with the status of the case."""
    # The stored pod may be older than the gates of the case: what a gate drops at creation can be in the store already.
    overrides = case.json.get("oldFeatureGates")
    gates = case.gates if overrides is None else effective_gates(overrides, case.quirks)
    given = decode_pod(case.json["oldPod"])
    created = prepare_for_create(default_pod(given, gates), gates)
    status = replace(given.status, qos_class=given.status.qos_class or created.status.qos_class)
    return default_pod(as_stored(replace(created, status=status)), case.gates)


def _update(case: ApiCase) -> Any:
    if "oldPod" not in case.json:
        return ABSENT
    old = old_pod(case)
    new = prepare_for_update(case.defaulted_pod, old, case.gates)
    return {"errors": errors_to_json(validate_update(new, old, case.gates)), "generationChanged": _is_changed(new, old)}


def _is_changed(new: Pod, old: Pod) -> bool:
    return normalize_spec(new.spec) != normalize_spec(old.spec)


def _resize(case: ApiCase) -> Any:
    if "oldPod" not in case.json:
        return ABSENT
    old = old_pod(case)
    new = prepare_for_resize(case.mutated_pod, old, case.gates)
    shown: Json = {
        "errors": errors_to_json(validate_resize(new, old, case.gates)),
        "generationChanged": _is_changed(new, old),
        "prepared": resources_to_json(new),
        "oldQOS": pod_qos(old, case.gates),
        "newQOS": compute_qos(new, case.gates),
    }
    if case.limit_ranges:
        refusals = (limit_range_refusals(new, one, case.gates) for one in case.limit_ranges)
        shown["limitRangerErrors"] = sorted(chain.from_iterable(refusals))
    allocatable = case.node.get("allocatable") or DEFAULT_ALLOCATABLE
    refusal = node_capacity_error(new, {name: Quantity.parse(amount) for name, amount in allocatable.items()})
    if refusal:
        shown["allocatableError"] = refusal
    return shown


SECTIONS: dict[str, Callable[[ApiCase], Any]] = {"update": _update, "resize": _resize}
