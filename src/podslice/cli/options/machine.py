"""The options that choose the machine of a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from podslice.cli.options.bundle import bundle_option
from podslice.cli.output import print_warnings, with_options
from podslice.machine.model import Machine
from podslice.node_objects.described import DescribedNode
from podslice.values.errors import InputError

Sources: TypeAlias = tuple[str, ...] | None
"""Values of `--from`, None without it."""
F = TypeVar("F", bound=Callable[..., Any])


def machine_options(command: F) -> F:
    """Add `machine_choice`, and `--node`, which gives all options about a node their values."""
    return machine_choice(bundle_option(command))


def machine_choice(command: F) -> F:
    """Add `--machine`, `--sysfs` and `--from`; the command gets `machine`, `sysfs` and `source` and passes them to
    `resolve_machine`."""
    return with_options(
        command,
        click.option(
            "--machine",
            metavar="NAME",
            shell_complete=complete_machine,
            help="A ready-made machine; `podslice topology --list` shows them; or a file, as for --from.",
        ),
        click.option(
            "--sysfs", metavar="DIR|TAR", help="A captured machine: a folder or tar archive with its sys/ and proc/."
        ),
        click.option(
            "--from",
            "source",
            metavar="FILE|TEXT",
            multiple=True,
            # click gives an empty tuple for an option that is not there; None means that for all three options.
            callback=lambda context, parameter, value: value or None,
            help="A machine as YAML, MachineInfo JSON, hwloc XML or synthetic text (pack:2 core:8 pu:2), a Node or "
            "NodeResourceTopology object, or what lscpu, numactl -H, lstopo, kubectl describe node or nvidia-smi topo "
            "-m print; - is stdin. Given more than once, all are of one node.",
        ),
    )


def resolve_machine(machine: str | None, sysfs: str | None, source: Sources) -> Machine:
    """Return the machine that the options name, this one by default, and warn about what had to be assumed. Raises
    `InputError`."""
    found = resolve_node(machine, sysfs, source)
    print_warnings(found.warnings if found.assumed else ())
    return found.machine


def resolve_named_node(machine: str | None, sysfs: str | None, source: Sources) -> DescribedNode | None:
    """Resolve as `resolve_node`; None when no option names a machine. Raises `InputError`."""
    given = any(value is not None for value in (machine, sysfs, source))
    return resolve_node(machine, sysfs, source) if given else None


def resolve_node(machine: str | None, sysfs: str | None, source: Sources) -> DescribedNode:
    """Resolve as `resolve_machine`, with the other facts that an object of a cluster has about the node. Raises
    `InputError`."""
    given = [
        name for name, value in (("--machine", machine), ("--sysfs", sysfs), ("--from", source)) if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} name a machine twice", remedy="give one of them")
    if machine is not None:
        return _load_ready_made(machine)
    if sysfs is not None:
        from podslice.host.discover import discover_snapshot

        return DescribedNode(discover_snapshot(sysfs), measured=True)
    if source is not None:
        from podslice.host.machine_files import load_described

        return load_described(*source)
    from podslice.host.discover import discover_host

    return DescribedNode(discover_host(), measured=True)


def load_named_machine(name: str, option: str) -> Machine:
    """Load the machine that `option` names: a ready-made one, or anything that `--from` or `--sysfs` takes. Raises
    `InputError`."""
    from podslice.host.machine_files import load_machine

    try:
        return load_machine(name)
    except InputError as error:
        raise error.at(path=option) from None


def _load_ready_made(name: str) -> DescribedNode:
    """Load the ready-made machine of this name, or what else `load_machine` takes."""
    from podslice.host.machine_files import is_machine_source, load_described
    from podslice.machine.gallery import load_gallery

    try:
        return load_described(name) if is_machine_source(name) else DescribedNode(load_gallery(name))
    except InputError as error:
        raise error.at(path="--machine") from None


def complete_machine(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of the ready-made machines."""
    from podslice.machine.gallery import gallery_names

    return [CompletionItem(name) for name in gallery_names() if name.startswith(incomplete)]
