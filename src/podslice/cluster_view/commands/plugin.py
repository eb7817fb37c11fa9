"""`kubectl podslice pending|fit|fragmentation`: questions to the cluster service, through the API server."""

from __future__ import annotations

import sys
from typing import Any

import click

from podslice.cli.output import OUTPUT, quiet_option
from podslice.cluster_view.commands.service import check_named, fit_options, ways_option
from podslice.kubectl.commands.options import cluster_options, page_of


@click.command()
@cluster_options
@fit_options
@quiet_option
@OUTPUT("table", "wide")
def fit(*, files: tuple[str, ...], pods: tuple[str, ...], ways: bool, output: str, **options: Any) -> None:
    """Show which nodes of the cluster take each pod of FILE now, the best first, why the others do not, and what would
    help where none does. Each pod is tried by itself; nothing is created or reserved.

    \b
    Examples:
      kubectl podslice fit -f pod.yaml
      kubectl podslice fit --pod shop/trainer -o wide

    Exit codes: 0 all can go somewhere, 1 some nowhere, 2 bad input, no service, or it does not answer.
    """
    from podslice.cluster_view.commands.printing import print_fit

    check_named(files, pods)
    page = page_of(options)
    names = tuple(name if "/" in name else f"{page.cluster.namespace}/{name}" for name in pods)
    sys.exit(print_fit(page, files, names, ways=ways, output=output))


@click.command()
@cluster_options
@quiet_option
@OUTPUT("table", "wide")
def fragmentation(*, output: str, **options: Any) -> None:
    """Show how scattered the free CPUs of the cluster are: how many pods of each size find room on one NUMA node, the
    most scattered nodes, and the history.

    \b
    Examples:
      kubectl podslice fragmentation
      kubectl podslice fragmentation -o json

    Exit codes: 0 shown, 2 no service, or it does not answer.
    """
    from podslice.cluster_view.commands.printing import print_fragmentation

    sys.exit(print_fragmentation(page_of(options), output=output))


@click.command()
@cluster_options
@ways_option
@quiet_option
@OUTPUT("table", "wide")
def pending(*, ways: bool, output: str, **options: Any) -> None:
    """List the pods that wait for a node, as `podslice cluster` knows them: room is kept for them, they are queued, or
    no node takes them and why, with the cheapest way out.

    \b
    Examples:
      kubectl podslice pending
      kubectl podslice pending --no-ways -o json

    Exit codes: 0 listed, 1 some are refused by all nodes, 2 no service, or it does not answer.
    """
    from podslice.cluster_view.commands.printing import print_pending

    sys.exit(print_pending(page_of(options), ways=ways, output=output))
