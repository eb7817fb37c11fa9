"""The project speaks the field's words: those that were given up do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OLD = {
    "purse": "search budget",
    "crossing": "move in progress",
    "fates": "binding outcomes",
    "books": "ledger",
}
"""Words of an earlier private language, and what to write instead."""


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_old_words_stay_out(old: str, new: str) -> None:
    """No module of the source has the word in a name, a docstring or a comment."""
    word = re.compile(rf"(?<![a-z]){old}(?![a-z])", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: write {new}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if word.search(line)
    ]
    assert found == []
