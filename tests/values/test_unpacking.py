"""Compressed bytes are never unpacked beyond a bound."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from podslice.reading.unpacking import unpack
from podslice.values.errors import InputError


def test_what_fits_is_unpacked() -> None:
    """Up to the limit, and no byte beyond it."""
    assert unpack(zlib.compress(b"a" * 100), 100) == b"a" * 100
    with pytest.raises(InputError, match="holds more than 99 bytes"):
        unpack(zlib.compress(b"a" * 100), 99)


@pytest.mark.slow
def test_a_bomb_costs_nothing() -> None:
    """256 MiB in 256 KiB are refused with little memory."""
    bomb = zlib.compress(b"\0" * (256 << 20), 9)
    tracemalloc.start()
    with pytest.raises(InputError):
        unpack(bomb, 1 << 20)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "problem"), [(b"nonsense", "cannot be unpacked"), (zlib.compress(b"a")[:-3], "cut off")]
)
def test_damaged(data: bytes, problem: str) -> None:
    """Data of another kind, or truncated data, is an error."""
    with pytest.raises(InputError, match=problem):
        unpack(data, 100)
