"""`kubectl podslice fit`: where in the cluster could a pod go, and why not elsewhere?"""

from __future__ import annotations

import sys
from typing import Any

import click

from podslice.cli.output import OUTPUT, quiet_option
from podslice.cluster_view.commands.questions import check_asked, fit_options
from podslice.kubectl.commands.options import cluster_options, page_of


@click.command()
@cluster_options
@fit_options
@quiet_option
@OUTPUT("table", "wide")
def fit(*, files: tuple[str, ...], pods: tuple[str, ...], ways: bool, output: str, **options: Any) -> None:
    """Say which nodes of the cluster take each pod of FILE now, the best first, why the others do not, and where none
    does what would help. Each pod is asked about by itself; nothing is created or held.

    \b
    Examples:
      kubectl podslice fit -f pod.yaml
      kubectl podslice fit --pod shop/trainer -o wide

    Exit codes: 0 all can go somewhere, 1 some nowhere, 2 bad input, no service, or it does not answer.
    """
    from podslice.cluster_view.commands.answer import tell_fit

    check_asked(files, pods)
    page = page_of(options)
    names = tuple(name if "/" in name else f"{page.cluster.namespace}/{name}" for name in pods)
    sys.exit(tell_fit(page, files, names, ways=ways, output=output))
