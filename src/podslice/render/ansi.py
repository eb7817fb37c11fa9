"""Output for terminals: our own colours pass, control characters from any input are shown as text.

Names, values and file names come from files that others wrote. A terminal obeys what is in them: escape sequences
clear it, rename its window or hide text, and bidirectional overrides show a line in another order than it has. So our
own sequences carry a number that is not known outside this process, and `echo`, through which everything is printed,
lets only those pass and shows every other control character as `\\x1b`.
"""

from __future__ import annotations

import os
import re
from typing import Any

import click

# A random number in each sequence that we emit: input cannot contain sequences that pass for ours.
_OWN = str(10**6 + int.from_bytes(os.urandom(3), "big"))
_OURS = re.compile(rf"\x1b\[([0-9;]*);{_OWN}m")
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[{_CONTROL}\ud800-\udfff]")
_SHOWN = "podslice.shown-paths"
_UNSAFE_IN_CELL = re.compile(f"[\t\n{_CONTROL}\ud800-\udfff]")


def style(text: str, **how: Any) -> str:
    """Style as `click.style` does, with escape sequences that `echo` recognises as ours."""
    return _own(click.style("", reset=False, **how)) + text + f"\x1b[0;{_OWN}m"


def _own(text: str) -> str:
    return _SGR.sub(lambda found: f"\x1b[{found[1]};{_OWN}m", text)


def visible(text: str) -> str:
    """Return a text with control characters, line ends and tabs written out readably; our colours stay."""
    return _outside_ours(_UNSAFE_IN_CELL, text) if _UNSAFE_IN_CELL.search(text) else text


def to_terminal(text: str) -> str:
    """Return the text in a form safe for a terminal: lines and our colours stay, other control characters are written
    out. Must be applied once only, because our colours lose their mark."""
    return _OURS.sub(lambda found: f"\x1b[{found[1]}m", _outside_ours(_UNSAFE, text)) if _UNSAFE.search(text) else text


def json_text(text: str) -> str:
    """Escape the control characters that JSON itself permits; they can occur only inside its strings."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_safe(text: str) -> bool:
    """Whether a text has no control characters except line ends and tabs."""
    return not _UNSAFE.search(text)


def show_path_as(ctx: click.Context, path: str, name: str) -> None:
    """Write `name` in answers, warnings and errors where a path begins with `path`, a folder that the user did not
    name."""
    ctx.meta.setdefault(_SHOWN, {})[path] = name


def shown_paths(text: str) -> str:
    """Return a text with the paths that `show_path_as` renames."""
    ctx = click.get_current_context(silent=True)
    for path, name in (ctx.meta.get(_SHOWN, {}) if ctx is not None else {}).items():
        text = text.replace(path, name)
    return text


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print; click removes the colours where the output is not a terminal, `show_path_as` renames paths."""
    click.echo(to_terminal(shown_paths(str(text))), err=err, nl=nl)


def _outside_ours(pattern: re.Pattern[str], text: str) -> str:
    parts, last = [], 0
    for found in _OURS.finditer(text):
        parts += [pattern.sub(_escape, text[last : found.start()]), found[0]]
        last = found.end()
    return "".join([*parts, pattern.sub(_escape, text[last:])])


def _escape(found: re.Match[str]) -> str:
    names = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(found[0])
    return names.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
