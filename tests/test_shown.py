"""docs/development/{elastic,cluster,policies,dra}-tests.md: what they say has a test that is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("elastic-tests", "cluster-tests", "policies-tests", "dra-tests")
ROWS = {
    "Worked examples of resizes": 14,
    "Properties of resizes": 12,
    "Examples and properties of machines that change": 11,
    "Properties of plugins": 8,
    "Properties of classes": 8,
    "Properties of scored best-effort": 7,
    "Properties of mixed containers": 6,
    "Properties of guards": 6,
    "Properties of the reservation advisor": 6,
    "The life of a claim": 23,
    "Complaints of dra-driver-cpu's users": 10,
}
"""Tables whose rows are counted: examples, properties and sentences by number."""
_SCENARIO = re.compile(r"\bX-K[0-9]+\b")
_TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)(?:\[(?P<case>[^\]`]+)\])?`")


class Row(NamedTuple):
    """A line of a table: what holds, and what is named to show it."""

    section: str
    says: str
    shown_by: str

    @property
    def lost(self) -> list[str]:
        """Return the errors in its references, one text each."""
        found = list(_TEST.finditer(self.shown_by))
        scenarios = _SCENARIO.findall(self.shown_by)
        rest = _SCENARIO.sub("", _TEST.sub("", self.shown_by)).replace(",", "").strip()
        problems = [] if found or scenarios else [f"{self.says}: no test"]
        problems += [one for one in scenarios if one not in known_scenarios()]
        problems += [f"{self.says}: {rest} is not a test"] if rest else []
        return problems + [one[0] for one in found if not is_there(one["file"], one["name"], one["case"])]


def rows(text: str) -> list[Row]:
    found, section = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 2 and cells[1] != "shown by":
            found.append(Row(section, *cells))
    return found


@cache
def known_scenarios() -> frozenset[str]:
    """The scenarios of the guest, as they are written down."""
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "e2e").glob("cluster*.py"))
    return frozenset(re.findall(r'in_cluster\(\s*"(X-K[0-9]+)"', written))


@cache
def known_tests(file: str) -> dict[str, set[str]]:
    """The tests of a file, and the texts that name their cases."""
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
    return {
        node.name: {
            one.value for mark in node.decorator_list for one in ast.walk(mark) if isinstance(one, ast.Constant)
        }
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def is_there(file: str, name: str, case: str | None) -> bool:
    cases = known_tests(file).get(name)
    return cases is not None and (case is None or case in cases)


def test_a_row_without_its_test_is_noticed() -> None:
    """No test, another word, a file, a test or a case that is not there: each is found."""
    here = "`tests/test_shown.py::test_every_row_has_its_tests`"
    assert Row("", "a", here).lost == []
    assert Row("", "a", "").lost == ["a: no test"]
    assert Row("", "a", "X-K90").lost == []
    assert Row("", "a", "X-K0").lost == ["X-K0"]
    assert Row("", "a", f"{here}, somewhere").lost == ["a: somewhere is not a test"]
    for wrong in ("tests/test_none.py::test_a", "tests/test_shown.py::test_a", f"{here.strip('`')}[case]"):
        assert Row("", "a", f"`{wrong}`").lost == [f"`{wrong}`"]


@pytest.mark.slow
def test_every_row_has_its_tests() -> None:
    """Every row names tests that are there, says something else than the others of its table, and none of the numbered
    examples and properties is missing."""
    all_rows = [
        row
        for page in PAGES
        for row in rows((ROOT / "docs" / "development" / f"{page}.md").read_text(encoding="utf-8"))
    ]
    assert [problem for row in all_rows for problem in row.lost] == []
    said = [(row.section, row.says) for row in all_rows]
    assert len(said) == len(set(said))
    counted = {name: sum(row.section == name for row in all_rows) for name in ROWS}
    assert counted == ROWS
