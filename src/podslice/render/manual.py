"""Manual pages (man(7) roff) made from the commands themselves, so that they say what `--help` says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

_EXAMPLES = re.compile(r"\n\s*\b\n?\s*Examples?:\n(?P<lines>.*?)(?=\n\s*\n|\Z)", re.DOTALL)
_EXIT_CODES = re.compile(r"\n\s*Exit codes: (?P<codes>.*?)(?=\n\s*\n|\Z)", re.DOTALL)


def manual_page(command: click.Command, path: str, *, version: str, others: list[str]) -> str:
    """Return the page of the command called as `path` (`podslice state show`); `others` are the pages of SEE ALSO."""
    name = path.replace(" ", "-")
    context = click.Context(command, info_name=path)
    text = command.help or ""
    examples, codes = _EXAMPLES.search(text), _EXIT_CODES.search(text)
    paragraphs = _paragraphs(_EXIT_CODES.sub("", _EXAMPLES.sub("", text)))
    lines = [
        f'.TH "{_escape(name.upper())}" "1" "" "podslice {_escape(version)}" "podslice"',
        *(".SH NAME", _line(f"{name} - {_summary(paragraphs)}")),
        *(".SH SYNOPSIS", f".B {_escape(path)}", _line(" ".join(command.collect_usage_pieces(context)))),
        ".SH DESCRIPTION",
    ]
    for place, paragraph in enumerate(paragraphs):
        lines += [".PP", _line(paragraph)] if place else [_line(paragraph)]
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *_commands(command, context)]
    lines += [".SH OPTIONS", *_options(command, context)]
    if examples is not None:
        lines += [".SH EXAMPLES", ".nf", *(_line(one.strip()) for one in examples["lines"].splitlines()), ".fi"]
    if codes is not None:
        lines += [".SH EXIT STATUS", _line(" ".join(codes["codes"].split()))]
    if others:
        lines += [".SH SEE ALSO", _line(", ".join(f"{other}(1)" for other in others))]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            yield from (".TP", f".B {_escape(name)}", _line(_summary(_paragraphs(command.help or ""))))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and not isinstance(param, click.Argument):
            names, text = record
            yield from (".TP", f".B {_escape(names)}", _line(text))


def _paragraphs(text: str) -> list[str]:
    # click marks paragraphs that it must not wrap with a backspace.
    parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text.replace("\b", "")))
    return [part for part in parts if part]


def _summary(paragraphs: list[str]) -> str:
    """Return the first sentence without its full stop; a colon ends a sentence as well."""
    first = paragraphs[0] if paragraphs else ""
    return re.split(r"(?<!\.)[.:;](?:\s|$)", first)[0]


def _line(text: str) -> str:
    """Return a line that roff takes for text even where it begins with a control character of roff."""
    escaped = _escape(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _escape(text: str) -> str:
    """Escape a text for roff: backslashes and dashes stay literal, characters beyond ASCII go by their number."""
    # An unescaped dash becomes a hyphen, with which an option cannot be copied from the page.
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    plain = plain.replace("|", "|\\:")  # choices of an option may be wider than a line: it may break there
    return "".join(char if ord(char) < 128 else f"\\[u{ord(char):04X}]" for char in plain)
