"""`kubectl podslice`: the plugin of kubectl for the nodes of a cluster."""

from __future__ import annotations

from typing import Any

import click

from podslice.cli.group import LazyCommand, top_group
from podslice.cli.main import run_command
from podslice.kubectl.commands.options import cluster_options
from podslice.render.ansi import echo

NAME = "kubectl podslice"
COMMANDS = {
    "audit": LazyCommand("podslice.kubectl.commands.audit", "Compare the nodes' cgroups with their state."),
    "capture": LazyCommand("podslice.kubectl.commands.capture", "Write what is known of a node into one file."),
    "defrag": LazyCommand(
        "podslice.kubectl.commands.defrag", "Make room on a node by moving containers that run there."
    ),
    "explain": LazyCommand("podslice.kubectl.commands.explain", "Say whether a pod would fit on a node now, and why."),
    "fit": LazyCommand(
        "podslice.cluster_view.commands.plugin", "Say where in the cluster a pod could go, and why not elsewhere."
    ),
    "fragmentation": LazyCommand(
        "podslice.cluster_view.commands.plugin", "Say how scattered the free CPUs of the cluster are."
    ),
    "node": LazyCommand("podslice.kubectl.commands.node", "Show a node: pods, sets of CPUs, map."),
    "pending": LazyCommand(
        "podslice.cluster_view.commands.plugin", "List the pods that wait for a node, and what would help."
    ),
    "pod": LazyCommand("podslice.kubectl.commands.pod", "Say why a pod is where it is, or why it was refused."),
    "top": LazyCommand("podslice.kubectl.commands.top", "List the nodes with their free exclusive CPUs."),
    "upgrade": LazyCommand(
        "podslice.kubectl.commands.upgrade", "Say what another release of the kubelet changes on the nodes."
    ),
    "why": LazyCommand("podslice.kubectl.commands.why", "Say why a pod was refused, waits, or runs where it does."),
}


@top_group(
    COMMANDS,
    epilog="Exit codes: 0 all well, 1 the answer is no (pods refused, findings), 2 bad input, or no answer.",
)
@cluster_options
@click.pass_context
def kubectl(ctx: click.Context, /, **options: Any) -> None:
    """Look at the nodes of a cluster through the podslice agents on them. KUBECONFIG says which cluster; what rights it
    takes is in docs/kubectl.md. Nothing is changed, but by `defrag --apply` and `--undo`; `capture` and `why --capture`
    make a pod, and delete it.

    \b
    Examples:
      kubectl podslice why shop/web-0
      kubectl podslice top
      kubectl podslice node n7
      kubectl podslice pod shop/web-0
      kubectl podslice explain -f pod.yaml --node n7
      kubectl podslice defrag -f pod.yaml --node n7
      kubectl podslice fit -f pod.yaml
      kubectl podslice pending
    """
    ctx.obj = options
    if ctx.invoked_subcommand is None:
        echo(ctx.get_help())


def main() -> None:
    """Entry point of `kubectl-podslice`."""
    run_command(kubectl, NAME)
