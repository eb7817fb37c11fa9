"""`podslice state migrate`: the files of a node on the machine that it has become."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from podslice.cli.options.machine import complete_machine, load_named_machine
from podslice.cli.output import OUTPUT, emit
from podslice.host.state.reboot import SUFFIX
from podslice.host.state.statefile import read_state, replace_files
from podslice.machine.drift import DriftTolerance, parse_drift_tolerance
from podslice.machine.identity import MachineRecord
from podslice.node.checkpoints.names import NODE_STATE_FILES, POLICY_STATE_FILE, place_of
from podslice.render.ansi import echo, style
from podslice.state_files.documents import StateMigration
from podslice.state_files.migrate import Migration
from podslice.state_files.migrate import migrate as migrate_files
from podslice.values.errors import InputError

_SAYS = {
    "unchanged": "the files fit the machine as they are",
    "renumbered": "all owners keep their place in the hardware, under other numbers",
    "rebuilt": "the files do not fit the machine, pods are to be admitted afresh",
}


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--before", metavar="MACHINE", required=True, shell_complete=complete_machine,
    help="The machine that the files were written on: a file, a snapshot, a ready-made one, or a text.",
)  # fmt: skip
@click.option(
    "--after", metavar="MACHINE", required=True, shell_complete=complete_machine, help="The machine as it is now."
)
@click.option(
    "--drift-tolerance", "tolerance", metavar="off|legacy|QUANTITY", default="legacy", show_default=True,
    help="How much memory may have moved.",
)  # fmt: skip
@click.option("--write", is_flag=True, help=f"Write the files; old ones that no longer count stay as *{SUFFIX}.")
@OUTPUT("table", legend=False)
def migrate(directory: Path, before: str, after: str, tolerance: str, output: str, *, write: bool) -> None:
    """Adapt a node's files to a machine that changed over a reboot (docs/hotplug.md).

    CPUs are identified by their place in the hardware. Where every owner keeps its places on the new machine, on the
    same NUMA nodes and with whole cores whole, the files get the new numbers. Otherwise they do not fit, and the
    command lists what each owner loses.

    \b
    Examples:
      podslice state migrate --before old.yaml --after new.yaml /var/lib/podslice
      podslice state migrate --before old.tar --after new.tar /var/lib/kubelet --write

    Exit codes: 0 nothing is lost, or written, 1 something would be lost, 2 bad input.
    """
    allowed = _tolerance(tolerance)
    files = _files(directory)
    old, new = load_named_machine(before, "--before"), load_named_machine(after, "--after")
    found = migrate_files(files, MachineRecord.of(old), MachineRecord.of(new), tolerance=allowed)
    renamed = _names_to_keep(files, found)
    if write:
        _carry_out(directory, found, renamed)
    if output == "table":
        _print(found, renamed, write=write)
    else:
        emit(_document(directory, found, renamed, write=write), output)
    sys.exit(1 if found.lost and not write else 0)


def _tolerance(text: str) -> DriftTolerance:
    """Parse `--drift-tolerance`. Raises `InputError`, also for `auto`: this machine may be neither of the two."""
    try:
        allowed = parse_drift_tolerance(text)
    except InputError as error:
        raise error.at(path="--drift-tolerance") from None
    if allowed.kind == "auto":
        raise InputError("auto is for the machine itself", path="--drift-tolerance", remedy="name an amount")
    return allowed


def _files(directory: Path) -> dict[str, bytes]:
    """Read the state files of a node by name. Raises `InputError` where there are none."""
    files = {name: data for name in NODE_STATE_FILES if (data := read_state(directory / place_of(name))) is not None}
    if not files and not directory.exists():
        raise InputError("does not exist", source=str(directory))
    if not files:
        raise InputError("holds no state file", source=str(directory), remedy=f"expected {', '.join(NODE_STATE_FILES)}")
    return files


def _names_to_keep(files: Mapping[str, bytes], found: Migration) -> tuple[str, ...]:
    """Return the names of the files that no longer count."""
    if found.outcome == "rebuilt":
        return tuple(files)
    return tuple(name for name in found.files if name != POLICY_STATE_FILE)


def _carry_out(directory: Path, found: Migration, renamed: tuple[str, ...]) -> None:
    """Write the new files and keep the old ones that no longer count. Raises `InputError`."""
    # The CPU Manager's file last: until it is there, no start finds CPUs under old numbers beside new promises.
    contents = {directory / place_of(name): data for name, data in sorted(found.files.items(), reverse=True)}
    kept = {directory / place_of(name): directory / f"{place_of(name)}{SUFFIX}" for name in renamed}
    try:
        replace_files(contents, kept)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(directory)) from None


def _print(found: Migration, renamed: tuple[str, ...], *, write: bool) -> None:
    reason = f": {found.reason}" if found.reason else ""
    echo(style(found.outcome, bold=True) + f": {_SAYS[found.outcome]}{reason}")
    for change in found.changes:
        echo(f"  {change}")
    for lost in found.lost:
        echo(f"  {style('lost', fg='red')} {lost}")
    for name in renamed if write else ():
        echo(f"  {name}: the old file is {name}{SUFFIX}")


def _document(directory: Path, found: Migration, renamed: tuple[str, ...], *, write: bool) -> StateMigration:
    return StateMigration(
        directory=str(directory),
        outcome=found.outcome,
        reason=found.reason,
        changes=found.changes,
        lost=found.lost,
        files={name: data.decode() for name, data in found.files.items()},
        aside=tuple(f"{name}{SUFFIX}" for name in renamed),
        written=write,
    )
