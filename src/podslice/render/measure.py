"""Widths of texts in a drawing, so that they stay inside their boxes whatever font a viewer has.

They are those of a wide sans-serif font (DejaVu Sans): Arial, Helvetica and most others are narrower.
"""

from __future__ import annotations

from functools import cache

_WIDTHS = {
    "fijlrtI|!.,:;'()[]/ -": 0.42,
    'abcdeghknopqsuvxyzJ"*': 0.63,
    "0123456789": 0.637,
    "ABCDEFGHKLNPRSTUVXYZ=+<>×≥·…_": 0.77,
    "mwMOQW%@&": 0.99,
}
_BY_CHARACTER = {char: width for chars, width in _WIDTHS.items() for char in chars}
_OTHER = 1.0
_BOLD = 1.1


@cache
def text_width(text: str, size: float = 11, *, bold: bool = False) -> float:
    """Return an upper estimate of the width in pixels of a text in a font of `size` pixels."""
    ems = sum(_BY_CHARACTER.get(char, _OTHER) for char in text)
    return ems * size * (_BOLD if bold else 1)


def cut_text(text: str, width: float, size: float = 11, *, bold: bool = False) -> str:
    """Return the text, cut to `width` pixels with a mark where it was cut."""
    if text_width(text, size, bold=bold) <= width:
        return text
    while text and text_width(f"{text}…", size, bold=bold) > width:
        text = text[:-1]
    return f"{text.rstrip(', ')}…"


def break_text(text: str, width: float, size: float = 11, *, bold: bool = False) -> list[str]:
    """Break a text into lines of at most `width` pixels, between words; a longer word is cut."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and text_width(longer, size, bold=bold) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [cut_text(one, width, size, bold=bold) for one in [*lines, line] if one]
