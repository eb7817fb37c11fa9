"""`podslice version`."""

from __future__ import annotations

import platform

import click
import msgspec

from podslice.cli.output import OUTPUT, emit
from podslice.render.ansi import echo
from podslice.version import KUBERNETES, running_version, version_line


@click.command()
@OUTPUT("table", legend=False)
def version(output: str) -> None:
    """Print the version, and the Kubernetes release whose decisions profile kubelet-1.36 takes.

    \b
    Example:
      podslice version -o json
    """
    if output == "table":
        echo(version_line())
    else:
        emit(Version(running_version(), KUBERNETES, platform.python_version()), output)


class Version(msgspec.Struct, frozen=True):
    """This package's version, the Kubernetes release whose decisions profile kubelet-1.36 takes, and Python's."""

    podslice: str
    kubernetes: str
    python: str
