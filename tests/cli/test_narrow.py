"""Small and simple terminals: nothing is wider than the terminal, nothing is coloured that should not be."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from podslice.render.ansi import style
from podslice.render.prose import fold, wrap_lines
from podslice.render.table import format_table

ROOT = Path(__file__).parents[2]
NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*arguments: str, columns: int = 40, errors: bool = False, **environment: str) -> str:
    """Return the output of the command on a terminal: standard output, or with `errors` standard error; the other
    one goes elsewhere."""
    master, slave = pty.openpty()
    variables = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **environment}
    variables.pop("NO_COLOR", None) if "NO_COLOR" not in environment else None
    command = [sys.executable, "-m", "podslice", *arguments]
    out, err = (subprocess.DEVNULL, slave) if errors else (slave, subprocess.DEVNULL)
    with subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT, env=variables):
        os.close(slave)
        parts = []
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # Linux tells the end of a terminal so
                break
            if not part:
                break
            parts.append(part)
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("admit", "examples/pods.yaml", *NODE, "-o", "wide"),
        ("explain", "examples/pods.yaml", *NODE, "--no-fixes"),
        ("inspect", "examples/pods.yaml"),
        ("inspect", "examples/pod-level.yaml", *NODE),
        ("topology", "--machine", "epyc-9654-nps4", "-o", "wide"),
        ("topology", "--list"),
        ("whatif", "examples/pods.yaml", *NODE),
        ("draw", "--pods", "examples/pods.yaml", *NODE),
        ("lint", "--rules"),
        ("defrag", *NODE),
        ("schema",),
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.process
def test_nothing_is_wider_than_the_terminal(arguments: tuple[str, ...]) -> None:
    """At 40 columns tables fold or become paragraphs, maps and lists break; no line is longer."""
    lines = ESCAPE.sub("", on_terminal(*arguments)).splitlines()
    assert len(lines) > 1
    assert [line for line in lines if len(line) > 40] == []


@pytest.mark.process
def test_warnings_break_at_the_width_of_standard_error() -> None:
    """A long warning is several lines of at most 40 columns, the words of which are all there."""
    lines = ESCAPE.sub("", on_terminal("admit", "examples/pods.yaml", *NODE, errors=True)).splitlines()
    whole = " ".join(line.strip() for line in lines)
    assert "warning: examples/pods.yaml: Deployment" in whole
    assert "--replicas counts all" in whole
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40


@pytest.mark.slow
@pytest.mark.process
def test_simple_terminals_get_no_escapes() -> None:
    """TERM=dumb and NO_COLOR print plain text; other terminals get colours."""
    command = ("admit", "examples/small.yaml", "--machine", "raspberry-pi-5")
    assert "\x1b" in on_terminal(*command)
    assert "\x1b" not in on_terminal(*command, TERM="dumb")
    assert "\x1b" not in on_terminal(*command, NO_COLOR="1")


ROWS = [("default/database", "postgres", "2-9,194-201,210-217,300-307"), ("", "exporter", "-")]


def test_tables_fold_their_widest_columns() -> None:
    """A little too wide: the widest column is folded at commas, the others stay."""
    text = format_table(("POD", "CONTAINER", "CPU LIST"), ROWS, width=50)
    assert text.splitlines() == [
        "POD               CONTAINER  CPU LIST",
        "default/database  postgres   2-9,194-201,210-217,",
        "                             300-307",
        "                  exporter   -",
    ]


def test_tables_become_paragraphs() -> None:
    """Much too wide: a paragraph for each row, without what is empty."""
    text = format_table(("POD", "CONTAINER", "CPU LIST"), ROWS, width=30)
    assert text.splitlines() == [
        "POD        default/database",
        "  CONTAINER  postgres",
        "  CPU LIST   2-9,194-201,",
        "             210-217,300-307",
        "CONTAINER  exporter",
    ]


def test_colours_do_not_count() -> None:
    """A styled cell is measured and folded without its colour, and every line of it is coloured."""
    red = style("a, b, c, d, e, f, g, h", fg="red")
    lines = format_table(("X", "LETTERS"), [("1", red)], width=17).splitlines()[1:]
    assert [click.unstyle(line) for line in lines] == ["1  a, b, c, d, e,", "   f, g, h"]
    assert all(line.count("\x1b[31;") == line.count("\x1b[0;") == 1 for line in lines)
    assert wrap_lines(click.style("four words in red", fg="red"), 17) == click.style("four words in red", fg="red")


def test_long_words_are_broken_only_where_they_must() -> None:
    """Text breaks after spaces and commas; a word longer than the line is cut."""
    assert fold("one,two three", 8) == ["one,two", "three"]
    assert fold("abcdefghij kl", 4, indent=2) == ["abcd", "  ef", "  gh", "  ij", "  kl"]
