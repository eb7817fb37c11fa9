"""What reaches a terminal: our own colours, and no control character of anybody's input.

Names, values and file names come from files that others wrote. A terminal obeys what is in them: escape sequences
clear it, rename its window or hide text, and bidirectional overrides show a line in another order than it has. So our
own sequences carry a number that nobody outside this process knows, and `echo`, through which everything is printed,
lets only those pass and shows every other control character as `\\x1b`.
"""

from __future__ import annotations

import os
import re
from typing import Any

import click

_OWN = str(10**6 + int.from_bytes(os.urandom(3), "big"))
_OURS = re.compile(rf"\x1b\[([0-9;]*);{_OWN}m")
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[{_CONTROL}\ud800-\udfff]")
_UNSAFE_IN_CELL = re.compile(f"[\t\n{_CONTROL}\ud800-\udfff]")


def style(text: str, **how: Any) -> str:
    """As `click.style`, with sequences that `echo` knows as ours."""
    return _own(click.style("", reset=False, **how)) + text + f"\x1b[0;{_OWN}m"


def _own(text: str) -> str:
    return _SGR.sub(lambda found: f"\x1b[{found[1]};{_OWN}m", text)


def visible(text: str) -> str:
    """A text with its control characters, line ends and tabs included, as one can read them; our colours stay."""
    return _outside_ours(_UNSAFE_IN_CELL, text) if _UNSAFE_IN_CELL.search(text) else text


def to_terminal(text: str) -> str:
    """The text as a terminal may get it: lines, our colours, everything else visible. Not to be done twice."""
    return _OURS.sub(lambda found: f"\x1b[{found[1]}m", _outside_ours(_UNSAFE, text)) if _UNSAFE.search(text) else text


def json_text(text: str) -> str:
    """JSON with the control characters escaped that JSON itself lets pass; they can only stand in its texts."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_safe(text: str) -> bool:
    """True when a text has no control characters but line ends and tabs."""
    return not _UNSAFE.search(text)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print; click removes the colours where the output is not a terminal."""
    click.echo(to_terminal(str(text)), err=err, nl=nl)


def _outside_ours(pattern: re.Pattern[str], text: str) -> str:
    parts, last = [], 0
    for found in _OURS.finditer(text):
        parts += [pattern.sub(_shown, text[last : found.start()]), found[0]]
        last = found.end()
    return "".join([*parts, pattern.sub(_shown, text[last:])])


def _shown(found: re.Match[str]) -> str:
    names = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(found[0])
    return names.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
