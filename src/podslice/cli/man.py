"""`podslice man`: the manual pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from podslice.cli.output import write_text
from podslice.render.ansi import echo
from podslice.render.manual import manual_page
from podslice.values.errors import InputError
from podslice.version import running_version


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Write all pages there, one file each (podslice-admit.1).")  # fmt: skip
@click.pass_context
def man(context: click.Context, words: tuple[str, ...], out: Path | None) -> None:
    """Print the manual page of COMMAND, or of podslice itself, as roff for man(1); --out writes all pages. Those of the
    plugin are `kubectl podslice` and its commands.

    \b
    Examples:
      podslice man admit | man -l -
      podslice man state repair | man -l -
      podslice man kubectl podslice top | man -l -
      podslice man --out ~/.local/share/man/man1

    Exit codes: 0 printed or written, 2 no such command, or the folder cannot be written.
    """
    from podslice.kubectl.commands.main import NAME, kubectl

    pages = dict((*manual_pages(context.find_root().command, "podslice"), *manual_pages(kubectl, NAME)))
    if out is None:
        name = " ".join(words if words[:1] == ("kubectl",) else ("podslice", *words))
        if name not in pages:
            raise InputError(f"no such command {' '.join(words)!r}", remedy="podslice --help lists them")
        echo(pages[name], nl=False)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", source=str(out)) from None
    for path, text in pages.items():
        write_text(out / f"{path.replace(' ', '-')}.1", text.rstrip("\n"))
    echo(f"podslice: wrote {len(pages)} pages to {out}", err=True)


def manual_pages(root: click.Command, called: str) -> Iterator[tuple[str, str]]:
    """Yield every command, as it is called, with its page."""
    commands = dict(_commands(root, called))
    version = running_version()
    for path, command in commands.items():
        near = [other for other in commands if other != path and _is_related(path, other)]
        yield path, manual_page(command, path, version=version, others=[other.replace(" ", "-") for other in near])


def _is_related(path: str, other: str) -> bool:
    """Whether one command is a sub-command of the other."""
    return other.startswith(f"{path} ") or path.startswith(f"{other} ")


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _commands(found, f"{path} {name}")
