"""Bytes that come in pieces, cut into lines."""

from __future__ import annotations


class LongLineError(ValueError):
    """A line is longer than it may be."""


class LineCutter:
    """Cuts one stream; a line of more than `most` bytes is an error before it is whole."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: list[bytes] = []
        self._size = 0

    @property
    def begun(self) -> bool:
        """A line has begun and not ended."""
        return self._size > 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece, without the empty ones. Raises `LongLineError`."""
        first, *lines = piece.split(b"\n")
        self._begun.append(first)
        self._size += len(first)
        if self._size > self._most:
            raise LongLineError
        if not lines:
            return []
        found = [b"".join(self._begun), *lines]
        last = found.pop()
        self._begun, self._size = [last], len(last)
        return [line for line in found if line.strip()]
