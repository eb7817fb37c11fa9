"""Groups of commands that know the nearest name for a mistyped one."""

from __future__ import annotations

from difflib import get_close_matches

import click

from podslice.cli.completion import completing_files


class CommandGroup(click.Group):
    """A click group with suggestions."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return None if found is None else completing_files(found)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command the user names. Raises `UsageError` with the nearest name for an unknown one."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
            raise click.UsageError(f"no such command {name!r} ({hint})", ctx)
        return super().resolve_command(ctx, args)
