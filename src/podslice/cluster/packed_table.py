"""A table of short byte strings by short byte strings, for hundreds of thousands of entries with little overhead.

An object with its strings and its slot in a dictionary takes hundreds of bytes. Here several entries are one piece of
bytes, found by the hash of the key. The table grows by one piece at a time (linear hashing), so no call takes long.
"""

from __future__ import annotations

from collections.abc import Iterator

_FULL = 8
"""Most entries in a piece, on average."""
_HEAD = 3
"""Bytes before a key: its length, and two for the length of the value."""
LARGEST_KEY, LARGEST_VALUE = (1 << 8) - 1, (1 << 16) - 1


class PackedTable:
    """The table. It may change while it is iterated: entries that stay are yielded, some of them twice."""

    def __init__(self) -> None:
        self._pieces = [b""]
        self._half = 1
        """The greatest power of two that is not larger than the number of pieces."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        at = 0
        while at < len(self._pieces):
            yield from [key for key, _ in _entries(self._pieces[at])]
            at += 1

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None for none."""
        piece = self._pieces[self._place(key)]
        found = _find(piece, key)
        return None if found is None else piece[found[0] + _HEAD + len(key) : found[1]]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key. Raises `ValueError` where either is too long."""
        if len(key) > LARGEST_KEY or len(value) > LARGEST_VALUE:
            raise ValueError(f"a key of {len(key)} and a value of {len(value)} bytes are too long")
        entry = bytes((len(key), len(value) >> 8, len(value) & 0xFF)) + key + value
        place = self._place(key)
        piece = self._pieces[place]
        found = _find(piece, key)
        if found is not None:
            self._pieces[place] = piece[: found[0]] + entry + piece[found[1] :]
            return
        self._pieces[place] = piece + entry
        self._count += 1
        if self._count > _FULL * len(self._pieces):
            self._split()

    def pop(self, key: bytes) -> bytes | None:
        """Remove a key and return its value, None for none."""
        place = self._place(key)
        piece = self._pieces[place]
        found = _find(piece, key)
        if found is None:
            return None
        self._pieces[place] = piece[: found[0]] + piece[found[1] :]
        self._count -= 1
        return piece[found[0] + _HEAD + len(key) : found[1]]

    def _place(self, key: bytes) -> int:
        # Python seeds its hash of bytes, so no client can choose keys that collide.
        place = hash(key) & (2 * self._half - 1)
        return place if place < len(self._pieces) else place - self._half

    def _split(self) -> None:
        """Add a piece, and move to it the entries that belong there from the piece `_half` before it."""
        old = len(self._pieces) - self._half
        piece, self._pieces[old] = self._pieces[old], b""
        self._pieces.append(b"")
        sides: dict[int, list[bytes]] = {}
        for key, entry in _entries(piece):
            sides.setdefault(self._place(key), []).append(entry)
        for place, entries in sides.items():
            self._pieces[place] = b"".join(entries)
        if len(self._pieces) == 2 * self._half:
            self._half *= 2


def _find(piece: bytes, key: bytes) -> tuple[int, int] | None:
    """Return begin and end of the entry of a key, None for none."""
    if key not in piece:  # a search in bytes is fast, and most keys are not there
        return None
    at, end, length = 0, len(piece), len(key)
    while at < end:
        after = at + _HEAD + piece[at] + (piece[at + 1] << 8) + piece[at + 2]
        if piece[at] == length and piece.startswith(key, at + _HEAD):
            return at, after
        at = after
    return None


def _entries(piece: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each key with its whole entry."""
    at = 0
    while at < len(piece):
        keys = at + _HEAD
        after = keys + piece[at] + (piece[at + 1] << 8) + piece[at + 2]
        yield piece[keys : keys + piece[at]], piece[at:after]
        at = after
