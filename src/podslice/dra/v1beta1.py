"""Conversion of `resource.k8s.io/v1beta1` to v1 (KEP-4381).

The two hold the same data. In v1beta1 the fields of a device are below `basic`, and a request for devices of one class
has its fields beside its name, which v1 has below `exactly`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_EXACTLY = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")
"""Fields of a request that v1 has below `exactly`."""


def convert_v1beta1(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object as v1. What is not of the expected shape stays as it is, for the reader to refuse."""
    kind, spec = data.get("kind"), data.get("spec")
    found = {**data, "apiVersion": "resource.k8s.io/v1"}
    if not isinstance(spec, dict):
        return found
    if kind == "ResourceSlice":
        found["spec"] = _convert_each(spec, "devices", _convert_device)
    elif kind == "ResourceClaim":
        found["spec"] = _convert_claim(spec)
    elif kind == "ResourceClaimTemplate" and isinstance(spec.get("spec"), dict):
        found["spec"] = {**spec, "spec": _convert_claim(spec["spec"])}
    return found


def _convert_claim(spec: dict[str, Any]) -> dict[str, Any]:
    devices = spec.get("devices")
    if not isinstance(devices, dict):
        return spec
    return {**spec, "devices": _convert_each(devices, "requests", _convert_request)}


def _convert_each(
    owner: dict[str, Any], field: str, convert: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    listed = owner.get(field)
    if not isinstance(listed, list):
        return owner
    return {**owner, field: [convert(one) if isinstance(one, dict) else one for one in listed]}


def _convert_device(device: dict[str, Any]) -> dict[str, Any]:
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return device
    return {**{name: value for name, value in device.items() if name != "basic"}, **basic}


def _convert_request(request: dict[str, Any]) -> dict[str, Any]:
    inside = {name: request[name] for name in _EXACTLY if name in request}
    if not inside or "exactly" in request:
        return request
    return {**{name: value for name, value in request.items() if name not in inside}, "exactly": inside}
