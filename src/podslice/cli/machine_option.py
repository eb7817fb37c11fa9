"""The options with which every command chooses the machine it works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from podslice.cli.output import with_options
from podslice.core.errors import InputError
from podslice.core.machine.model import Machine

F = TypeVar("F", bound=Callable[..., Any])


def machine_options(command: F) -> F:
    """Adds `--machine`, `--sysfs` and `--from`; the command gets `machine`, `sysfs` and `source` and hands them to
    `resolve_machine`."""
    return with_options(
        command,
        click.option(
            "--machine",
            metavar="NAME",
            shell_complete=complete_machine,
            help="A ready-made machine; `podslice topology --list` shows them.",
        ),
        click.option(
            "--sysfs", metavar="DIR|TAR", help="A captured machine: a folder or tar archive with its sys/ and proc/."
        ),
        click.option(
            "--from",
            "source",
            metavar="FILE|TEXT",
            help="A machine as YAML, MachineInfo JSON, hwloc XML or synthetic text (pack:2 core:8 pu:2); - is stdin.",
        ),
    )


def resolve_machine(machine: str | None, sysfs: str | None, source: str | None) -> Machine:
    """The machine the options name, or this one when none is given. Raises `InputError`."""
    given = [
        name for name, value in (("--machine", machine), ("--sysfs", sysfs), ("--from", source)) if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} name a machine twice", remedy="give one of them")
    if machine is not None:
        from podslice.gallery import load_gallery

        try:
            return load_gallery(machine)
        except InputError as error:
            raise error.at(path="--machine") from None
    if sysfs is not None:
        from podslice.host.discover import discover_snapshot

        return discover_snapshot(sysfs)
    if source is not None:
        from podslice.host.machine_files import load_machine, parse_machine
        from podslice.k8s.files import read_text

        return parse_machine(read_text("-"), source="stdin") if source == "-" else load_machine(source)
    from podslice.host.discover import discover_host

    return discover_host()


def complete_machine(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the ready-made machines."""
    from podslice.gallery import gallery_names

    return [CompletionItem(name) for name in gallery_names() if name.startswith(incomplete)]
