"""`podslice guards`: show which files of the kernel an agent has changed, and restore them without an agent."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from podslice.agent.guards.guards import FileGuard
from podslice.agent.process.exclusive import DirectoryLock
from podslice.cli.output import legend_option, quiet_option
from podslice.host.boot import boot_id
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore, online_cpus
from podslice.render.ansi import echo
from podslice.values.errors import InputError


@click.command()
@click.option("--restore", is_flag=True, help="Write back old values, except where another program has written.")
@click.option("--state", "state_folder", default="/var/lib/podslice", show_default=True, metavar="DIR",
              help="The agent's state directory.")  # fmt: skip
@click.option("--root", "root_folder", default="/", show_default=True, metavar="DIR", help="Where proc and sys are.")
@click.option("--cgroup-root", default="/sys/fs/cgroup", show_default=True, metavar="DIR",
              help="cgroup v2 mount: the agent's cgroupRoot.")  # fmt: skip
@quiet_option
@legend_option
def guards(*, restore: bool, state_folder: str, root_folder: str, cgroup_root: str) -> None:
    """Show which files of the kernel the agent's guards have changed; with --restore write back the old values. An
    agent does that when it stops; this is for one that was killed and is not started again.

    \b
    Examples:
      podslice guards
      podslice guards --restore     # before the agent is uninstalled

    Exit codes: 0 shown, or nothing is changed any more; 1 files could not be restored; 2 bad input.
    """
    files, folder = KernelFiles(root_folder), Path(state_folder)
    store = SavedStore(folder, boot_id(DiskFileSystem(root_folder)), cgroups=files.path_of(cgroup_root))
    guard = FileGuard(files, store, clock=time.monotonic)
    if not folder.is_dir():
        raise InputError("is not a folder", source=state_folder, remedy="--state DIR names the agent's state directory")
    if not restore:
        _load(guard)
        _show(store)
        return
    lock = DirectoryLock(folder)
    lock.take()
    try:
        _load(guard)
        result = guard.run(list(files.read_saved(guard.saved.values())), online=online_cpus(files))
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", source=str(store.path), remedy="run it as root"
        ) from None
    finally:
        lock.release()
    for path in result.restored:
        echo(f"/{path}: restored")
    for path in result.left:
        echo(f"/{path}: left, another program has written it")
    for path in result.refused:
        echo(f"/{path}: could not be written")
    if result.refused:
        sys.exit(1)


def _load(guard: FileGuard) -> None:
    try:
        guard.load()
    except (ValueError, OSError) as error:
        raise InputError(str(error), remedy="what was changed is not known; a reboot restores all files") from None


def _show(store: SavedStore) -> None:
    from podslice.render.table import print_table

    saved = store.load().values()
    if saved:
        print_table(["FILE", "BEFORE", "WRITTEN"], [[f"/{one.path}", one.before, one.written[-1]] for one in saved])
    else:
        echo("No file of the kernel is changed.")
