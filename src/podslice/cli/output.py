"""Output of all commands: the `-o` option, machine-readable forms, warnings and errors."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from podslice.documents.kinds import KINDS
from podslice.render.ansi import echo, is_safe, json_text, shown_paths, style, visible
from podslice.render.legend import legend_lines
from podslice.render.prose import fold
from podslice.values.errors import InputError, UpstreamDefectError

_PIECE = 1 << 20
F = TypeVar("F", bound=Callable[..., Any])


def OUTPUT(*human: str, default: str | None = None, legend: bool = True) -> Callable[[F], F]:  # noqa: N802 - reads as a constant
    """Return the `-o` option: the human forms given here, then json and yaml; for a table, unless it has
    no headings, also `--legend`."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice([*human, "json", "yaml"]),
        default=default or (human[0] if human else "json"),
        show_default=True,
        help="Form of the output.",
    )
    return (lambda command: option(legend_option(command))) if legend and "table" in human else option


def _legend_at_the_end(ctx: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click passes it so
    if asked:
        ctx.call_on_close(partial(_print_legend, ctx))


def _print_legend(ctx: click.Context) -> None:
    lines = [] if is_quiet() else legend_lines(ctx, prose_width() or 100)
    if lines:
        echo("\n" + "\n".join(lines))


legend_option = click.option(
    "--legend",
    is_flag=True,
    expose_value=False,
    callback=_legend_at_the_end,
    help="Explain the columns of the tables below them.",
)


def with_options(command: F, *options: Callable[[F], F]) -> F:
    """Add options to a command; its help lists them in this order."""
    # As with decorators, the option that is applied last comes first in the help.
    for option in reversed(options):
        command = option(command)
    return command


def _silence_output(ctx: click.Context, _: click.Parameter, quiet: bool) -> None:  # noqa: FBT001 - click passes it so
    if quiet:
        nowhere = ctx.with_resource(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - the command closes it
        ctx.with_resource(redirect_stdout(nowhere))
        ctx.meta[_QUIET] = True


def make_printable() -> None:
    """Have standard output and error take every character: on Windows as UTF-8, elsewhere with a question mark for
    what the user's encoding does not have."""
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8" if sys.platform == "win32" else None, errors=errors)


quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_silence_output,
    help="Print errors only; the exit code says the answer.",
)
socket_option = click.option(
    "--socket", default="/run/podslice/agent.sock", show_default=True, help="The agent's socket."
)
only_refused_option = click.option("--only-refused", is_flag=True, help="Show refused pods only.")
_QUIET = "podslice.quiet"
PRIVATE_MODE = 0o600
"""Mode of a file that only its owner reads."""
_ONLY_THE_FILE = (errno.EACCES, errno.EPERM, errno.EBUSY)
"""Errors of the system where a file may be written but not its folder, as in a container."""


def is_quiet() -> bool:
    """Whether the user asked for errors only (`--quiet`)."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(_QUIET))


def use_colours() -> bool:
    """Whether standard output is a terminal that knows colours and whose user wants them (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def prose_width() -> int | None:
    """Return the columns at which sentences are broken on a terminal; None (whole lines) where a program reads."""
    return min(shutil.get_terminal_size().columns, 120) if sys.stdout.isatty() else None


def error_width() -> int | None:
    """Return `prose_width` of standard error, which may be a terminal where standard output is none."""
    if not sys.stderr.isatty():
        return None
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0:
        # shutil.get_terminal_size asks standard output only, which may be a pipe here.
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    return min(columns or 80, 120)


def emit(answer: msgspec.Struct, output: str) -> None:
    """Print a document of the kinds in `podslice.documents` as JSON or YAML."""
    from podslice.values.document import document

    assert type(answer).__name__ in KINDS, "programs read documents of known kinds only"
    print_data(document(answer), output)


class StreamedItems:
    """The `items` of a document that may be long: as JSON each is written to a temporary file as it comes, and copied
    into the document in the end. Use it as a context manager."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="")  # noqa: SIM115 - closed by `__exit__`
        self._empty = True

    def __enter__(self) -> StreamedItems:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, item: msgspec.Struct) -> None:
        """Add one item."""
        text = msgspec.json.format(msgspec.json.encode(item, enc_hook=str), indent=2).decode()
        lines = json_text(text).replace("\n", "\n    ")
        self._file.write(f"{'' if self._empty else ','}\n    {lines}")
        self._empty = False

    def emit(self, answer: msgspec.Struct) -> None:
        """Print a document, which has no items of its own, with these."""
        from podslice.values.document import document

        assert type(answer).__name__ in KINDS, "programs read documents of known kinds only"
        text = json_text(json.dumps(document(answer), indent=2, ensure_ascii=False))
        if self._empty:
            echo(text)
            return
        head, _, tail = text.partition('"items": []')
        echo(f'{head}"items": [', nl=False)
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            echo(piece, nl=False)
        echo(f"\n  ]{tail}")


def print_data(data: Any, output: str) -> None:
    """Print plain data, in a form that others define, as JSON or YAML."""
    if output == "json":
        echo(json_text(json.dumps(data, indent=2, ensure_ascii=False)))
    else:
        from podslice.reading.yaml import dump

        # Characters that a terminal would obey are allowed in YAML; they are written as escapes.
        text = dump(data)
        echo(text if is_safe(text) else dump(data, only_ascii=True), nl=False)


def print_error(problem: object) -> None:
    """Print an error on standard error, in one line for each of its problems, and its notes."""
    text = problem.sentence if isinstance(problem, UpstreamDefectError) else str(problem)
    for line in text.split("\n"):
        echo(f"podslice: error: {visible(line)}", err=True)
    for note in getattr(problem, "__notes__", ()):
        echo(f"podslice: note: {visible(note)}", err=True)


def print_warnings(warnings: tuple[str, ...]) -> None:
    """Print warnings on standard error, folded to the width of the terminal."""
    width = error_width()
    for warning in () if is_quiet() else warnings:
        text = visible(f"warning: {warning}")
        for line in [text] if width is None else fold(text, width, indent=2):
            echo(style(line, fg="yellow"), err=True)


def print_note(text: str) -> None:
    """Say on standard error what was done; not with `--quiet`."""
    if not is_quiet():
        echo(visible(f"podslice: {text}"), err=True)


def check_page_name(out: Path | None) -> None:
    """Raise `InputError` where a page would go to a file whose name says that it is something other than HTML."""
    if out is not None and out.suffix.lower() not in ("", ".html", ".htm"):
        raise InputError("a page is HTML", path="--out", remedy=f"use {out.with_suffix('.html')}")


def write_text(path: Path, text: str) -> None:
    """Write a text, as `write_bytes` does. Raises `InputError`."""
    write_bytes(path, (shown_paths(text) + "\n").encode())


def write_shown(path: Path, content: str | bytes) -> None:
    """Write a drawing or a page and say so, because the command prints nothing of it. Raises `InputError`."""
    if isinstance(content, bytes):
        write_bytes(path, content)
    else:
        write_text(path, content)
    print_note(f"{path} is written")


def write_bytes(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file that the user named; a new one gets `mode` without the bits of the umask. On a full disk an older
    one stays, and no partial one is left. Raises `InputError`."""
    from podslice.host.state.statefile import open_replacement

    try:
        if path.exists() and not path.is_file():  # a terminal, a pipe
            path.write_bytes(data)
            return
        place = path.resolve()  # a link stays a link: its target is replaced
        try:
            with open_replacement(place, mode=mode) as beside:
                beside.write_bytes(data)
                if place.exists():
                    shutil.copymode(place, beside)
        except OSError as error:
            if error.errno not in _ONLY_THE_FILE:
                raise
            # The folder takes no new file, but this one may be written: a mounted file in a container.
            place.write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
