"""The examples of docs/development/cluster.md are what the code answers."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "development" / "cluster.md"


def test_examples_of_the_page() -> None:
    """Every example runs and prints what the page shows."""
    outcome = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert outcome.failed == 0
    assert outcome.attempted > 30
