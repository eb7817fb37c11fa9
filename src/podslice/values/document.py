"""Documents of podslice as plain data: `apiVersion`, `kind`, and what their type holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from podslice.values.errors import InputError

API_VERSION = "podslice.io/v1alpha1"


def document(value: msgspec.Struct) -> dict[str, Any]:
    """Return a document as plain data. Its kind is the name of its type; CPU sets and quantities become text."""
    # `str` is the text of everything that msgspec does not know: CPU sets, quantities.
    data: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str, str_keys=True)
    return with_header(type(value).__name__, data)


def with_header(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of this kind with these fields."""
    return {"apiVersion": API_VERSION, "kind": kind, **data}


def without_header(kind: str, data: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the fields of a document, whose header may be absent. Raises `InputError` for another kind or version."""
    for field, wanted in (("kind", kind), ("apiVersion", API_VERSION)):
        if data.get(field, wanted) != wanted:
            raise InputError(f"{str(data[field])[:80]!r} is not {wanted}", path=field, remedy=f"write {wanted}")
    return {name: value for name, value in data.items() if name not in ("apiVersion", "kind")}
