"""Split a stream of bytes into lines, with a bound on their length."""

from __future__ import annotations

from podslice.values.errors import PodsliceError


class LongLineError(PodsliceError, ValueError):
    """Raised for a line that is longer than its bound."""


class LineCutter:
    """Splits one stream. A line of more than `most` bytes is an error before it is whole."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: list[bytes] = []
        self._size = 0

    @property
    def is_in_line(self) -> bool:
        """Whether the stream ends in the middle of a line so far."""
        return self._size > 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece, without the empty ones. Raises `LongLineError`."""
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
