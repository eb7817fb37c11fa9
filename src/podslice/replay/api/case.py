"""One API-level case: its gates, its pod at the stage the sections look at, and the node's facts (FORMAT.md)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from podslice.core.pod.defaults import default_pod
from podslice.core.pod.spec import Pod, pod_from_dict
from podslice.core.quirks import Quirks
from podslice.core.values.gates import GATES, FeatureGates

Json = dict[str, Any]


class ApiCase:
    """A case of type `pod`, decoded as far as its sections need it."""

    def __init__(self, case: Json, quirks: Quirks) -> None:
        self.json = case
        self.quirks = quirks
        self.node: Json = case.get("node") or {}

    @cached_property
    def gates(self) -> FeatureGates:
        """The effective gates. Raises `GateError` where the component would not start."""
        return FeatureGates.from_overrides(
            with_dependencies(self.json.get("featureGates") or {}), fixes=self.quirks.fix_gates
        )

    @cached_property
    def raw(self) -> Pod:
        """The pod as decoded, without defaults. Raises `InputError`."""
        data = self.json["pod"]
        metadata = {"name": "pod", "namespace": "default", **(data.get("metadata") or {})}
        metadata.setdefault("uid", f"uid-{metadata['name']}")
        return pod_from_dict({**data, "metadata": metadata})

    @cached_property
    def pod(self) -> Pod:
        """The pod the sections after `created` look at."""
        stage = self.json.get("stage") or "defaulted"
        if stage == "raw":
            return self.raw
        if stage == "admitted":
            raise NotImplementedError("stage admitted")
        return default_pod(self.raw, self.gates)


def with_dependencies(overrides: dict[str, bool]) -> dict[str, bool]:
    """The named gates, and off also what needs a gate that they turn off."""
    effective = dict(overrides)
    for name, gate in GATES.items():
        if name not in overrides and any(overrides.get(needed) is False for needed in gate.depends_on):
            effective[name] = False
    return effective
