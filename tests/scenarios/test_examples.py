"""No example of the specifications gets lost: every id of examples.txt names a test."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ID = re.compile(r"\b(?:PS|CS|DOC|GATE|ISO|ARTICLE|KEP-\d{4})-[\w-]*\w")


def listed() -> set[str]:
    lines = (HERE / "examples.txt").read_text(encoding="utf-8").splitlines()
    return {word for line in lines if not line.startswith("#") for word in line.split()}


@pytest.fixture(scope="module")
def tested() -> set[str]:
    """The ids in the docstrings and parameter ids of all scenarios."""
    return {found for path in HERE.glob("test_*.py") for text in labels(path.stem) for found in ID.findall(text)}


def labels(module: str) -> Iterator[str]:
    for name, function in vars(importlib.import_module(f"{__package__}.{module}")).items():
        if name.startswith("test_"):
            yield function.__doc__ or ""
            for mark in getattr(function, "pytestmark", []):
                if mark.name == "parametrize":
                    yield from (str(getattr(parameter, "id", "")) for parameter in mark.args[1])


def test_every_example_is_a_test(tested: set[str]) -> None:
    """An id of the list that no scenario carries is an example that nobody checks."""
    assert listed() - tested == set()


def test_every_test_is_in_the_list(tested: set[str]) -> None:
    """An id that only a test carries is missing in the list, or misspelt."""
    assert tested - listed() == set()


def test_the_list_covers_the_specification(shared: Path) -> None:
    """Every id in the tables of the collected examples is in the list."""
    text = (shared / "spec" / "seed-examples.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| ((?:PS|CS|DOC)-\w+) \|", text, re.MULTILINE))
    assert len(rows) > 30
    assert rows <= listed()
