"""Decoding of a KubeletConfiguration as a kubelet does it: by the Go type of every field, before any value is checked.

Text where a number belongs keeps a kubelet from starting, also in a field that the resource managers never read. The
errors are those of Go's JSON decoder (memory-device 3.11).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from podslice.config.schema import ROOT, GoType, fields_of, go_type
from podslice.values.duration import DurationError, parse_duration
from podslice.values.errors import PodsliceError
from podslice.values.quantity import Quantity, QuantityError

_EMBEDDED = {"v1.TextOptions": "OutputRoutingOptions.", "v1.JSONOptions": "OutputRoutingOptions."}
"""Go structs that embed another one: Go's errors name the embedded struct before its fields."""
_BOUNDS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1), "uint32": (0, (1 << 32) - 1)}
_ZEROS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "float64": 0.0,
    "quantity": "0",
    "flush": "0s",
    **dict.fromkeys(_BOUNDS, 0),
}
_IGNORED = ("kind", "apiVersion", "metadata")


class FieldProblem(NamedTuple):
    """A value that cannot be decoded: its `path`, Go's message, and what to write instead where that is known."""

    path: str
    message: str
    remedy: str = ""


class Decoded(NamedTuple):
    """The result of decoding: `fields` without null; `problems` in the order in which Go meets them, of which a kubelet
    reports the first; `unknown`, the paths of fields that do not exist."""

    fields: dict[str, Any]
    problems: list[FieldProblem]
    unknown: list[str]


class _FieldPlace(NamedTuple):
    """Place of a value: the Go `struct` and the dotted Go `field` for Go's messages, and `path` for people."""

    struct: str
    field: str
    path: str

    def member(self, owner: str, name: str) -> _FieldPlace:
        dot, steps = ("." if self.path else ""), ("." if self.field else "")
        field = f"{self.field}{steps}{_EMBEDDED.get(owner, '')}{name}"
        return _FieldPlace(owner.rpartition(".")[2], field, f"{self.path}{dot}{name}")

    def element(self, key: object) -> _FieldPlace:
        return self._replace(path=f"{self.path}[{key}]")


def decode(document: Mapping[Any, Any], *, ordered: bool = False) -> Decoded:
    """Decode the fields of a configuration as a kubelet does.

    `ordered`: the document was JSON, whose fields Go meets in the order written; those of YAML it meets by name.
    """
    decoder = _FieldDecoder(ordered=ordered)
    fields = decoder.decode_struct(
        {key: value for key, value in document.items() if key not in _IGNORED}, go_type(ROOT), _TOP
    )
    return Decoded(fields, decoder.problems, decoder.unknown)


_TOP = _FieldPlace("KubeletConfiguration", "", "")


class _FieldDecoder:
    def __init__(self, *, ordered: bool) -> None:
        self.problems: list[FieldProblem] = []
        self.unknown: list[str] = []
        self._ordered = ordered

    def decode_struct(self, value: Mapping[Any, Any], kind: GoType, place: _FieldPlace) -> dict[str, Any]:
        known = fields_of(kind.name)
        found = {}
        for name, member in self._iter_members(value):
            if name not in known:
                self.unknown.append(place.member(kind.name, name).path)
                continue
            decoded = self.decode_value(member, known[name], place.member(kind.name, name))
            if decoded is not None:
                found[name] = decoded
        return found

    def _iter_members(self, value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
        """Yield a map's members in the order in which Go meets them."""
        members = [(_key_text(key), member) for key, member in value.items()]
        # A kubelet converts YAML to JSON through a Go map, which it writes sorted by the bytes of the keys.
        return iter(members if self._ordered else sorted(members, key=lambda pair: pair[0].encode()))

    def decode_value(self, value: Any, kind: GoType, place: _FieldPlace) -> Any:
        """Return the decoded value; None for null, and for a value that is reported as a problem."""
        reader = _READERS.get(kind.kind)
        if reader is not None:
            return self._apply_reader(reader, value, kind, place)
        if value is None:
            return None
        if kind.kind == "struct" and isinstance(value, dict):
            return self.decode_struct(value, kind, place)
        if kind.element and kind.kind == "map" and isinstance(value, dict):
            return {
                key: self._decode_element(one, kind.element, place.element(key))
                for key, one in self._iter_members(value)
            }
        if kind.element and kind.kind == "list" and isinstance(value, list | tuple):
            return [self._decode_element(one, kind.element, place.element(at)) for at, one in enumerate(value)]
        self._report_wrong_kind(value, kind, place)
        return None

    def _decode_element(self, value: Any, kind: GoType, place: _FieldPlace) -> Any:
        """Decode an element of a list or map; null becomes the zero value of its type."""
        decoded = self.decode_value(value, kind, place)
        if decoded is not None:
            return decoded
        # Go leaves null out of a struct, but keeps its place in a list and its key in a map, with the type's zero
        # value.
        return {"list": [], "map": {}, "struct": {}}.get(kind.kind, _ZEROS.get(kind.kind))

    def _apply_reader(self, reader: _Reader, value: Any, kind: GoType, place: _FieldPlace) -> Any:
        if value is None and kind.nullable:
            return None
        text = _number_text(value, ordered=self._ordered) if _is_number(value) else _json_text(value)
        try:
            return reader(value, text)
        except _WrongKindError as error:
            self._report_wrong_kind(value, kind._replace(name=error.wanted or kind.name), place, number=error.number)
        except _WrongTextError as error:
            self.problems.append(FieldProblem(place.path, str(error), error.remedy))
        return None

    def _report_wrong_kind(self, value: Any, kind: GoType, place: _FieldPlace, *, number: bool = False) -> None:
        found = f"number {_number_text(value, ordered=self._ordered)}" if number else _json_kind(value)
        where = f"Go struct field {place.struct}.{place.field}"
        message = f"json: cannot unmarshal {found} into {where} of type {kind.name}"
        self.problems.append(FieldProblem(place.path, message, _suggest_remedy(value, kind)))


_Reader = Callable[[Any, str], Any]
"""A function of a value and its JSON text that returns the decoded field."""


class _WrongKindError(PodsliceError):
    """Raised for a value of another kind than the field's; `number`: it is a number that does not fit. `wanted` is the
    Go type named by Go's message where it is not the field's own."""

    def __init__(self, wanted: str = "", *, number: bool = False) -> None:
        self.wanted, self.number = wanted, number
        super().__init__(wanted)


class _WrongTextError(PodsliceError):
    """Raised for text that a type's own parser refuses; the message is that parser's."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(message)


def _read_text(value: Any, text: str) -> str | None:
    del text
    if value is not None and not isinstance(value, str):
        raise _WrongKindError
    return value


def _read_bool(value: Any, text: str) -> bool | None:
    del text
    if value is not None and not isinstance(value, bool):
        raise _WrongKindError
    return value


def _read_float(value: Any, text: str) -> float | None:
    del text
    if value is None:
        return None
    if not _is_number(value):
        raise _WrongKindError
    if math.isinf(float(value)):
        raise _WrongKindError(number=True)
    return float(value)


def _make_integer_reader(low: int, high: int) -> _Reader:
    def read(value: Any, text: str) -> int | None:
        if value is None:
            return None
        if not _is_number(value):
            raise _WrongKindError
        # 1.0 and 1e3 are not integers to Go, although they are whole.
        if not _INTEGER.match(text) or len(text) > _LONGEST_INTEGER or not low <= int(text) <= high:
            raise _WrongKindError(number=True)
        return int(text)

    return read


_INTEGER = re.compile(r"-?[0-9]+\Z")
_LONGEST_INTEGER = 20


def _read_duration(value: Any, text: str) -> str:
    """Decode a duration. A null reaches Go's parser as empty text, which is not a duration."""
    del text
    if value is not None and not isinstance(value, str):
        raise _WrongKindError("string")
    try:
        parse_duration(value or "")
    except DurationError as error:
        raise _WrongTextError(str(error), "write a number with its unit, such as 10s or 1m30s") from None
    return value or ""


def _read_flush(value: Any, text: str) -> str | int | None:
    """Decode a duration, or a number of nanoseconds."""
    if isinstance(value, str):
        return _read_duration(value, text)
    if value is None:
        return None
    if not _is_number(value):
        found = _json_kind(value)
    elif not _INTEGER.match(text) or len(text) > _LONGEST_INTEGER or not -(1 << 63) <= int(text) < 1 << 63:
        found = f"number {text}"
    else:
        return int(text)
    message = f'invalid duration "{text}": json: cannot unmarshal {found} into Go value of type time.Duration'
    raise _WrongTextError(message, "write a number with its unit, such as 5s")


def _read_quantity(value: Any, text: str) -> str | None:
    """Decode a quantity. Numbers are read by their digits, and null is 0. Other values are read by their JSON text,
    which is not a quantity."""
    if value is None:
        return None
    if isinstance(value, str):
        # Go trims Unicode white space around a quantity's text.
        text = value.strip(" \t\n\v\f\r\x85\xa0")
    try:
        Quantity.parse(text)
    except QuantityError as error:
        raise _WrongTextError(str(error), "write a quantity, such as 500m or 2Gi") from None
    return text


def _read_time(value: Any, text: str) -> str | None:
    del text
    if value is None:
        return None
    if not isinstance(value, str):
        raise _WrongKindError("string")
    rest, layout = value, "2006-01-02T15:04:05Z07:00"
    for pattern, element in _TIME:
        part = pattern.match(rest)
        if part is None:
            message = f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as "{element}"'
            raise _WrongTextError(message, "write a time such as 2026-01-31T12:00:00Z")
        rest = rest[part.end() :]
    problem = "extra text: " + _json_text(rest) if rest else _range_problem(value)
    if problem:
        raise _WrongTextError(f'parsing time "{value}": {problem}', "write a time such as 2026-01-31T12:00:00Z")
    return value


_TIME = tuple(
    (re.compile(pattern), element)
    for pattern, element in (
        ("[0-9]{4}", "2006"), ("-", "-"), ("[0-9]{2}", "01"), ("-", "-"), ("[0-9]{2}", "02"), ("T", "T"),
        ("[0-9]{2}", "15"), (":", ":"), ("[0-9]{2}", "04"), (":", ":"), (r"[0-9]{2}(?:[.,][0-9]+)?", "05"),
        (r"Z|[+-][0-9]{2}:[0-9]{2}", "Z07:00"),
    )
)  # fmt: skip


def _range_problem(text: str) -> str:
    year, month, day, hour, minute, second = (int(text[at : at + size]) for at, size in _PARTS)
    if not 1 <= month <= 12:
        return "month out of range"
    for name, value, most in (("hour", hour, 23), ("minute", minute, 59), ("second", second, 59)):
        if value > most:
            return f"{name} out of range"
    # Year 0 and its days are valid in Go, so Python's calendar does not do.
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 29 if month == 2 and leap else _DAYS[month - 1]
    return "" if 1 <= day <= longest else "day out of range"


_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PARTS = ((0, 4), (5, 2), (8, 2), (11, 2), (14, 2), (17, 2))
_READERS: dict[str, _Reader] = {
    "string": _read_text,
    "bool": _read_bool,
    "float64": _read_float,
    "duration": _read_duration,
    "flush": _read_flush,
    "quantity": _read_quantity,
    "time": _read_time,
    **{name: _make_integer_reader(low, high) for name, (low, high) in _BOUNDS.items()},
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json_kind(value: Any) -> str:
    # In Python a bool is an int too, so it is tested first.
    if isinstance(value, bool):
        return "bool"
    kinds = ((str, "string"), (int | float, "number"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "array")


def _json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _number_text(value: Any, *, ordered: bool) -> str:
    """Return a number as Go's decoder meets it: JSON as it is written, YAML after its conversion to JSON."""
    if isinstance(value, float) and ordered:
        return str(value)
    if isinstance(value, int) and (ordered or -(1 << 63) <= value < 1 << 64):
        return str(value)
    return _format_go_number(float(value))


def _format_go_number(value: float) -> str:
    """Return a number as Go writes it into JSON."""
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits = repr(value)
    mantissa, _, exponent = digits.partition("e")
    # The bounds at which Go's encoding/json switches to an exponent.
    if 1e-6 <= abs(value) < 1e21:
        return f"{value:.0f}" if value == int(value) else _expand_exponent(digits)
    if not exponent:
        return digits
    number = int(exponent)
    return f"{mantissa.removesuffix('.0')}e{'+' if number >= 0 else '-'}{abs(number):02d}".replace("e-0", "e-")


def _expand_exponent(digits: str) -> str:
    mantissa, marker, exponent = digits.partition("e")
    if not marker:
        return digits
    whole, _, fraction = mantissa.partition(".")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{whole}{fraction if fraction != '0' else ''}"


def _suggest_remedy(value: Any, kind: GoType) -> str:
    if _is_text(kind) and not isinstance(value, dict | list):
        if kind.kind in ("duration", "flush"):
            return f'write "{_plain(value)}s"' if _is_number(value) else "write a number with its unit, such as 10s"
        return f'put it in quotes: "{_plain(value)}"'
    if isinstance(value, str) and kind.kind in _BOUNDS and _INTEGER.match(value):
        return f"write it without quotes: {value}"
    if kind.kind == "bool":
        return "write true or false, without quotes"
    if kind.kind in _BOUNDS:
        low, high = _BOUNDS[kind.kind]
        return f"write a whole number from {low} to {high}"
    words = {"list": "write a list", "map": "write an object", "struct": "write an object", "float64": "write a number"}
    if kind.kind == "list" and not isinstance(value, dict):
        return f"write a list: [{_plain(value)}]"
    return words.get(kind.kind, "write text")


def _is_text(kind: GoType) -> bool:
    return kind.kind in ("string", "duration", "flush", "time")


def _plain(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)[:60]


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else _plain(key)
