"""`kubectl podslice top`: free exclusive CPUs by node, and their fragmentation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from podslice.cli.output import OUTPUT, emit
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.ansi import style
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.kubectl.documents import NodeUsage

_HALF = 50


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=complete_node)
@cluster_options
@OUTPUT("table", "wide")
def top(*, names: tuple[str, ...], output: str, **options: Any) -> None:
    """List the exclusive CPUs of nodes. NODE... are the nodes, otherwise all that have an agent. Shown is how many CPUs
    are owned, how many are free in all and on each NUMA node, the most that are free on one, and by how much that is
    less than it could be.

    \b
    Examples:
      kubectl podslice top
      kubectl podslice top n7 n8 -o wide

    Exit codes: 0 shown, 2 no agents, or none answers.
    """
    from podslice.kubectl.agents import ask_agents
    from podslice.kubectl.documents import NodeUsageList
    from podslice.kubectl.live import remote_node
    from podslice.kubectl.usage import usage_of, without_usage

    agents = agents_of(options)
    rows = [
        without_usage(agent.node, str(found)) if isinstance(found, InputError) else found
        for agent, found in ask_agents(
            agents, names, lambda one: usage_of(remote_node(agents.ask(one, "/node"), one.node))
        )
    ]
    if output in ("table", "wide"):
        _print(rows, wide=output == "wide")
    else:
        emit(NodeUsageList(tuple(rows)), output)
    sys.stdout.flush()


def _print(rows: list[NodeUsage], *, wide: bool) -> None:
    from podslice.render.table import print_table

    more = ["CPU POLICY", "TOPOLOGY POLICY", "SCOPE"] * wide
    table = [[*_numbers(row), *[row.cpu_manager_policy or "-", row.topology_manager_policy or "-",
             row.topology_manager_scope or "-"] * wide, _note(row)] for row in rows]  # fmt: skip
    headings = ["NODE", "CPUS", "OWNED", "FREE", "FREE BY NUMA NODE", "ON ONE", "FRAGMENTED", *more, ""]
    if not any(row[-1] for row in table):
        headings, table = headings[:-1], [row[:-1] for row in table]
    print_table(headings, table, right=(1, 2, 3, 5, 6))


def _numbers(row: NodeUsage) -> list[str]:
    if row.fragmentation is None:
        return [row.node, *["-"] * 6]
    fragmented = f"{row.fragmentation}%"
    numa = " ".join(f"{one.id}:{one.free}" for one in row.numa)
    shown = style(fragmented, fg="yellow") if row.fragmentation >= _HALF else fragmented
    return [row.node, str(row.cpus), str(row.exclusive), str(row.free), numa, str(row.largest), shown]


def _note(row: NodeUsage) -> str:
    if row.problem:
        return style(row.problem, fg="red")
    return "" if row.free is not None else f"CPU Manager policy {row.cpu_manager_policy}"
