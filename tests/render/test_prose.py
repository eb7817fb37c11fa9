"""Small words of sentences."""

from __future__ import annotations

import pytest

from podslice.values.quantity import plural


@pytest.mark.parametrize(
    ("number", "noun", "text"), [(0, "pod", "0 pods"), (1, "pod", "1 pod"), (2, "more set", "2 more sets")]
)
def test_one_is_singular(number: int, noun: str, text: str) -> None:
    """One is the only number whose noun has no s."""
    assert plural(number, noun) == text
