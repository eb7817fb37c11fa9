"""The API server's error for a pod whose resources it cannot read, or reads only in part.

It decodes fields in the order of the document and stops at the first text that is not a quantity. It skips values of a
wrong kind, and reports the first of them where it can read all quantities. Only the fields about resources are checked
here. `unknown_fields` checks the names of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from podslice.values.quantity import Quantity, QuantityError

_QUANTITIES = "ResourceList"
_REQUIREMENTS = "ResourceRequirements"
_FIELDS: dict[str, dict[str, str]] = {
    "Pod": {"spec": "PodSpec"},
    "PodSpec": {
        "containers": "[]Container",
        "initContainers": "[]Container",
        "ephemeralContainers": "[]EphemeralContainer",
        "resources": _REQUIREMENTS,
        "overhead": _QUANTITIES,
    },
    "Container": {"resources": _REQUIREMENTS},
    "EphemeralContainer": {"resources": _REQUIREMENTS},
    _REQUIREMENTS: {"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": "[]ResourceClaim"},
    "ResourceClaim": {},
}


def decode_error(pod: Any) -> str:
    """Return the error with which the API server refuses to decode a v1 Pod given as plain data, empty if none."""
    first = ""
    for error in _decode_errors(pod, "Pod", "", ""):
        if error.stops:
            return error.text
        first = first or error.text
    return first


class _Error(NamedTuple):
    """A decoding error; `stops`: nothing behind it is decoded."""

    text: str
    stops: bool = False


def _decode_errors(value: Any, kind: str, path: str, owner: str) -> Iterator[_Error]:
    if value is None:
        return
    expected = list if kind.startswith("[]") else dict
    if not isinstance(value, expected):
        shown = kind.replace("[]", "[]v1.") if expected is list else f"v1.{kind}"
        where = f"Go struct field {owner}.{path}" if owner else "Go value"
        yield _Error(f"json: cannot unmarshal {_json_kind(value)} into {where} of type {shown}")
    elif isinstance(value, list):
        for one in value:
            yield from _decode_errors(one, kind[2:], path, owner)
    elif kind == _QUANTITIES:
        yield from (_Error(text, stops=True) for text in map(_quantity_error, value.values()) if text)
    else:
        for name, field in value.items():
            if name in _FIELDS[kind]:
                yield from _decode_errors(field, _FIELDS[kind][name], _join(path, name), kind)


def _quantity_error(value: Any) -> str:
    if value is None:
        return ""
    try:
        Quantity.parse(value.strip(" ") if isinstance(value, str) else str(value))
    except QuantityError as error:
        return str(error)
    return ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _json_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
