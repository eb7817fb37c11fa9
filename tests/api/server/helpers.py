"""Pods and gates for tests of what the API server does."""

from __future__ import annotations

from typing import Any

from podslice import Pod
from podslice.api.pod.spec import ResourceList, pod_from_dict
from podslice.api.server.create import prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_create
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import PROFILES

UPSTREAM, OURS = "kubelet-1.36", "podslice"


def gates(profile_name: str = UPSTREAM, **overrides: bool) -> FeatureGates:
    """The effective gates of a profile."""
    return FeatureGates.from_overrides(overrides, fixes=later_gates(PROFILES[profile_name]))


def resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    """A `resources` stanza with the sides that are given."""
    sides = {"requests": requests, "limits": limits}
    return {side: amounts for side, amounts in sides.items() if amounts is not None}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    """A pod of containers c0, c1, … and init containers i0, … with these stanzas; `spec` adds fields.

    An init stanza with the key `sidecar` makes a sidecar.
    """
    return pod_from_dict(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {
                "containers": [{"name": f"c{i}", "resources": one} for i, one in enumerate(containers)],
                "initContainers": [
                    {
                        "name": f"i{i}",
                        "resources": {key: one[key] for key in one if key != "sidecar"},
                        **({"restartPolicy": "Always"} if "sidecar" in one else {}),
                    }
                    for i, one in enumerate(init)
                ],
                **spec,
            },
        }
    )


def texts(amounts: ResourceList | None) -> dict[str, str] | None:
    """A resource list as text."""
    return None if amounts is None else {name: str(amount) for name, amount in amounts.items()}


def errors(raw: Pod, profile_name: str = UPSTREAM, **overrides: bool) -> list[str]:
    """Return the errors of a create request, sorted; empty if it is accepted."""
    effective = gates(profile_name, **overrides)
    created = prepare_for_create(default_pod(raw, effective), effective)
    return [str(error) for error in sorted(validate_create(created, effective))]
