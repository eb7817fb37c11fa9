"""`--legend`: every column of every table has a line that explains it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from podslice.fleet.report.measures import BY_NAME
from podslice.render.legend_texts import COMMON, EACH, OF_COMMAND
from tests.shell import podslice as run
from tests.source_files import modules_with

NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")
PODS = "examples/pods.yaml"
TABLES = {"print_table", "format_table", "Table", "Column", "table"}
NAMES = {"headings", "header", "more"}


@cache
def headings_in_sources() -> frozenset[tuple[str, str]]:
    """The headings that sources give to tables, with their file."""
    return frozenset(_headings())


def _headings() -> Iterator[tuple[str, str]]:
    for file, tree in modules_with(*(f"{one}(" for one in TABLES), *NAMES):
        # Columns of traces are fields of files, which no table of a command has.
        for node in ast.walk(tree) if file != "fleet/traces/columns.py" else ():
            parts: list[ast.expr] = []
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in TABLES:
                parts = node.args if node.func.id in ("Table", "Column") else node.args[:1]  # type: ignore[attr-defined]
            elif isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                parts = [node.value] if any(getattr(one, "id", "") in NAMES for one in targets) else []
            elif isinstance(node, ast.FunctionDef) and node.name.endswith("headings"):
                parts = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
            for text in (text for part in parts for text in _texts(part)):
                if text == text.upper() and any(map(str.isalnum, text)) and not text.isdigit():
                    yield file, text


def _texts(part: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression, without pieces of others."""
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        yield part.value
    elif not isinstance(part, ast.JoinedStr):
        for child in ast.iter_child_nodes(part):
            yield from _texts(child)


def test_every_column_is_explained() -> None:
    """No table has a heading without a meaning, and no meaning is long."""
    known = {*COMMON, *(heading for own in OF_COMMAND.values() for heading in own)}
    found = headings_in_sources()
    assert len(found) > 150
    assert {one for one in found if one[1] not in known} == set()
    for text in (*COMMON.values(), *(text for own in OF_COMMAND.values() for text in own.values())):
        assert len(text) <= 110, text
        assert not text.endswith("."), text


def test_no_meaning_is_left_over() -> None:
    """A meaning of a column that no table has any more goes too."""
    found = {heading for _, heading in headings_in_sources()} | {one.heading for one in BY_NAME.values()}
    for own in (COMMON, *OF_COMMAND.values()):
        assert set(own) - found <= {EACH, ""}


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ("whatif", PODS, *NODE, "-o", "wide"),
            [
                "  STRANDED               free CPUs that no further pod like these can get",
                "  epyc-9654-nps4         the pod or resize in this scenario",
            ],
        ),
        (("admit", PODS, *NODE), ["  CPU LIST   its CPUs as Linux writes them: 2-4,8"]),
        (("topology", "--list"), ["  NAME         name for --machine"]),
        (("lint", "--rules"), ["  NEEDS     what the rule must be given beside the pods"]),
        (("schema",), ["  PRINTED BY  command that prints it with -o json"]),
    ],
)
def test_the_legend_is_below_the_tables(words: tuple[str, ...], lines: list[str]) -> None:
    """It comes last, once, and only where it is asked for; the answer and the exit code are the same."""
    plain, asked = run(*words), run(*words, "--legend")
    assert "Legend:" not in plain.stdout
    assert asked.returncode == plain.returncode
    assert asked.stdout.startswith(plain.stdout + "\nLegend:\n")
    legend = [" ".join(line.split()) for line in asked.stdout.splitlines()]
    for line in lines:
        assert " ".join(line.split()) in legend


def test_resources_have_their_meaning_in_explain() -> None:
    """In the table of candidates a column is a resource: its cells are needed/free."""
    text = run("explain", PODS, *NODE, "--only-refused", "--no-fixes", "--legend").stdout
    assert "\n  CPU      needed/free of this resource on the NUMA nodes of the row;" in text


def test_data_has_no_legend() -> None:
    """-o json prints the document and nothing else."""
    words = ("admit", PODS, *NODE, "-o", "json")
    assert run(*words, "--legend").stdout == run(*words).stdout
