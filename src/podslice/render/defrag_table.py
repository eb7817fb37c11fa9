"""A plan of moves for the terminal."""

from __future__ import annotations

import click

from podslice.core.defrag.plan import ContainerMove, Move, Plan
from podslice.core.values.cpuset import CPUSet
from podslice.render.table import format_table


def plan_text(plan: Plan, who: str) -> str:
    """The plan in words and as a table, one row per container; `who` names what should fit."""
    if not plan.fits:
        return click.style(f"{who} does not fit: ", fg="red", bold=True) + _why_not(plan)
    if not plan.moves:
        return click.style(f"{who} fits as it is; nothing needs to move.", fg="green", bold=True)
    count = plan.container_moves
    headline = f"{who} fits after {count} container move{'s' if count != 1 else ''}"
    return f"{click.style(headline, fg='green', bold=True)} ({certainty(plan)}).\n{_table(plan)}"


def certainty(plan: Plan) -> str:
    """What is known about the length of a plan."""
    if plan.proven:
        return "proven minimal: no plan has fewer"
    return f"not proven minimal: a plan needs {plan.at_least} or more"


def _why_not(plan: Plan) -> str:
    if plan.proven:
        return "no moves of running containers make room for it (proven)."
    return "no plan was found; there may be one (try a higher --limit)."


def _table(plan: Plan) -> str:
    memory = any(c.memory_nodes_before or c.memory_nodes_after for move in plan.moves for c in move.containers)
    rows = [row for step, move in enumerate(plan.moves, 1) for row in _rows(step, move, memory)]
    headings = ["STEP", "POD", "CONTAINER", "CPUS NOW", "CPUS THEN"] + ["MEMORY NOW", "MEMORY THEN"] * memory
    return format_table(headings, rows, right=(0,), bold=True)


def _rows(step: int, move: Move, memory: bool) -> list[list[str]]:
    rows = [_row(container, memory) for container in move.containers]
    if move.pod_cpus_before is not None and move.pod_cpus_after is not None:
        sets = move.pod_cpus_before, move.pod_cpus_after
        rows.insert(0, ["(pod)", *map(str, sets), *["-", "-"] * memory])
    pod = f"{move.namespace}/{move.name}"
    return [[str(step) if i == 0 else "", pod if i == 0 else "", *row] for i, row in enumerate(rows)]


def _row(container: ContainerMove, memory: bool) -> list[str]:
    row = [container.name, _set(container.cpus_before), _set(container.cpus_after)]
    if memory:
        row += [_nodes(container.memory_nodes_before), _nodes(container.memory_nodes_after)]
    return row


def _set(cpus: CPUSet) -> str:
    return str(cpus) or "-"


def _nodes(nodes: CPUSet) -> str:
    return f"NUMA {nodes}" if nodes else "-"
