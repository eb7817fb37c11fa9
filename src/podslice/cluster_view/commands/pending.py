"""`kubectl podslice pending`: who waits for a node, and what would help?"""

from __future__ import annotations

import sys
from typing import Any

import click

from podslice.cli.output import OUTPUT, quiet_option
from podslice.cluster_view.commands.questions import ways_option
from podslice.kubectl.commands.options import cluster_options, page_of


@click.command()
@cluster_options
@ways_option
@quiet_option
@OUTPUT("table", "wide")
def pending(*, ways: bool, output: str, **options: Any) -> None:
    """List the pods that wait for a node, as `podslice cluster` knows them: room is kept for them, their turn comes, or
    no node takes them and why, with the cheapest way out.

    \b
    Examples:
      kubectl podslice pending
      kubectl podslice pending --no-ways -o json

    Exit codes: 0 listed, 1 some are refused by all nodes, 2 no service, or it does not answer.
    """
    from podslice.cluster_view.commands.answer import tell_pending

    sys.exit(tell_pending(page_of(options), ways=ways, output=output))
