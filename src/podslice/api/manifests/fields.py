"""Fields of plain data that may hold anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from podslice.values.errors import InputError

_MEMORY = re.compile(r"(\d{1,15})\s*([bkmgtp]?)b?\Z", re.IGNORECASE)
_KIBIBYTES = {"": 1024, "k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30, "p": 1 << 40}


def part_of(data: Any, *steps: str) -> dict[str, Any]:
    """Return the object at the end of steps, empty where something else or nothing is there."""
    for step in steps:
        data = data.get(step) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def objects_of(data: Any, name: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects in a list with their indexes; empty where there is none."""
    found = data.get(name) if isinstance(data, dict) else None
    return [(index, one) for index, one in enumerate(found if isinstance(found, list) else ()) if isinstance(one, dict)]


def text_of(data: Mapping[str, Any], name: str) -> str:
    """Return a text, "" where something else or nothing is there."""
    found = data.get(name)
    return found if isinstance(found, str) else ""


def number_of(data: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of these fields that is a number of something, 0 or more."""
    for name in names:
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def jvm_mebibytes(text: Any, path: str) -> int:
    """Return an amount of memory as the JVM writes it in MiB, which is the unit of one without a unit. Raises
    `InputError`."""
    match = _MEMORY.match(str(text).strip())
    if match is None:
        raise InputError(
            f"{text!r} is not an amount of memory as the JVM writes it", path=path, remedy="write 512m or 4g"
        )
    unit = match[2].lower()
    return int(match[1]) >> 20 if unit == "b" else int(match[1]) * _KIBIBYTES[unit] >> 10


_PLACEHOLDER = re.compile(r"\$\{[^{}]{1,200}\}|\{\{[^{}]{1,200}\}\}")
_UNFIT = re.compile(r"[^a-z0-9]+")


def fill_placeholders(metadata: Any) -> Any:
    """Return metadata in which a placeholder (`${NAME}`, `{{.Name}}`) is its own name. Who fills it in makes it a
    name that the API server takes."""
    if isinstance(metadata, str):
        return _PLACEHOLDER.sub(lambda match: _UNFIT.sub("-", match[0].lower()).strip("-") or "x", metadata)
    if isinstance(metadata, dict):
        return {key: fill_placeholders(value) for key, value in metadata.items()}
    return [fill_placeholders(value) for value in metadata] if isinstance(metadata, list) else metadata
