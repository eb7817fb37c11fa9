"""Documents built from libyaml's events, with limits checked on the way.

PyYAML composes and constructs whole documents before a limit can be checked; a few hundred bytes of brackets,
aliases or merge keys end the process then. Here depth, values and what aliases repeat are counted event by event.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from podslice.reading.scalars import TAG, parse_plain_scalar, parse_tagged_scalar
from podslice.values.errors import PodsliceError

MAX_ALIASED = 100_000
"""Most values that aliases and merge keys may repeat."""
MAX_DEPTH = 100
_MERGE = "<<"
_MERGE_KEY = object()


class _Frame(msgspec.Struct):
    """A collection that is not complete. `before` is the number of values when it began, `key` the key that waits for
    its value, `height` the depth of nesting inside."""

    value: dict[Any, Any] | list[Any]
    anchor: str | None
    before: int
    key: Any = None
    has_key: bool = False
    merged: dict[Any, Any] | None = None
    height: int = 1


class _Anchored(msgspec.Struct):
    """A value that aliases repeat: `size` values, `height` levels."""

    value: Any
    size: int
    height: int


class FaultError(PodsliceError):
    """Raised for a document that cannot be built; the caller adds the position of the event."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(problem)


class Builder:
    """Builds documents from the events of a stream; `root` is the document after its end event. Duplicate keys go to
    `duplicates`; without it they are a fault."""

    def __init__(self, most_nodes: int, duplicates: list[str] | None = None) -> None:
        self.most_nodes = most_nodes
        self.duplicates = duplicates
        self.nodes = 0
        self.aliased = 0
        self.stack: list[_Frame] = []
        self.anchors: dict[str, _Anchored | None] = {}
        self.root: Any = None

    def take(self, event: Any) -> None:
        """Take one event. Raises `FaultError`."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._begin(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._end()
        elif kind is yaml.AliasEvent:
            self._alias(event.anchor)
        elif kind is yaml.DocumentStartEvent:
            self.anchors.clear()  # an anchor ends with its document
            self.root = None

    def _count(self, number: int = 1) -> None:
        self.nodes += number
        if self.nodes > self.most_nodes:
            raise FaultError(f"holds more than {self.most_nodes} values", "split the file")

    def _scalar(self, event: Any) -> None:
        self._count()
        value, tag = event.value, event.tag
        plain = event.implicit[0] and (tag is None or tag == "!")
        if plain:
            if value == _MERGE and self._awaits_key():
                self._put(_MERGE_KEY, 0)
                return
            value = parse_plain_scalar(value)
        elif tag is not None and tag != "!":
            try:
                value = parse_tagged_scalar(tag, value)
            except ValueError as error:
                raise FaultError(str(error)) from None
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(value, 1, 0)
        self._put(value, 0)

    def _begin(self, event: Any, value: dict[Any, Any] | list[Any]) -> None:
        self._count()
        tag = event.tag
        if tag not in (None, "!", f"{TAG}map", f"{TAG}seq", f"{TAG}set"):
            raise FaultError(f"the tag {tag[:60]} means nothing here")
        if len(self.stack) >= MAX_DEPTH:
            raise FaultError(f"is nested deeper than {MAX_DEPTH} levels")
        if event.anchor is not None:
            # Not usable yet: an alias inside its own collection would make a value that contains itself.
            self.anchors[event.anchor] = None
        self.stack.append(_Frame(value, event.anchor, self.nodes - 1))

    def _end(self) -> None:
        frame = self.stack.pop()
        value = frame.value
        if frame.merged is not None:
            assert isinstance(value, dict)
            value = {**frame.merged, **value}
        if frame.anchor is not None:
            self.anchors[frame.anchor] = _Anchored(value, self.nodes - frame.before, frame.height)
        self._put(value, frame.height)

    def _alias(self, name: str) -> None:
        anchored = self.anchors.get(name)
        if anchored is None:
            known = name in self.anchors
            raise FaultError(f"the alias *{name[:40]} {'repeats itself' if known else 'has no anchor'}")
        if len(self.stack) + anchored.height > MAX_DEPTH:
            raise FaultError(f"is nested deeper than {MAX_DEPTH} levels")
        # An alias counts as all that it repeats, because readers walk the value at each place where it occurs.
        self._repeat(anchored.size)
        self._put(anchored.value, anchored.height)

    def _repeat(self, number: int) -> None:
        self._count(number)
        self.aliased += number
        if self.aliased > MAX_ALIASED:
            raise FaultError("expands to too many values", "remove the aliases")

    def _awaits_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and not self.stack[-1].has_key

    def _put(self, value: Any, height: int) -> None:
        """Put a complete value in place: into a list, beside its key, or as the key itself."""
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        if height >= frame.height:
            frame.height = height + 1
        into = frame.value
        if isinstance(into, list):
            into.append(value)
        elif not frame.has_key:
            self._check_key(value, into)
            frame.key, frame.has_key = value, True
        else:
            frame.has_key = False
            if frame.key is _MERGE_KEY:
                self._merge(frame, value)
            else:
                into[frame.key] = value

    def _check_key(self, key: Any, into: dict[Any, Any]) -> None:
        if isinstance(key, dict | list):
            raise FaultError("a key is an object or a list", "quote it if it is meant as text")
        if key not in into:
            return
        if self.duplicates is None:
            raise DuplicateKeyError(str(key))
        self.duplicates.append(str(key))

    def _merge(self, frame: _Frame, value: Any) -> None:
        """Merge `<<: *a` or `<<: [*a, *b]`. Earlier sources take precedence, and the mapping's own keys over all of
        them."""
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise FaultError("<< merges mappings only")
        merged = {} if frame.merged is None else frame.merged
        for source in reversed(sources):
            self._repeat(len(source))
            merged.update(source)
        frame.merged = merged


class DuplicateKeyError(FaultError):
    def __init__(self, key: str) -> None:
        super().__init__(f"duplicate key {key[:60]!r}", "keep one of the two")
