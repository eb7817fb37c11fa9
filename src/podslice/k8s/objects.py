"""Objects of podslice's own API group, as files have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.core.config.policy import API_VERSION
from podslice.core.errors import InputError


def check_object(data: Mapping[str, Any], kind: str, *, below: str, remedy: str) -> None:
    """Raises `InputError` for an object of another kind or version, and for one with something beside its metadata and
    the field `below` which all the rest is."""
    for field, expected in (("kind", kind), ("apiVersion", API_VERSION)):
        if data.get(field) != expected:
            raise InputError(f"{data.get(field)!r} is not {expected}", path=field, remedy=f"{field}: {expected}")
    unknown = sorted(str(name) for name in data.keys() - {"apiVersion", "kind", "metadata", below})
    if unknown:
        raise InputError("unknown field", path=unknown[0], remedy=remedy)
