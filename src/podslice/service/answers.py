"""Answers of an API server or a kubelet: bytes in, objects or a typed error out.

What arrives may not be an answer at all, and everyone who may create objects writes them. So a list is cut into its
items while it is read, and each is decoded on its own and within a bound. Pure: no sockets, no clock;
`service.http.apiconnection` does the reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from podslice.values.decoding import decoding_problem
from podslice.values.errors import PodsliceError

T = TypeVar("T")
UID_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
NAME_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")

LARGEST_ITEM = 12 << 20
"""Bytes of one pod as it is sent. etcd takes 1.5 MiB, which JSON's escapes can make six times as long."""
LARGEST_REST = 64 << 10
"""Bytes of a list beside its items."""
LARGEST_TOKEN = 8 << 10
_DEEPEST = 64
"""Levels of nesting within an object that are kept."""
# Possessive quantifiers: what they have matched is never given back, so hostile bytes take linear time.
_PLAIN = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""Everything up to the next bracket; stops at a quotation mark whose string has not wholly arrived."""
_STRING = re.compile(rb"(?:[^\"\\]++|\\.)*+", re.DOTALL)
_OPENING, _CLOSING = (b"[", b"{"), (b"]", b"}")
_ITEMS = re.compile(rb'"items"\s*:\s*\Z')


class ApiError(PodsliceError):
    """Raised when a server cannot be reached, refuses, or sends what is not an answer."""


class GoneError(PodsliceError):
    """Raised for 410 Gone: the resource version to continue from is too old."""


class ObjectChange(NamedTuple):
    """An event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK with its object; `version` is empty where that has
    none."""

    kind: str
    data: msgspec.Raw
    version: str


class ListEnd(NamedTuple):
    """A list beside its items: their number, its resource version, and the token of the next page, empty on the
    last."""

    items: int
    version: str
    more: str


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Versioned(msgspec.Struct):
    version: str | None = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct):
    metadata: _Versioned | None = None


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class ListMetadata(msgspec.Struct):
    """The metadata of a list."""

    version: str | None = msgspec.field(name="resourceVersion", default="")
    more: str | None = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: ListMetadata | None = None
    items: list[Any] | msgspec.UnsetType | None = msgspec.UNSET


class ItemStream:
    """Cuts the objects out of an answer while its bytes arrive. Never keeps more than one object and a small rest.

    `within`: depth of the objects: 2 for the items of a list, 0 for a watch, which is one object after the other.
    A value that is nested too deeply in an object is replaced by null.
    """

    def __init__(self, within: int) -> None:
        self.rest = bytearray()
        """The answer with a 0 in the place of every object that was cut out, so that it still decodes as JSON."""
        self._within = within
        self._inside = within == 0
        self._item: bytearray | None = None
        self._depth = 0
        self._in_string = False
        self._carry = b""

    def feed(self, chunk: bytes) -> Iterator[bytearray | None]:
        """Yield the objects that end in this chunk, None for one larger than `LARGEST_ITEM`. Raises `ApiError`."""
        data, self._carry = self._carry + chunk, b""
        start = position = 0
        while position < len(data):
            if self._in_string:
                position = _end(_STRING, data, position)
                if data[position : position + 1] == b"\\":
                    # A backslash at the end of a chunk: the character that it escapes is in the next one.
                    data, self._carry = data[:position], data[position:]
                elif position < len(data):
                    position, self._in_string = position + 1, False
                continue
            position = _end(_PLAIN, data, position)
            mark = data[position : position + 1]
            if mark in _OPENING:
                start = self._open(mark, data, start, position)
            elif mark in _CLOSING:
                item = self._item
                start = self._close(data, start, position + 1)
                if item is not None and self._item is None:
                    yield item if len(item) <= LARGEST_ITEM else None
            self._in_string = mark == b'"'
            position += 1
        self._keep(data[start:position])

    def _open(self, mark: bytes, data: bytes, start: int, position: int) -> int:
        """Handle an opening bracket. Return the position from which the data is still to be kept."""
        depth, self._depth = self._depth, self._depth + 1
        if self._item is None and self._inside and depth == self._within:
            self._keep(data[start:position] + b"0")
            self._item = bytearray()
            return position
        if self._item is None and self._within and depth == 1 and mark == b"[":
            self._keep(data[start:position])
            self._inside = _ITEMS.search(self.rest) is not None
            return position
        if depth == self._within + _DEEPEST:
            self._keep(data[start:position] + b"null", depth)
            return position
        return start

    def _close(self, data: bytes, start: int, position: int) -> int:
        """Handle a closing bracket. Return the position from which the data is still to be kept."""
        self._depth -= 1
        if self._depth == self._within + _DEEPEST:
            return position
        if self._item is not None and self._depth == self._within:
            self._keep(data[start:position])
            self._item = None
            return position
        if self._within and self._depth == 1:
            self._inside = False
        return start

    def _keep(self, data: bytes, depth: int | None = None) -> None:
        if (self._depth if depth is None else depth) > self._within + _DEEPEST:
            return
        if self._item is None:
            self.rest += data
            if len(self.rest) > LARGEST_REST:
                raise ApiError(f"the answer has more than {LARGEST_REST} bytes beside its pods")
        elif len(self._item) <= LARGEST_ITEM:
            self._item += data[: LARGEST_ITEM + 1 - len(self._item)]


def _end(form: re.Pattern[bytes], data: bytes, position: int) -> int:
    found = form.match(data, position)
    assert found is not None
    return found.end()


def read_list_end(rest: bytes | bytearray) -> ListEnd:
    """Decode what is left of a list once its items are cut out. Raises `ApiError` if it was not a list."""
    found = decode_answer(rest, _List)
    if found.items is msgspec.UNSET:
        raise ApiError("the answer is not a list: it has no items")
    metadata = found.metadata or ListMetadata()
    if len(metadata.more or "") > LARGEST_TOKEN:
        raise ApiError(f"the token of the next page is longer than {LARGEST_TOKEN} bytes")
    return ListEnd(len(found.items or ()), metadata.version or "", metadata.more or "")


def read_change(event: bytes | bytearray) -> ObjectChange:
    """Decode one event of a watch. Raises `ApiError`, `GoneError`."""
    found = decode_answer(event, _Event)
    if found.type == "ERROR":
        status = decode_answer(found.object, _Status)
        # A server may end a watch with 410 inside an event, after it has answered 200.
        if status.code == 410:
            raise GoneError
        raise ApiError(f"watch: {status.message[:500]}")
    metadata = decode_answer(found.object, _Object).metadata or _Versioned()
    return ObjectChange(found.type, found.object, metadata.version or "")


def decode_answer(data: bytes | bytearray | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON into `kind`. Raises `ApiError`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        path, problem, *_ = decoding_problem(str(error))
        raise ApiError(f"{path}: {problem}" if path else f"the answer is not an object: {problem}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(f"the answer is not JSON: {str(error)[:200]}") from None
