"""The file that a kubelet loads, and what a running kubelet answers at `configz`."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from podslice.config.carriers.layer import API_VERSION, KIND
from podslice.values.errors import InputError


def is_json(text: str) -> bool:
    """Whether a kubelet reads the text as JSON: it begins with a brace."""
    return text.lstrip()[:1] == "{"


def check_json(text: str) -> None:
    """Raise `InputError` for text that a kubelet reads as JSON and only a YAML reader accepts: with a trailing comma,
    or with anything behind the object."""
    if not is_json(text):
        return
    try:
        # Only the syntax matters here: numbers stay text, so that one of a million digits costs nothing.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = f"is not valid JSON: {error.msg} in line {error.lineno} column {error.colno}"
        raise InputError(problem, remedy="a kubelet reads a file that begins with { as JSON") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"is not valid JSON: {name} is not a number")


def unwrap_configz(document: dict[str, Any]) -> dict[str, Any]:
    """Return the object in the answer of a kubelet's `configz`, which omits kind and version; any other document
    unchanged."""
    served = document.get("kubeletconfig") if len(document) == 1 else None
    return {"kind": KIND, "apiVersion": API_VERSION, **served} if isinstance(served, dict) else document
