"""Decompression of untrusted bytes: a few of them can stand for very many, so the output is bounded."""

from __future__ import annotations

import zlib

from podslice.values.errors import InputError


def unpack(data: bytes, limit: int, *, wbits: int = zlib.MAX_WBITS, zdict: bytes = b"") -> bytes:
    """Decompress zlib data to at most `limit` bytes. Raises `InputError` for data that is malformed, cut off, or
    larger."""
    unpacking = zlib.decompressobj(wbits, zdict=zdict) if zdict else zlib.decompressobj(wbits)
    try:
        found = unpacking.decompress(data, limit + 1)
    except zlib.error as error:
        raise InputError(f"cannot be unpacked: {error}") from None
    if len(found) > limit:
        raise InputError(f"holds more than {limit} bytes when it is unpacked")
    if not unpacking.eof:
        raise InputError("is cut off")
    return found
