"""`kubectl podslice fragmentation`: how scattered are the free CPUs of the cluster?"""

from __future__ import annotations

import sys
from typing import Any

import click

from podslice.cli.output import OUTPUT, quiet_option
from podslice.kubectl.commands.options import cluster_options, page_of


@click.command()
@cluster_options
@quiet_option
@OUTPUT("table", "wide")
def fragmentation(*, output: str, **options: Any) -> None:
    """Say how scattered the free CPUs of the cluster are: how many pods of each size find room on one NUMA node, the
    most scattered nodes, and how it was before.

    \b
    Examples:
      kubectl podslice fragmentation
      kubectl podslice fragmentation -o json

    Exit codes: 0 shown, 2 no service, or it does not answer.
    """
    from podslice.cluster_view.commands.answer import tell_fragmentation

    sys.exit(tell_fragmentation(page_of(options), output=output))
