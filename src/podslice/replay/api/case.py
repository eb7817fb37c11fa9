"""One API-level case: its gates, its pod at the stage the sections look at, and the node's facts (FORMAT.md)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.create import as_stored, prepare_for_create
from podslice.api.server.decode import decode_error
from podslice.api.server.defaults import default_pod
from podslice.api.server.limitrange import LimitRange, apply_defaults, limit_range_from_dict
from podslice.values.gates import FeatureGates, dependents_to_disable, later_gates
from podslice.values.quirks import Quirks

Json = dict[str, Any]

ABSENT = object()
"""Returned by a section that does not apply to a case."""


class ApiCase:
    """A case of type `pod`, decoded as far as its sections need it."""

    def __init__(self, case: Json, quirks: Quirks) -> None:
        self.json = case
        self.quirks = quirks
        self.node: Json = case.get("node") or {}

    @cached_property
    def gates(self) -> FeatureGates:
        """The effective gates. Raises `GateError` where the component would not start."""
        return effective_gates(self.json.get("featureGates") or {}, self.quirks)

    @cached_property
    def decode_error(self) -> str:
        """The error with which the API server fails to decode the pod; empty when it can."""
        return decode_error(self.json["pod"])

    @cached_property
    def raw(self) -> Pod:
        """The pod as decoded, without defaults. Raises `InputError`."""
        return decode_pod(self.json["pod"])

    @cached_property
    def defaulted_pod(self) -> Pod:
        """The pod as the API server decodes it."""
        return default_pod(self.raw, self.gates)

    @cached_property
    def limit_ranges(self) -> tuple[LimitRange, ...]:
        """The LimitRange objects in their order, with their own defaults."""
        return tuple(map(limit_range_from_dict, self.json.get("limitRanges") or ()))

    @cached_property
    def mutated_pod(self) -> Pod:
        """The defaulted pod after the LimitRanger plugin."""
        return apply_defaults(self.defaulted_pod, self.limit_ranges, self.gates)

    @cached_property
    def prepared_pod(self) -> Pod:
        """The pod that is validated and stored."""
        return prepare_for_create(self.mutated_pod, self.gates)

    @cached_property
    def prepared_pod_without_limit_ranges(self) -> Pod:
        """The pod that would be validated without any LimitRange."""
        return prepare_for_create(self.defaulted_pod, self.gates)

    @cached_property
    def stored_pod(self) -> Pod:
        """The pod as read back from storage."""
        return default_pod(as_stored(self.prepared_pod), self.gates)

    @cached_property
    def pod(self) -> Pod:
        """The pod that the sections after `created` use, at the case's stage."""
        stage = self.json.get("stage") or "defaulted"
        if stage == "raw":
            return self.raw
        return self.stored_pod if stage == "admitted" else self.defaulted_pod


def decode_pod(data: Json) -> Pod:
    """Decode a pod of a case, with a name, namespace and UID where it has none. Raises `InputError`."""
    metadata = {"name": "pod", "namespace": "default", **(data.get("metadata") or {})}
    metadata.setdefault("uid", f"uid-{metadata['name']}")
    return pod_from_dict({**data, "metadata": metadata})


def effective_gates(overrides: dict[str, bool], quirks: Quirks) -> FeatureGates:
    """Return the gates of a case. A gate that depends on one that the case turns off is off too, unless it is named.

    Raises `GateError` where the component would not start.
    """
    disabled = dict.fromkeys(dependents_to_disable(overrides), False)
    return FeatureGates.from_overrides({**overrides, **disabled}, fixes=later_gates(quirks))
