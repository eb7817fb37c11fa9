"""Lives of nodes whose pods are resized keep every promise; `tests.node.resize.campaign` plays more of them."""

from __future__ import annotations

import pytest

from tests.node.resize.campaign import play


@pytest.mark.slow
@pytest.mark.parametrize("first", range(20_000, 21_000, 100))
def test_lives(first: int) -> None:
    """After any history with kills, restarts and refusals all promises of docs/resize.md hold."""
    counts, broken = play(first, 30)
    assert broken == []
    assert min(counts["Allocated"], counts["kills"]) > 0
