"""Colours and patterns of owners: seven colours that stay apart for colour-blind eyes (Okabe and Ito), times seven
patterns, so that 49 owners look different; both for light and dark paper. Colours of
CPUs without an owner, such as reserved ones, are in the style sheet of `svg.py`."""

from __future__ import annotations

from typing import NamedTuple

_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#0072b2")
_PATTERNS = (
    "",
    "M0 8L8 0M-2 2L2 -2M6 10L10 6",
    "M0 0L8 8M6 -2L10 2M-2 6L2 10",
    "M0 4H8",
    "M4 0V8",
    "M0 4H8M4 0V8",
    "M2 2h2v2h-2zM6 6h2v2h-2z",
)


class Style(NamedTuple):
    """Style of an owner: `fill` colour, `pattern` (an SVG path on an 8 × 8 tile, empty for none), and `ink` for
    text."""

    fill: str
    pattern: str
    ink: str


def style_of(look: int) -> Style:
    """Return the style for a look (`Holder.look`)."""
    fill = _COLOURS[look % len(_COLOURS)]
    pattern = _PATTERNS[look // len(_COLOURS) % len(_PATTERNS)]
    # The last colour is the only one on which black text is hard to read.
    return Style(fill, pattern, "#ffffff" if fill == _COLOURS[-1] else "#111111")
