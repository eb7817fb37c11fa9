"""`podslice version`."""

from __future__ import annotations

import platform

import click
import msgspec

from podslice.cli.output import OUTPUT, emit
from podslice.render.ansi import echo
from podslice.version import running_version

# The patch release whose source the profile was compared with, which need not be the newest of 1.36.
KUBERNETES = "1.36.2"


@click.command()
@OUTPUT("table", legend=False)
def version(output: str) -> None:
    """Print the version, and the Kubernetes release whose decisions profile kubelet-1.36 takes.

    \b
    Example:
      podslice version -o json
    """
    facts = Version(running_version(), KUBERNETES, platform.python_version())
    if output == "table":
        echo(f"podslice {facts.podslice} (decisions of Kubernetes v{KUBERNETES}, Python {facts.python})")
    else:
        emit(facts, output)


class Version(msgspec.Struct, frozen=True):
    """This package's version, the Kubernetes release whose decisions profile kubelet-1.36 takes, and Python's."""

    podslice: str
    kubernetes: str
    python: str
