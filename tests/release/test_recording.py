"""The recording of a terminal, and its picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from release.recording import CAST, HEIGHT, PICTURE, WIDTH, record, to_cast
from release.terminal_svg import Event, lines_of, to_svg

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.process
def test_the_recording_is_what_the_commands_print() -> None:
    """docs/why.cast and docs/why.svg are those that the commands make today, in about a minute."""
    events = list(record())
    assert to_cast(events) == CAST.read_text(encoding="utf-8")
    assert to_svg(events, WIDTH, HEIGHT, title="podslice why") == PICTURE.read_text(encoding="utf-8")
    assert 45 < events[-1].at < 65
    assert "NUMA node 0 is short of 2 CPUs" in "".join(one.text for one in events)


def test_a_cast_is_asciinemas() -> None:
    """A header, then times, kinds and texts, one a line."""
    header, first = map(json.loads, to_cast([Event(1.25, "a\x1b[1mb")]).splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, WIDTH, HEIGHT)
    assert first == [1.25, "o", "a\x1b[1mb"]


def test_lines_of_a_terminal() -> None:
    """Colours belong to the characters after them, and a long line goes on below."""
    lines = lines_of([Event(1, "ab\x1b[1;31mcd"), Event(2, "ef\x1b[0m\r\n\r\ng")], 5)
    assert [[(one.column, one.text, one.style.bold) for one in line] for line in lines] == [
        [(0, "ab", False), (2, "cd", True)],
        [(0, "ef", True)],
        [],
        [(0, "g", False)],
    ]
    assert lines[0][1].style.colour != lines[0][0].style.colour


def test_the_picture_stands_still_on_the_last_screen(tmp_path: Path) -> None:
    """A viewer that plays no animation shows everything; one that does hides each line until its second."""
    events = [Event(number, f"line {number} <&\r\n") for number in range(5)]
    drawn = ElementTree.fromstring(to_svg(events, 20, 3, title="t"))
    texts = list(drawn.iter(f"{_SVG}text"))
    assert ["".join(text.itertext()).replace("\u00a0", " ") for text in texts] == [f"line {n} <&" for n in range(5)]
    assert {one.get("values") for text in texts for one in text.iter(f"{_SVG}animate")} == {"hidden;visible"}
    (moved,) = drawn.iter(f"{_SVG}g")
    (scroll,) = drawn.iter(f"{_SVG}animateTransform")
    assert moved.get("transform", "").replace("translate(", "").rstrip(")") == scroll.get("values", "").split(";")[-1]
