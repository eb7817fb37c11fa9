"""Values of a few bytes by keys of a few bytes, hundreds of thousands of them, at little more than those bytes.

An object with its strings and its place in a dictionary takes hundreds. Here some entries in a row are one piece of
bytes, found by the hash of the key. The table grows one piece at a time (linear hashing), so no single call takes long.
"""

from __future__ import annotations

from collections.abc import Iterator

_FULL = 8
"""Entries in a piece, on average."""
_HEAD = 3
LARGEST_KEY, LARGEST_VALUE = (1 << 8) - 1, (1 << 16) - 1


class PackedTable:
    """Whoever walks through it may change it meanwhile: what was there before and still is is met, some of it twice."""

    def __init__(self) -> None:
        self._pieces = [b""]
        self._half = 1
        """The greatest power of two that is no more than there are pieces."""
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
        """The value of a key."""
        piece = self._pieces[self._place(key)]
        found = _find(piece, key)
        return None if found is None else piece[found[0] + _HEAD + len(key) : found[1]]

    def put(self, key: bytes, value: bytes) -> None:
        """The key has this value now. Raises `ValueError` for one that is too long."""
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
        """Take a key away; its value, None where it was not there."""
        place = self._place(key)
        piece = self._pieces[place]
        found = _find(piece, key)
        if found is None:
            return None
        self._pieces[place] = piece[: found[0]] + piece[found[1] :]
        self._count -= 1
        return piece[found[0] + _HEAD + len(key) : found[1]]

    def _place(self, key: bytes) -> int:
        place = hash(key) & (2 * self._half - 1)
        return place if place < len(self._pieces) else place - self._half

    def _split(self) -> None:
        """One more piece; what belongs there was in the piece half as many before it."""
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
    """Where the entry of a key begins and ends."""
    if key not in piece:  # most that are asked for are new, and bytes are looked through in no time
        return None
    at, end, length = 0, len(piece), len(key)
    while at < end:
        after = at + _HEAD + piece[at] + (piece[at + 1] << 8) + piece[at + 2]
        if piece[at] == length and piece.startswith(key, at + _HEAD):
            return at, after
        at = after
    return None


def _entries(piece: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each key with its whole entry."""
    at = 0
    while at < len(piece):
        keys = at + _HEAD
        after = keys + piece[at] + (piece[at + 1] << 8) + piece[at + 2]
        yield piece[keys : keys + piece[at]], piece[at:after]
        at = after
