"""Pods and nodes for the tests of what a pod means for the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.node.effects.settings import CgroupSettings
from podslice.node.effects.tree import NO_PINS, Pin, PodEffects, pod_effects
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import KUBELET_1_36, Quirks

GI = 1 << 30
MI = 1 << 20
Amounts = Mapping[str, Any]


def gates(quirks: Quirks = KUBELET_1_36, **overrides: bool) -> FeatureGates:
    return FeatureGates.from_overrides(overrides, fixes=later_gates(quirks))


def amounts(text: str) -> dict[str, str]:
    """`1/2Gi` is 1 CPU and 2Gi of memory; `-` in place of one leaves it out."""
    return {name: part for name, part in zip(("cpu", "memory"), text.split("/"), strict=True) if part != "-"}


def requirements(requests: str = "", limits: str = "") -> dict[str, Any]:
    """A `resources` object of such texts; an empty one leaves the map out."""
    pairs = (("requests", requests), ("limits", limits))
    return {field: amounts(text) for field, text in pairs if text}


def pod(
    *containers: Amounts,
    resources: Amounts | None = None,
    init: Mapping[str, Amounts] | None = None,
    quirks: Quirks = KUBELET_1_36,
    status: Amounts | None = None,
    **spec: Any,
) -> Pod:
    """A defaulted pod of app containers c0, c1 … with these `resources`; names of `init` ending in `+` are sidecars."""
    spec["containers"] = [{"name": f"c{number}", "resources": one} for number, one in enumerate(containers)]
    spec["initContainers"] = [
        {"name": name.rstrip("+"), "resources": one, **({"restartPolicy": "Always"} if name.endswith("+") else {})}
        for name, one in (init or {}).items()
    ]
    if resources is not None:
        spec["resources"] = resources
    data = {"metadata": {"name": "p", "uid": "0-1"}, "spec": spec, "status": status or {}}
    return default_pod(pod_from_dict(data), gates(quirks))


def node(**changes: Any) -> CgroupSettings:
    """8Gi of memory, 7Gi of it allocatable, no swap."""
    return CgroupSettings(
        **{"memory_capacity": 8 * GI, "memory_allocatable": 7 * GI, "swap_controller": False, **changes}
    )


def effects(
    one: Pod,
    settings: CgroupSettings | None = None,
    quirks: Quirks = KUBELET_1_36,
    pins: Mapping[str, Pin] = NO_PINS,
    **overrides: bool,
) -> PodEffects:
    return pod_effects(one, gates(quirks, **overrides), settings or node(), quirks, pins)
