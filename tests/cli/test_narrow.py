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


WIDE_ROWS = [
    ("default/database", "postgres", "admitted", "Guaranteed", "2-9,194-201", "container", "off"),
    ("", "exporter", "admitted", "Guaranteed", "0-1,16-193,208-383", "host", "on"),
    ("default/web", "nginx", "admitted", "Burstable", "0-1,16-193,208-383", "host", "on"),
]
WIDE_HEADS = ("POD", "CONTAINER", "VERDICT", "QOS", "CPU LIST", "ISOLATION", "CFS QUOTA")


def test_tables_are_spread_so_that_rows_compare() -> None:
    """Too wide for 80 columns: further columns follow in a table that begins with the same names; no word is cut."""
    assert format_table(WIDE_HEADS, WIDE_ROWS, width=80, right=(6,)).splitlines() == [
        "POD               CONTAINER  VERDICT   QOS         CPU LIST            ISOLATION",
        "default/database  postgres   admitted  Guaranteed  2-9,194-201         container",
        "                  exporter   admitted  Guaranteed  0-1,16-193,208-383  host",
        "default/web       nginx      admitted  Burstable   0-1,16-193,208-383  host",
        "",
        "POD               CONTAINER  CFS QUOTA",
        "default/database  postgres         off",
        "                  exporter          on",
        "default/web       nginx             on",
    ]


@pytest.mark.parametrize("width", [60, 70, 80, 100, 200])
def test_nothing_is_lost_or_cut(width: int) -> None:
    """Whatever the width, every cell is there with all its words, and no line is wider."""
    text = format_table(WIDE_HEADS, WIDE_ROWS, width=width)
    assert max(map(len, text.splitlines())) <= width
    for cell in (*WIDE_HEADS, *(cell for row in WIDE_ROWS for cell in row)):
        for word in re.findall(r"[^ ,]+", cell):
            assert word in text


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [
        ("admit", "examples/pods.yaml", *NODE, "-o", "wide"),
        ("whatif", "examples/pods.yaml", *NODE, "-o", "wide"),
        ("inspect", "examples/pod-level.yaml", *NODE, "-o", "wide"),
        ("topology", "--machine", "epyc-9654-nps4", "-o", "wide"),
        ("lint", "--rules"),
    ],
    ids=lambda words: words[0],
)
def test_eighty_columns_keep_words_whole(arguments: tuple[str, ...]) -> None:
    """On a usual terminal no line is longer than it, and every word of the output for a pipe is there whole."""
    text = ESCAPE.sub("", on_terminal(*arguments, columns=80))
    assert max(map(len, text.splitlines())) <= 80
    piped = subprocess.run(
        [sys.executable, "-m", "podslice", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    ).stdout
    words = {word for word in re.findall(r"[\w.-]+", piped) if len(word) <= 24}
    assert {word for word in words if word not in text} == set()


def test_paths_break_after_punctuation() -> None:
    """A word longer than the line is broken after a slash, a dot or a dash where there is one."""
    assert fold("/var/lib/kubelet/cpu_manager_state", 20) == ["/var/lib/kubelet/", "cpu_manager_state"]
