"""The options that choose a machine, shared by every command that needs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from podslice.core.errors import InputError
from podslice.core.machine.model import Machine

F = TypeVar("F", bound=Callable[..., Any])


def machine_options(command: F) -> F:
    """Adds --machine, --sysfs and --from; give their values to `resolve_machine`."""
    command = click.option(
        "--from", "source", metavar="FILE|TEXT", help="MachineInfo JSON, hwloc XML, YAML, or a synthetic string."
    )(command)
    command = click.option("--sysfs", metavar="DIR|TAR", help="Snapshot with sys and proc of another machine.")(command)
    return click.option("--machine", metavar="NAME", help="A machine of the gallery (podslice topology --list).")(
        command
    )


def resolve_machine(machine: str | None, sysfs: str | None, source: str | None) -> Machine:
    """The machine the options name; this very machine without any. Raises `InputError`."""
    if sum(option is not None for option in (machine, sysfs, source)) > 1:
        raise InputError("name a machine twice", path="--machine, --sysfs, --from", remedy="give one of them")
    if machine is not None:
        from podslice.gallery import load_gallery

        return load_gallery(machine)
    from podslice.host import machines

    if sysfs is not None:
        return machines.load_snapshot(sysfs)
    return machines.load_machine(source) if source is not None else machines.this_machine()
