"""Pods for the tests of what a cluster counts."""

from __future__ import annotations

from typing import Any

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.values.gates import FeatureGates
from podslice.values.quantity import Quantity

ON = FeatureGates.from_overrides({})
OFF = FeatureGates.from_overrides({"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False})


def asks(cpu: str | None = None, memory: str | None = None, **limits: str) -> dict[str, Any]:
    """`resources` with requests; keywords are limits."""
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text is not None}
    shown: dict[str, Any] = {"requests": requests} if requests else {}
    return {**shown, "limits": limits} if limits else shown


def pod(*containers: dict[str, Any], name: str = "p", status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """A pod with containers c0, c1, … of these resources; keywords are further fields of the specification."""
    listed = [{"name": f"c{i}", "resources": resources} for i, resources in enumerate(containers)]
    metadata = {"name": name, "namespace": "default", "uid": name}
    return pod_from_dict({"metadata": metadata, "spec": {"containers": listed, **spec}, "status": status or {}})


def quantities(**texts: str) -> dict[str, Quantity]:
    """A resource list; underscores stand for dashes, double ones for dots."""
    return {name.replace("__", ".").replace("_", "-"): Quantity.parse(text) for name, text in texts.items()}


def texts(amounts: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
