"""Groups of commands that suggest the nearest name for a mistyped one, and import a command when it is called."""

from __future__ import annotations

import copy
import functools
import importlib
import operator
import platform
import sys
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any, NamedTuple

import click

from podslice.cli.completion import complete_files
from podslice.interrupts import uninterruptible_import
from podslice.render.ansi import shown_paths
from podslice.values.errors import InputError, InputErrors, did_you_mean


class CommandGroup(click.Group):
    """A click group with suggestions."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return None if found is None else complete_files(found)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the user names. Raises `UsageError` with the nearest name for an unknown one."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            hint = did_you_mean(name, known, f"one of {', '.join(known)}")
            raise click.UsageError(f"no such command {name!r} ({hint})", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its errors name files as the user does."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise _with_shown_paths(error) from None


def _with_shown_paths(error: InputError) -> InputError:
    errors = [
        InputError(
            shown_paths(one.problem),
            source=shown_paths(one.source),
            document=one.document,
            path=one.path,
            remedy=shown_paths(one.remedy),
        )
        for one in error.errors
    ]
    # Where nothing changes the original is raised, which has its own class and notes.
    same = all(map(operator.eq, map(str, errors), map(str, error.errors)))
    return error if same else InputErrors(errors) if len(errors) > 1 else errors[0]


class LazyCommand(NamedTuple):
    """A command imported when it is called: its module, which has it under the command's name, one line of help, and
    the heading under which the help lists it; `linux` where it does nothing elsewhere."""

    module: str
    help: str
    heading: str = "Commands"
    linux: bool = False


def need_linux(command: str, **_: object) -> None:
    """Raise `InputError` on a system that cannot be a node."""
    if sys.platform != "linux":
        raise InputError(
            f"podslice {command} runs on a Linux node, and this machine runs {platform.system()}",
            remedy="run it there; deploy/capture.sh brings a node's files here",
        )


def top_group(commands: Mapping[str, LazyCommand], *, epilog: str) -> Callable[[Callable[..., Any]], click.Group]:
    """Return the decorator of a program's top function: a lazy group that may be called without a command."""
    return click.group(
        cls=lazy_group(commands),
        invoke_without_command=True,
        subcommand_metavar="COMMAND [ARGS]...",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=epilog,
    )


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[CommandGroup]:
    """Return a group class that has every command's name and help without importing it, so each starts fast."""

    class LazyGroup(CommandGroup):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return sorted(commands)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in commands:
                return None
            # Ctrl-C in the middle of an import would leave a half-made module behind.
            with uninterruptible_import():
                module = importlib.import_module(commands[cmd_name].module)
            command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
            assert isinstance(command, click.Command)
            if commands[cmd_name].linux and sys.platform != "linux":
                command = copy.copy(command)
                command.callback = functools.partial(need_linux, cmd_name)
            return complete_files(command)

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            # In the order of definition: commands that are used together stand together.
            width = max(map(len, commands))
            for heading in dict.fromkeys(command.heading for command in commands.values()):
                with formatter.section(heading):
                    rows = [(name, one.help) for name, one in commands.items() if one.heading == heading]
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows])

    return LazyGroup
