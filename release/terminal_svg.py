"""A terminal's output as a moving SVG, which any browser plays without a script; other viewers show the last screen.

Lines appear one after the other and the screen scrolls. Understood: text, `\\r\\n`, colours and weights. What is typed
appears key by key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple

CHAR, LINE, PAD, BAR, SIZE = 7.8, 18, 14, 26, 13
_LAST = 6.0
"""Seconds that the last screen stays before everything begins again."""
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_PAPER, _INK = "#1e2227", "#d8dee9"
_COLOURS = ("#5c6370", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9")


class Event(NamedTuple):
    """A text that a terminal shows from a second on."""

    at: float
    text: str


class Style(NamedTuple):
    """How characters look."""

    colour: str = _INK
    bold: bool = False
    dim: bool = False

    def changed(self, codes: str) -> Style:
        """Return the style after a control sequence with these codes."""
        style = self
        for code in (int(one or 0) for one in codes.split(";")):
            if code == 0:
                style = Style()
            elif code == 1:
                style = style._replace(bold=True)
            elif code == 2:
                style = style._replace(dim=True)
            elif code == 22:
                style = style._replace(bold=False, dim=False)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                style = style._replace(colour=_COLOURS[code % 10])
            elif code == 39:
                style = style._replace(colour=_INK)
        return style


class Piece(NamedTuple):
    """Characters of one look on a line, from a column and a second on."""

    at: float
    column: int
    text: str
    style: Style


def lines_of(events: Iterable[Event], width: int) -> list[list[Piece]]:
    """Return the lines of everything that was shown; a line longer than the terminal goes on below."""
    lines: list[list[Piece]] = [[]]
    style, column = Style(), 0
    for event in events:
        for part in re.split(r"(\x1b\[[0-9;]*m|\r?\n|\r)", event.text):
            if found := _SGR.fullmatch(part):
                style = style.changed(found[1])
            elif part.endswith("\n"):
                lines.append([])
                column = 0
            else:
                for start in range(0, len(part), width):
                    text = part[start : start + width]
                    if column + len(text) > width:
                        lines.append([])
                        column = 0
                    lines[-1].append(Piece(event.at, column, text, style))
                    column += len(text)
    return lines


def to_svg(events: Iterable[Event], width: int, height: int, *, title: str) -> str:
    """Return the picture of a terminal with `width` columns and `height` lines."""
    events = list(events)
    lines = lines_of(events, width)
    while lines and not lines[-1]:
        lines.pop()
    total = events[-1].at + _LAST
    wide, high = round(width * CHAR + 2 * PAD), height * LINE + BAR + 2 * PAD
    content = "\n".join(_line(number, line, total) for number, line in enumerate(lines))
    hidden = max(0, len(lines) - height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'role="img" aria-label="{escape(title)}" font-family="ui-monospace, Menlo, DejaVu Sans Mono, monospace" '
        f'font-size="{SIZE}">\n<title>{escape(title)}</title>\n'
        f'<rect width="{wide}" height="{high}" rx="8" fill="{_PAPER}"/>\n'
        + "".join(
            f'<circle cx="{PAD + 6 + 18 * i}" cy="{PAD}" r="5" fill="{_COLOURS[(1, 3, 2)[i]]}"/>' for i in range(3)
        )
        + f'\n<svg x="0" y="{BAR + PAD // 2}" width="{wide}" height="{height * LINE + 6}">\n'
        f'<g transform="translate(0 {-hidden * LINE})">\n'
        f"{_scrolling(lines, height, total)}{content}\n</g>\n</svg>\n</svg>\n"
    )


def _line(number: int, line: list[Piece], total: float) -> str:
    return "".join(_piece(number, piece, total) for piece in _joined(line))


def _joined(line: list[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces of a line, those that are typed one after the other together."""
    together: list[Piece] = []
    for piece in line:
        if together and (
            piece.style != together[-1].style or piece.column != together[-1].column + len(together[-1].text)
        ):
            yield together
            together = []
        together.append(piece)
    if together:
        yield together


def _piece(number: int, pieces: list[Piece], total: float) -> str:
    first, text = pieces[0], "".join(piece.text for piece in pieces)
    y = number * LINE + SIZE + 2
    look = f' fill="{first.style.colour}"'
    look += ' font-weight="bold"' if first.style.bold else ""
    look += ' opacity="0.65"' if first.style.dim else ""
    # The length pins the columns whatever monospaced font the reader has.
    place = (
        f'x="{PAD + first.column * CHAR:g}" y="{y}" textLength="{len(text) * CHAR:g}" lengthAdjust="spacingAndGlyphs"'
    )
    shown = f"<text {place}{look}>{_appears(first.at, total)}{_spaced(text)}</text>"
    if len(pieces) == 1:
        return shown
    # Typed: a cover of the paper's colour moves to the right, key by key.
    times = [f"{piece.at / total:.4f}" for piece in pieces]
    places = [f"{PAD + (piece.column + len(piece.text)) * CHAR:g}" for piece in pieces]
    end = f"{PAD + (pieces[-1].column + len(pieces[-1].text)) * CHAR:g}"
    animation = (
        f'<animate attributeName="x" calcMode="discrete" dur="{total:g}s" repeatCount="indefinite" '
        f'values="{PAD + first.column * CHAR:g};{";".join(places)}" keyTimes="0;{";".join(times)}"/>'
    )
    width = len(text) * CHAR + CHAR
    cover = f'<rect x="{end}" y="{number * LINE}" width="{width:g}" height="{LINE}" fill="{_PAPER}">{animation}</rect>'
    return f"{shown}{cover}"


def _spaced(text: str) -> str:
    # Viewers join and drop ordinary spaces.
    return escape(text, quote=False).replace(" ", "\u00a0")


def _appears(at: float, total: float) -> str:
    """Return what hides a text until its second."""
    return (
        f'<animate attributeName="visibility" calcMode="discrete" dur="{total:g}s" repeatCount="indefinite" '
        f'values="hidden;visible" keyTimes="0;{at / total:.4f}"/>'
    )


def _scrolling(lines: list[list[Piece]], height: int, total: float) -> str:
    """Return what moves the lines up, so that the newest one is on the screen."""
    moves: dict[float, int] = {0.0: 0}
    for number, line in enumerate(lines):
        if line and number >= height:
            moves[line[0].at] = number - height + 1
    if len(moves) == 1:
        return ""
    return (
        f'<animateTransform attributeName="transform" type="translate" calcMode="discrete" dur="{total:g}s" '
        f'repeatCount="indefinite" values="{";".join(f"0 {-up * LINE}" for up in moves.values())}" '
        f'keyTimes="{";".join(f"{at / total:.4f}" for at in moves)}"/>\n'
    )
