"""`kubectl podslice audit`: compare containers on nodes with the agents' state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from podslice.cli.output import OUTPUT, emit
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.ansi import echo, style

if TYPE_CHECKING:
    from podslice.kubectl.documents import NodeAudit


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=complete_node)
@cluster_options
@OUTPUT("table")
def audit(*, names: tuple[str, ...], output: str, **options: Any) -> None:
    """Compare what the containers of nodes have with what the agents' state says. NODE... are the nodes, otherwise all
    that have an agent. An agent in a pod sees cgroups, not processes; `podslice audit` on the node looks at both.

    \b
    Examples:
      kubectl podslice audit
      kubectl podslice audit n7 -o json

    Exit codes: 0 all as it should be, 1 findings, 2 no agents, or one does not answer.
    """
    from podslice.kubectl.agents import ask_agents
    from podslice.kubectl.audits import audit_of
    from podslice.kubectl.documents import NodeAuditList

    agents = agents_of(options)
    found = [
        audit_of(agent.node, answer)
        for agent, answer in ask_agents(
            agents, names, lambda one: (agents.ask(one, "/audit"), agents.ask(one, "/status"))
        )
    ]
    if output == "table":
        _print(found)
    else:
        emit(NodeAuditList(tuple(found)), output)
    if any(one.report is None for one in found):
        sys.exit(2)
    if any(one.report is not None and one.report.findings for one in found):
        sys.exit(1)


def _print(audits: list[NodeAudit]) -> None:
    from podslice.render.table import print_table
    from podslice.values.quantity import plural

    rows = [
        [one.node, style(f.kind, fg="red"), f.where, f.wanted or "-", f.found or "-", f.message]
        for one in audits
        if one.report is not None
        for f in one.report.findings
    ]
    if rows:
        print_table(["NODE", "FINDING", "WHERE", "WANTED", "FOUND", "WHAT IT MEANS"], rows)
        echo("")
    for one in audits:
        if one.report is None:
            echo(f"{one.node}: {style(one.problem, fg='red')}")
        else:
            said = plural(len(one.report.findings), "finding")
            text = f"{plural(one.report.pods, 'pod')}, {plural(one.report.containers, 'container')}, {said}"
            echo(f"{one.node}: {style(text, fg='red' if one.report.findings else 'green')}")
