"""Parsed JSON into typed fields, with the tolerance and the complaints of Go's encoding/json.

Keys match without regard to case, and unknown keys are ignored. A repeated key adds to a map and replaces anything
else. null means absent for maps and lists, and nothing for the rest. A value of the wrong type is reported once
decoding is done (the first one wins) and leaves a zero value; a fault inside a value with its own format stops
decoding. A file format is a tree of the types below (cpu-topology 8.3).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from podslice.core.values.golang import GoSyntaxError, atoi
from podslice.statefiles.go.gojson import CheckpointError, Members, Number, parse

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
    """A dict by JSON name with a value for every field; maps that were absent in the file are `{}` where `empty`
    says so, else None. `pointer` structs are None where the file has null."""

    name: str
    fields: Mapping[str, GoType]
    empty: frozenset[str] = frozenset()
    pointer: bool = False


GoType: TypeAlias = GoString | GoInt | GoBytes | GoText | GoSlice | GoMap | GoStruct


def unmarshal(data: bytes, target: GoStruct, into: dict[str, Any] | None = None) -> dict[str, Any]:
    """Decode a file; `into` gets what could be decoded even when an error is raised. Raises `CheckpointError`."""
    result = zero(target) if into is None else into
    decoder = _Decoder()
    decoder.struct(parse(data), target, result)
    if decoder.first:
        raise CheckpointError(decoder.first)
    return result


def zero(target: GoStruct) -> dict[str, Any]:
    """The value of a file that says nothing."""
    return {name: {} if name in target.empty else _zero(kind) for name, kind in target.fields.items()}


def _zero(kind: GoType) -> Any:
    if isinstance(kind, GoStruct):
        return None if kind.pointer else zero(kind)
    if isinstance(kind, GoText):
        return kind.zero
    return "" if isinstance(kind, GoString) else 0 if isinstance(kind, GoInt) else None


class _Decoder:
    """One pass over a file. `first` is the first mismatch, `path` and `owner` say where decoding is."""

    def __init__(self) -> None:
        self.first = ""
        self.path: tuple[str, ...] = ()
        self.owner = ""

    def struct(self, value: Any, kind: GoStruct, into: dict[str, Any]) -> None:
        if value is None:
            return
        if not isinstance(value, Members):
            self.mismatch(_kind_of(value), kind.name)
            return
        path, owner = self.path, self.owner
        folded = {_fold(name): name for name in kind.fields}
        for key, member in value:
            name = key if key in kind.fields else folded.get(_fold(key))
            if name is not None:
                self.path, self.owner = (*path, name), kind.name.rpartition(".")[2]
                into[name] = self.value(member, kind.fields[name], into[name])
        self.path, self.owner = path, owner

    def value(self, value: Any, kind: GoType, old: Any) -> Any:
        if isinstance(kind, GoStruct):
            return self.nested(value, kind, old)
        if isinstance(kind, GoMap):
            return self.mapping(value, kind, old)
        if isinstance(kind, GoSlice):
            return self.items(value, kind, old)
        if isinstance(kind, GoBytes):
            return self.octets(value, kind, old)
        if value is None:
            return old
        if isinstance(kind, GoInt):
            return self.integer(value, kind, old)
        if not isinstance(value, str):
            return self.mismatch(_kind_of(value), kind.name, old)
        return self.text(value, kind) if isinstance(kind, GoText) else value

    def nested(self, value: Any, kind: GoStruct, old: Any) -> Any:
        if value is None and kind.pointer:
            return None
        into = zero(kind) if old is None else old
        self.struct(value, kind, into)
        return into

    def mapping(self, value: Any, kind: GoMap, old: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Members):
            return self.mismatch(_kind_of(value), kind.name, old)
        into = {} if old is None else old
        for key, member in value:
            item = self.value(member, kind.item, _zero(kind.item))
            if kind.numeric:
                try:
                    into[atoi(key)] = item
                except GoSyntaxError:
                    self.mismatch(f"number {key}", "int")
            else:
                into[key] = item
        return into

    def items(self, value: Any, kind: GoSlice, old: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list) or isinstance(value, Members):
            return self.mismatch(_kind_of(value), kind.name, old)
        return [self.value(item, kind.item, _zero(kind.item)) for item in value]

    def octets(self, value: Any, kind: GoBytes, old: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
            except (binascii.Error, ValueError):
                self.first = self.first or "illegal base64 data"
                return old
        if not isinstance(value, list) or isinstance(value, Members):
            return self.mismatch(_kind_of(value), kind.name, old)
        numbers = [self.value(item, GoInt("uint8"), 0) for item in value]
        if any(number > 0xFF for number in numbers):
            return self.mismatch("number", "uint8", old)
        return bytes(numbers)

    def integer(self, value: Any, kind: GoInt, old: int) -> int:
        if not isinstance(value, Number):
            self.mismatch(_kind_of(value), kind.name)
            return old
        number = _integer(value.text, signed=kind.signed)
        if number is None:
            self.mismatch(f"number {value.text}", kind.name)
            return old
        return number

    def text(self, value: str, kind: GoText) -> Any:
        try:
            return kind.read(value)
        except ValueError as error:
            raise CheckpointError(str(error)) from None

    def mismatch(self, found: str, wanted: str, old: Any = None) -> Any:
        """Remember the first value of a wrong type, in Go's words; the old value stays."""
        if not self.first:
            place = f"Go struct field {self.owner}.{'.'.join(self.path)} of" if self.path else "Go value of"
            self.first = f"json: cannot unmarshal {found} into {place} type {wanted}"
        return old


def _integer(text: str, *, signed: bool) -> int | None:
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
    """Go's case folding of keys: one character for one character."""
    if key.isascii():
        return key.lower()
    return "".join(folded if len(folded := char.casefold()) == 1 else char for char in key)


def _kind_of(value: Any) -> str:
    """Go's name for a JSON value's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Number):
        return "number"
    return "object" if isinstance(value, Members) else "array"
