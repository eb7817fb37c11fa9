"""JSON as Go's encoding/json writes and reads it, as far as it shows in state files (cpu-topology 8.3).

Checksums make every byte count, so keys, escapes and spacing must be Go's. Text goes through the standard library's
scanner; only where that refuses it, `gofault` finds Go's message for the fault. No content of a file may crash
podslice.

`unmarshal` decodes a text into typed fields, with Go's tolerance and errors. Keys match without regard to case, and
unknown keys are ignored. A repeated key adds to a map and replaces anything else. null means absent for maps and lists,
and changes nothing for other types. A value of the wrong type is reported once decoding is done (the first one wins)
and leaves a zero value; a fault inside a value with its own format stops decoding. A file format is a tree of the types
below.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from podslice.values.errors import PodsliceError
from podslice.values.go.gofault import fault
from podslice.values.golang import GoSyntaxError, atoi

MOST_VALUES = 500_000
"""Most values read from a state file; those of 10 000 containers are 40 000."""
_quote = json.JSONEncoder(ensure_ascii=False).encode
# Go escapes these five characters so that JSON is safe inside HTML and JavaScript.
_ESCAPED = re.compile("[<>&\u2028\u2029]")
_BROKEN_BYTES = re.compile("[\udc80-\udcff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class CheckpointError(PodsliceError):
    """Raised for a state file that cannot be used; the text is upstream's."""


CORRUPT = "checkpoint is corrupted"


class Number:
    """A JSON number as it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Number({self.text})"


class Members(list[tuple[str, Any]]):
    """A JSON object: its members in order, repeated keys included."""


# Writing


def dump_string(text: str) -> str:
    """Return a JSON string with Go's HTML-safe escapes."""
    quoted = _quote(text)
    if _ESCAPED.search(quoted) is None:
        return quoted
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def dump_map(members: dict[str, str]) -> str:
    """Return a JSON object of already encoded values, keys in byte order."""
    return f"{{{','.join(f'{dump_string(key)}:{members[key]}' for key in sorted(members))}}}"


def dump_value(value: Any) -> str:
    """Return a parsed value (see `parse`) as compact JSON, members in the order they were read."""
    if isinstance(value, Members):
        return f"{{{','.join(f'{dump_string(key)}:{dump_value(member)}' for key, member in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(dump_value, value))}]"
    if isinstance(value, Number):
        return value.text
    return dump_string(value) if isinstance(value, str) else json.dumps(value)


# Reading


def parse(data: bytes) -> Any:
    """Parse a JSON text into `Members`, list, str, `Number`, bool or None.

    As in Go, bytes that are not UTF-8 and lone surrogates become U+FFFD. Raises `CheckpointError` with Go's text.
    """
    # Counted before parsing: a small file of brackets would become Python objects many times its size.
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MOST_VALUES:
        raise CheckpointError(f"the file holds more than {MOST_VALUES} values, more than podslice reads")
    text = _BROKEN_BYTES.sub("\ufffd", data.decode("utf-8", errors="surrogateescape"))
    try:
        value = json.loads(
            text, object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        # Python's parser recurses and gives up before Go's limit on depth.
        raise CheckpointError(fault(data) or "the file is nested too deeply for podslice") from None
    return _replace_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, Members):
        return Members((_replace_surrogates(key), _replace_surrogates(member)) for key, member in value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    return value


# Typed fields

UINT64_MAX = (1 << 64) - 1


class GoString(msgspec.Struct, frozen=True):
    """A string; the result is a str."""

    name: str = "string"


class GoInt(msgspec.Struct, frozen=True):
    """A 64-bit integer; the result is an int."""

    name: str
    signed: bool = False


class GoBytes(msgspec.Struct, frozen=True):
    """A byte slice, base64 in JSON; the result is bytes or None."""

    name: str = "[]uint8"


class GoText(msgspec.Struct, frozen=True):
    """A value with its own text format; `read` raises ValueError, which stops decoding."""

    name: str
    read: Callable[[str], Any]
    zero: Any = None


class GoSlice(msgspec.Struct, frozen=True):
    """A list or None."""

    name: str
    item: GoType


class GoMap(msgspec.Struct, frozen=True):
    """A dict or None; `numeric` maps have integer keys."""

    name: str
    item: GoType
    numeric: bool = False


class GoStruct(msgspec.Struct, frozen=True):
    """A dict by JSON name with a value for every field. Maps that were absent in the file are `{}` for names in
    `empty`, else None. `pointer` structs are None where the file has null."""

    name: str
    fields: Mapping[str, GoType]
    empty: frozenset[str] = frozenset()
    pointer: bool = False


GoType: TypeAlias = GoString | GoInt | GoBytes | GoText | GoSlice | GoMap | GoStruct


def unmarshal(data: bytes, target: GoStruct, into: dict[str, Any] | None = None) -> dict[str, Any]:
    """Decode a file. `into` receives the fields decoded before an error is raised. Raises `CheckpointError`."""
    result = zero(target) if into is None else into
    decoder = _Decoder()
    decoder.decode_struct(parse(data), target, result)
    if decoder.first:
        raise CheckpointError(decoder.first)
    return result


def zero(target: GoStruct) -> dict[str, Any]:
    """Return the value of a file without fields."""
    return {name: {} if name in target.empty else _zero(kind) for name, kind in target.fields.items()}


def _zero(kind: GoType) -> Any:
    if isinstance(kind, GoStruct):
        return None if kind.pointer else zero(kind)
    if isinstance(kind, GoText):
        return kind.zero
    return "" if isinstance(kind, GoString) else 0 if isinstance(kind, GoInt) else None


class _Decoder:
    """A pass over one file. `first` is the first mismatch; `path` and `owner` are the current place, for its
    message."""

    def __init__(self) -> None:
        self.first = ""
        self.path: tuple[str, ...] = ()
        self.owner = ""

    def decode_struct(self, value: Any, kind: GoStruct, into: dict[str, Any]) -> None:
        if value is None:
            return
        if not isinstance(value, Members):
            self.report_mismatch(_kind_of(value), kind.name)
            return
        path, owner = self.path, self.owner
        fold = {_fold(name): name for name in kind.fields}
        for key, member in value:
            name = key if key in kind.fields else fold.get(_fold(key))
            if name is not None:
                self.path, self.owner = (*path, name), kind.name.rpartition(".")[2]
                into[name] = self.decode_value(member, kind.fields[name], into[name])
        self.path, self.owner = path, owner

    def decode_value(self, value: Any, kind: GoType, old: Any) -> Any:
        if isinstance(kind, GoStruct):
            return self.decode_nested(value, kind, old)
        if isinstance(kind, GoMap):
            return self.decode_map(value, kind, old)
        if isinstance(kind, GoSlice):
            return self.decode_slice(value, kind, old)
        if isinstance(kind, GoBytes):
            return self.decode_bytes(value, kind, old)
        if value is None:
            return old
        if isinstance(kind, GoInt):
            return self.decode_integer(value, kind, old)
        if not isinstance(value, str):
            return self.report_mismatch(_kind_of(value), kind.name, old)
        return self.decode_text(value, kind) if isinstance(kind, GoText) else value

    def decode_nested(self, value: Any, kind: GoStruct, old: Any) -> Any:
        if value is None and kind.pointer:
            return None
        into = zero(kind) if old is None else old
        self.decode_struct(value, kind, into)
        return into

    def decode_map(self, value: Any, kind: GoMap, old: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Members):
            return self.report_mismatch(_kind_of(value), kind.name, old)
        into = {} if old is None else old
        for key, member in value:
            item = self.decode_value(member, kind.item, _zero(kind.item))
            if kind.numeric:
                try:
                    into[atoi(key)] = item
                except GoSyntaxError:
                    self.report_mismatch(f"number {key}", "int")
            else:
                into[key] = item
        return into

    def decode_slice(self, value: Any, kind: GoSlice, old: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list) or isinstance(value, Members):
            return self.report_mismatch(_kind_of(value), kind.name, old)
        return [self.decode_value(item, kind.item, _zero(kind.item)) for item in value]

    def decode_bytes(self, value: Any, kind: GoBytes, old: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
            except (binascii.Error, ValueError):
                self.first = self.first or "illegal base64 data"
                return old
        if not isinstance(value, list) or isinstance(value, Members):
            return self.report_mismatch(_kind_of(value), kind.name, old)
        # Go also takes a list of numbers for a byte slice.
        numbers = [self.decode_value(item, GoInt("uint8"), 0) for item in value]
        if any(number > 0xFF for number in numbers):
            return self.report_mismatch("number", "uint8", old)
        return bytes(numbers)

    def decode_integer(self, value: Any, kind: GoInt, old: int) -> int:
        if not isinstance(value, Number):
            self.report_mismatch(_kind_of(value), kind.name)
            return old
        number = _parse_integer(value.text, signed=kind.signed)
        if number is None:
            self.report_mismatch(f"number {value.text}", kind.name)
            return old
        return number

    def decode_text(self, value: str, kind: GoText) -> Any:
        try:
            return kind.read(value)
        except ValueError as error:
            raise CheckpointError(str(error)) from None

    def report_mismatch(self, found: str, wanted: str, old: Any = None) -> Any:
        """Remember the first value of a wrong type, in Go's words, and return the old value, which stays."""
        if not self.first:
            place = f"Go struct field {self.owner}.{'.'.join(self.path)} of" if self.path else "Go value of"
            self.first = f"json: cannot unmarshal {found} into {place} type {wanted}"
        return old


def _parse_integer(text: str, *, signed: bool) -> int | None:
    if len(text) > 20:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    if signed:
        return number if -(1 << 63) <= number < 1 << 63 else None
    return number if not text.startswith("-") and number <= UINT64_MAX else None


def _fold(key: str) -> str:
    """Fold a key's case as Go does: one character for one character."""
    if key.isascii():
        return key.lower()
    return "".join(fold if len(fold := char.casefold()) == 1 else char for char in key)


def _kind_of(value: Any) -> str:
    """Return Go's name for a JSON value's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Number):
        return "number"
    return "object" if isinstance(value, Members) else "array"
