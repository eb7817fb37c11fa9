"""Strict conversion of plain data to typed values: an unknown field is an error that names the nearest known one."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from podslice.values.decoding import decoding_problem
from podslice.values.duration import DurationError, parse_duration
from podslice.values.errors import InputError, did_you_mean
from podslice.values.fields import known_fields
from podslice.values.quantity import Quantity, QuantityError
from podslice.values.releases.table import parse_release

T = TypeVar("T")
Number = str | int | float
"""An amount or a time as people write it: 2, 0.5, 500m, 16Gi, 6h."""
_LONGEST = 1 << 53
"""The longest time in milliseconds: larger numbers are not exact as floating-point ones."""


def convert(data: Any, kind: type[T], *, source: str) -> T:
    """Return data as a value of this type. Raises `InputError` with the path of the field."""
    try:
        return msgspec.convert(to_plain(data), kind)
    except InputError as error:
        raise error.at(source=source) from None
    except msgspec.ValidationError as error:
        found = decoding_problem(str(error))
        remedy = found.remedy
        if found.unknown:
            names = known_fields(kind, found.path)
            remedy = did_you_mean(found.unknown, names, f"one of {', '.join(names)}" if names else "") or remedy
        raise InputError(found.problem, source=source, path=found.path, remedy=remedy) from None


def to_plain(data: Any) -> Any:
    """Return data of plain types only; YAML's numbers, which remember how they were written, become ordinary ones.
    Raises `InputError` for a key that YAML does not read as text."""
    if isinstance(data, dict):
        for key in data:
            # YAML 1.1 reads the keys `on`, `off`, `yes` and `no` as truth values.
            if isinstance(key, bool):
                raise InputError(f"a key is read as {str(key).lower()}", remedy="put on, off, yes and no in quotes")
        return {str(key): to_plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [to_plain(value) for value in data]
    if isinstance(data, float):
        return float(data)
    return data


def release_name(value: str | float, path: str) -> str:
    """Return the name of a release such as 1.34, empty for an empty one. Raises `InputError` for one that is not
    known."""
    try:
        return str(parse_release(str(value))) if value else ""
    except InputError as error:
        raise error.at(path=path) from None


def milliseconds(value: Number, path: str) -> int:
    """Parse a time: a number of seconds, or text with units (`6h`, `1m30s`). Raises `InputError`."""
    try:
        found = round(float(value) * 1000) if _is_number(value) else parse_duration(str(value)) // 10**6
    except (DurationError, OverflowError, ValueError):
        raise InputError(f"{value!r} is not a time", path=path, remedy="write 30s, 5m, 6h, or seconds") from None
    if found < 0:
        raise InputError(f"{value!r} is negative", path=path)
    if found > _LONGEST:
        raise InputError(f"{value!r} is longer than anything runs", path=path)
    return found


def _is_number(value: Number) -> bool:
    return not isinstance(value, str) or re.fullmatch(r"[0-9.]+", value) is not None


def quantity(value: Number, path: str) -> Quantity:
    """Parse a quantity of Kubernetes that is not negative. Raises `InputError`."""
    try:
        found = Quantity.parse(str(value))
    except QuantityError:
        raise InputError(f"{value!r} is not a quantity", path=path, remedy="write 2, 500m, 16Gi") from None
    if found.sign() < 0:
        raise InputError(f"{value!r} is negative", path=path)
    return found
