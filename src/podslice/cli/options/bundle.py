"""`--node BUNDLE`: one file that gives a command its machine, configuration, pods and state.

The parts become the values of the options that name them and are not given, so that each command reads a bundle as it
reads files. Options on the command line take precedence.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from podslice.cli.output import print_warnings
from podslice.render.ansi import show_path_as
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.host.bundle.opened import Bundle

F = TypeVar("F", bound=Callable[..., Any])
_META = "podslice.bundle"
_MACHINES = ("machine", "sysfs", "source", "machines", "captures", "sources")
"""Parameters by which commands take a machine."""
NODE_HELP = (
    "A node as `podslice capture` wrote it: machine, configuration, pods and state files; other options override its "
    "parts."
)


def _use(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None and not ctx.resilient_parsing:  # a shell completes words
        use_bundle(ctx, value)


bundle_option = click.option(
    "--node", metavar="BUNDLE", expose_value=False, callback=_use, help=f"{NODE_HELP} A folder or an archive."
)


def without_bundle(ctx: click.Context, _: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Use the bundle among the values of an option that takes other files too, and return those. Raises
    `InputError`."""
    from podslice.host.bundle.opened import is_bundle

    bundles = [value for value in values if is_bundle(Path(value))]
    if len(bundles) > 1:
        raise InputError(f"{bundles[0]} and {bundles[1]} are bundles", path="--node", remedy="give one of them")
    if bundles and not ctx.resilient_parsing:
        use_bundle(ctx, bundles[0])
    return tuple(value for value in values if value not in bundles)


def use_bundle(ctx: click.Context, name: str) -> Bundle:
    """Open a bundle for the command, and make its parts the defaults of the options about a node. Raises
    `InputError`."""
    from podslice.host.bundle.opened import is_bundle, open_bundle

    path = Path(name)
    if path.exists() and not is_bundle(path):
        remedy = "podslice capture writes one; --from takes a machine or a Node object, --sysfs a snapshot"
        raise InputError("is not a bundle, which is a folder or a tar archive", source=name, path="--node",
                         remedy=remedy)  # fmt: skip
    # Of the program and not of the command: what fails while options are read does not close a command's context.
    scratch = ctx.find_root().with_resource(tempfile.TemporaryDirectory(prefix="podslice-"))
    bundle = open_bundle(path, Path(scratch))
    ctx.meta[_META] = bundle
    show_path_as(ctx, scratch, name)
    if ctx.command.name != "why":  # its answer has them
        print_warnings(tuple(f"not known: {line}" for line in bundle.unknown))
    ctx.default_map = {**(ctx.default_map or {}), **_defaults(ctx, bundle)}
    return bundle


def bundle_in_use() -> Bundle | None:
    """Return the bundle of `--node`."""
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.meta.get(_META)


def _defaults(ctx: click.Context, bundle: Bundle) -> dict[str, Any]:
    """Return values by parameter. Those that depend on what is given are functions: click calls them after it has read
    the command line."""
    config = bundle.config and str(bundle.config)
    sources = _Sources(ctx, bundle)
    found = {
        "source": sources,
        "sources": sources,
        "config_path": config,
        "configs": config and (config,),
        "pods_path": bundle.pods and str(bundle.pods),
        "pods": bundle.pods and str(bundle.pods),
        "state_path": bundle.state and str(bundle.state),
        "path": _StateFolder(ctx, bundle),
        "devices_path": bundle.devices and str(bundle.devices),
        "policy_path": bundle.policy and str(bundle.policy),
        "slice_paths": _Slices(ctx, bundle),
    }
    if ctx.command.name == "reserve":
        del found["pods"]  # there it is a number
    return {name: value for name, value in found.items() if value is not None}


def _is_given(ctx: click.Context, name: str) -> bool:
    """Whether the command line has a parameter. Until all are read, the others have no value yet."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


class _Sources:
    """The files that describe the machine, where no option names another machine."""

    def __init__(self, ctx: click.Context, bundle: Bundle) -> None:
        self._ctx, self._bundle = ctx, bundle

    def __call__(self) -> tuple[str, ...] | None:
        if any(_is_given(self._ctx, name) for name in (*_MACHINES, "here")):
            return None
        if not self._bundle.sources and not self._does_without():
            remedy = "name it with --machine, --sysfs or --from"
            raise InputError("does not describe the machine", source=self._bundle.name, remedy=remedy)
        # whatif takes each value of its --from as a machine of its own.
        takes_one = "sources" in {one.name for one in self._ctx.command.params}
        return self._bundle.sources[:1] if takes_one else self._bundle.sources or None

    def _does_without(self) -> bool:
        """Whether the command takes no machine in place of a missing one."""
        return self._ctx.command.name in ("lint", "why") or "here" in {one.name for one in self._ctx.command.params}


class _StateFolder:
    """The folder of the state files, for commands that only read them."""

    def __init__(self, ctx: click.Context, bundle: Bundle) -> None:
        self._ctx, self._bundle = ctx, bundle

    def __call__(self) -> str:
        if _is_given(self._ctx, "write"):
            raise InputError("does not write into a bundle", path="--write", remedy="name the folder of the files")
        if self._bundle.state is None:
            raise InputError("holds no state files", source=self._bundle.name, remedy="name their folder")
        return str(self._bundle.state)


class _Slices:
    """The slices of the node, where the command is about claims."""

    def __init__(self, ctx: click.Context, bundle: Bundle) -> None:
        self._ctx, self._bundle = ctx, bundle

    def __call__(self) -> tuple[str, ...] | None:
        slices = self._bundle.slices
        return (str(slices),) if slices is not None and _is_given(self._ctx, "claim_paths") else None
