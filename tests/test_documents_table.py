"""docs/development/documents.md names tests, files and pages that exist, and leaves out no example."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "development" / "documents.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith(("| section", "| page"))]


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:tests|src)/[^`]+)`", TEXT))))
@pytest.mark.slow
def test_files_and_tests_exist(name: str) -> None:
    """Every source file, test file and test function of the table is there."""
    file, _, function = name.partition("::")
    assert (ROOT / file).is_file()
    assert not function or function in functions(ROOT / file)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_every_row_is_shown_or_says_why_not(row: str) -> None:
    """A row names a test, or says that nothing is done or to do."""
    _, _, where, shown, _ = row.split("|")
    assert "tests/" in shown or re.search(r"[Nn]ot done|Nothing to do", where)
