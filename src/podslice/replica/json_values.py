"""Exact JSON for values of the core: decisions on a decoded value are those on the original.

Fields with their default are left out, so an event is a few hundred bytes. A quantity is its text where the text holds
all that decides (pod-level-resources 1.1), else the list of its parts. Integers have any size, because sets of CPUs and
NUMA nodes are integers. Input comes from other machines: it is bounded, and every problem is an `InputError`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from podslice.values.decoding import decoding_problem
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

T = TypeVar("T")
_KINDS = [int, str, int, bool]


def to_json(value: msgspec.Struct) -> bytes:
    """Encode a struct as JSON; equal values give equal bytes."""
    return msgspec.json.encode(to_plain(value))


def to_plain(value: Any) -> Any:
    """Return a value as plain data, without fields that have their default."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        plain: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
        for name, written, default in _fields(type(value)):
            one = getattr(value, name)
            # Equality alone would drop True where the default is 1, and 1.0 where it is 1.
            if one is not default and not (type(one) is type(default) and one == default):
                plain[written] = to_plain(one)
        return plain
    if isinstance(value, dict):
        return {key: to_plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(one) for one in value]
    return _quantity(value) if isinstance(value, Quantity) else value


_PLAIN = frozenset((str, int, bool, float, type(None)))


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return name, name in JSON and default of each field. Cached, because `msgspec.structs.fields` evaluates all
    annotations at each call."""
    return tuple((field.name, field.encode_name, _default(field)) for field in msgspec.structs.fields(kind))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _quantity(value: Quantity) -> str | list[Any]:
    text = str(value)
    return text if _parts(Quantity.parse(text)) == _parts(value) else list(_parts(value))


def _parts(value: Quantity) -> tuple[int, str, int, bool, str | None]:
    return value.nano, value.format, value.scale, value.small, value.text


def from_json(data: bytes, kind: type[T], *, limit: int, what: str) -> T:
    """Decode a struct of this kind from JSON. `what` names it in errors. Raises `InputError` for anything else, and for
    more than `limit` bytes."""
    if len(data) > limit:
        raise InputError(f"{len(data)} bytes are too many", path=what, remedy=f"at most {limit}")
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_read_quantity)
    except msgspec.ValidationError as error:
        found = decoding_problem(str(error))
        raise InputError(found.problem, path=f"{what}.{found.path}".rstrip("."), remedy=found.remedy) from None
    # Deep nesting and huge numbers have errors of their own.
    except (ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"is not JSON of this kind: {str(error)[:200]}", path=what) from None


def _read_quantity(kind: type, value: Any) -> Any:
    if kind is not Quantity:
        raise NotImplementedError
    if isinstance(value, str):
        try:
            return Quantity.parse(value)
        except QuantityError as error:
            raise ValueError(str(error)) from None
    # Exact types, because a bool is an int to `isinstance`.
    if isinstance(value, list) and [type(one) for one in value[:-1]] == _KINDS and isinstance(value[-1], str | None):
        nano, form, scale, small, text = value
        return Quantity(nano, form, scale, text, small=small)
    raise ValueError("is not a quantity")
