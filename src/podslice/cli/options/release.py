"""The options that choose the release: `--profile` and `--kubernetes`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from podslice.cli.options.machine import Sources
from podslice.cli.output import with_options
from podslice.node.checkpoints.names import KUBELET_VERSION_FILE
from podslice.values.errors import InputError
from podslice.values.quirks import PROFILE_NAMES, profile_for
from podslice.values.releases.table import parse_release

if TYPE_CHECKING:
    pass

F = TypeVar("F", bound=Callable[..., Any])


DEFAULT_PROFILE = "podslice"
AUTO = "auto"


_profile_option = click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    default=DEFAULT_PROFILE,
    show_default=True,
    help="kubelet-1.36 reproduces upstream's defects as well (docs/deviations.md); the others those of their release.",
)


_kubernetes_option = click.option(
    "--kubernetes",
    metavar="VERSION",
    default="",
    help="The release whose kubelet this is, such as 1.34 or v1.34.9; auto: the one that the Node object of --from or "
    "of a bundle states, or the agent whose folder --state is. Default: that of the profile, for `why` auto where a "
    "node states it (docs/releases.md).",
)


def profile_option(command: F) -> F:
    """Add `--profile` and `--kubernetes` to a command; it gets the profile that the two choose."""

    @wraps(command)
    def with_release(*, profile: str, kubernetes: str, **options: Any) -> Any:
        kubernetes = named_version(
            kubernetes, options.get("source") or options.get("sources"), options.get("state_path")
        )
        try:
            chosen = profile_for(profile, kubernetes) if kubernetes else profile
        except InputError as error:
            raise error.at(path="--kubernetes") from None
        return command(profile=chosen, **options)

    return with_options(cast("F", with_release), _profile_option, _kubernetes_option)


def check_version(version: str, path: str = "--kubernetes") -> None:
    """Check that the release of a version is known; empty and `auto` are no versions. Raises `InputError`."""
    try:
        if version and version != AUTO:
            parse_release(version)
    except InputError as error:
        raise error.at(path=path) from None


def named_version(version: str, source: Sources, folder: Path | None) -> str:
    """Return the version, for `auto` that of the kubelet which the objects of `--from` or of a bundle describe, or
    which an agent's folder names. Raises `InputError` without one."""
    if version != AUTO:
        return version
    found = reported_version(source) or _version_of_folder(folder)
    if not found:
        raise InputError(
            "auto needs a Node object that states its kubelet's version",
            path="--kubernetes",
            remedy="--from node.yaml, or name the release: --kubernetes 1.34",
        )
    return found


def _version_of_folder(folder: Path | None) -> str:
    """Return the version of the kubelet beside the agent whose folder this is; empty where it names none."""
    try:
        return "" if folder is None else (folder / KUBELET_VERSION_FILE).read_text(encoding="ascii")[:64].strip()
    except (OSError, ValueError):
        return ""


def reported_version(source: Sources) -> str:
    """Return the version of the kubelet by the first Node object among the sources; empty where none states it."""
    from podslice.host.machine_files import load_described

    for one in source or ():
        if one != "-":  # standard input is read once, for the machine
            with suppress(InputError):  # said where the machine is read
                reported = load_described(one).reported
                if reported is not None and reported.kubelet_version:
                    return reported.kubelet_version
    return ""


def profile_of_node(profile: str, source: Sources) -> str:
    """Return the profile for the release that a Node object states; the same where it states none, or one that is not
    known."""
    version = reported_version(source)
    with suppress(InputError):
        return profile_for(profile, version) if version else profile
    return profile
