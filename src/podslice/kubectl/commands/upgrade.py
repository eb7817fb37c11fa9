"""`kubectl podslice upgrade`: what another release of the kubelet does with the nodes of the cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from podslice.cli.options.release import AUTO, check_version
from podslice.cli.output import OUTPUT, emit, prose_width
from podslice.cli.progress import progress
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.ansi import echo, style
from podslice.values.errors import InputError
from podslice.values.releases.table import parse_release

if TYPE_CHECKING:
    from podslice.kubectl.documents import ClusterUpgradeReport, UpgradedPool

_MOST_NAMES, _MOST_LINES = 4, 10


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=complete_node)
@cluster_options
@click.option("--to", "target", metavar="VERSION", required=True, help="The release of the new kubelets, such as 1.37.")
@click.option(
    "-l", "--selector", metavar="LABELS", default="", help="The nodes with these labels, such as pool=latency."
)
@click.option("--from", "version", metavar="VERSION", default="",
              help="The release that runs now (default: the one that each agent states).")  # fmt: skip
@click.option("--all", "step_by_step", is_flag=True, help="Go through every minor release on the way.")
@OUTPUT("table", "wide")
def upgrade(
    *, names: tuple[str, ...], target: str, selector: str, version: str, step_by_step: bool, output: str, **options: Any
) -> None:
    """Say what changes on nodes when their kubelets become those of another release. NODE... are the nodes, otherwise
    those of --selector, otherwise all that have an agent. Nodes with equal machines, configurations and releases are
    one pool; every node is computed by itself, with the pods and state files that it has now. Nothing is changed.

    \b
    Examples:
      kubectl podslice upgrade --to 1.37
      kubectl podslice upgrade --to 1.37 -l pool=latency -o wide
      kubectl podslice upgrade --to 1.36 --all n7 n8
      kubectl podslice upgrade --to 1.37 -o json

    Exit codes: 0 no running pod is harmed, 1 one is or a kubelet does not start, 2 bad input, no agents, or one does
    not answer.
    """
    from podslice.kubectl.upgrades import ask_nodes, report_upgrades

    check_version(target, "--to")
    check_version(version, "--from")
    to, now = parse_release(target), "" if version == AUTO else version
    if names and selector:
        raise InputError("nodes are named too", path="--selector", remedy="give one of them")
    agents = agents_of(options)
    answers = ask_nodes(agents, names, selector)
    shown = progress(answers, total=len(answers), what="nodes")
    report = report_upgrades(shown, to, now=now, step_by_step=step_by_step)
    if output in ("table", "wide"):
        _print(report, wide=output == "wide")
    else:
        emit(report, output)
    sys.exit(1 if report.harms else 2 if report.unknown else 0)


def _print(report: ClusterUpgradeReport, *, wide: bool) -> None:
    from podslice.render.table import print_table

    rows = [
        [*_numbers(pool, wide=wide), "yes" if not any(step.errors for step in pool.steps) else style("no", fg="red")]
        for pool in report.pools
    ]
    if rows:
        print_table(["NODES", "KUBELET", "PODS", "CHANGED", "HARMED", "STARTS"], rows, right=(2, 3, 4))
    for pool in report.pools:
        _print_pool(pool, report.to, wide=wide)
    for one in report.unknown:
        echo(f"\n{one.node}: {style(one.problem, fg='red')}")


def _numbers(pool: UpgradedPool, *, wide: bool) -> list[str]:
    sums = [sum(getattr(node, field) for node in pool.nodes) for field in ("pods", "changed", "harmed")]
    versions = sorted({node.kubelet or pool.release for node in pool.nodes})
    harmed = style(str(sums[2]), fg="red") if sums[2] else "0"
    return [_names(pool, wide=wide), ",".join(versions), str(sums[0]), str(sums[1]), harmed]


def _names(pool: UpgradedPool, *, wide: bool) -> str:
    names = [node.node for node in pool.nodes]
    if wide or len(names) <= _MOST_NAMES:
        return ",".join(names)
    return f"{','.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def _print_pool(pool: UpgradedPool, to: str, *, wide: bool) -> None:
    from podslice.advise.upgrade.table import to_text
    from podslice.render.prose import wrap_lines

    width = prose_width()
    heading = f"{_names(pool, wide=wide)}: {pool.machine}; {pool.configuration}"
    echo("\n" + wrap_lines(style(heading, bold=True), width))
    if not pool.steps:
        echo(f"The kubelets are of Kubernetes {to} already.")
    pods, most = sum(node.pods for node in pool.nodes), None if wide else _MOST_LINES
    for place, step in enumerate(pool.steps):
        echo(("\n" if place else "") + to_text(step, pods=pods, width=width, wide=wide, most=most))
