"""A plan of moves or restarts, for the terminal."""

from __future__ import annotations

from podslice.advise.defrag.largest import Largest
from podslice.advise.defrag.plan import ContainerMove, Move, Plan
from podslice.advise.defrag.restarts import RestartPlan
from podslice.machine.model import CPUTopology
from podslice.render.ansi import style
from podslice.render.table import format_table
from podslice.values.cpuset import CPUSet

_MEANING = {"stop": "ends", "start": "starts again", "place": "is admitted"}


def plan_text(
    plan: Plan | RestartPlan,
    who: str,
    *,
    most: int | None = None,
    topology: CPUTopology | None = None,
    resized: bool = False,
) -> str:
    """Return the plan in words and as a table. `who` names what should fit, `most` is the limit of moves. With a
    `topology`, CPU sets come with their size and NUMA nodes. `resized`: a running pod grows."""
    if not plan.fits:
        return style(f"{who} does not fit: ", fg="red", bold=True) + _why_not(plan, most)
    count = plan.container_moves if isinstance(plan, Plan) else len(plan.restarted)
    if not count:
        cpus = plan.placed if isinstance(plan, Plan) else plan.steps[-1].after
        where = f" It gets CPUs {cpus}." if cpus else ""
        return style(f"{who} fits as it is; nothing needs to move.", fg="green", bold=True) + where
    unit = "container move" if isinstance(plan, Plan) else "pod restart"
    headline = style(f"{who} fits after {count} {unit}{'s' if count != 1 else ''}", fg="green", bold=True)
    if isinstance(plan, Plan):
        table = _move_table(plan, who, topology, last="is resized" if resized else "is admitted")
    else:
        table = _restart_table(plan, who, topology)
    return f"{headline} ({_certainty(plan)}).\n{table}"


def largest_text(found: Largest, *, topology: CPUTopology | None = None) -> str:
    """Describe the largest pod now and after the plan, and the plan."""
    if not found.after:
        return "No such pod with CPUs of its own fits, and no plan was found that makes room for one."
    if found.plan is None:
        text = f"The largest pod that fits has {found.now} CPUs; "
        if found.proven:
            return text + "no plan makes room for a larger one."
        return text + "no plan was found that makes room for a larger one (not proven: try a higher --limit)."
    how = "these moves" if isinstance(found.plan, Plan) else "these restarts"
    text = f"The largest pod that fits now has {found.now} CPUs, after {how} {found.after}"
    text += ", the most there can be.\n" if found.proven else "; there may be room for more (try a higher --limit).\n"
    return text + plan_text(found.plan, f"A pod with {found.after} CPUs", topology=topology)


def _certainty(plan: Plan | RestartPlan) -> str:
    """Describe how certain it is that no shorter plan exists."""
    if isinstance(plan, RestartPlan):
        return "every smaller set of pods was tried" if plan.exhaustive else "not every smaller set of pods was tried"
    if plan.proven:
        return "proven minimal: no plan has fewer"
    return f"not proven minimal: a plan needs {plan.at_least} or more"


def _why_not(plan: Plan | RestartPlan, most: int | None) -> str:
    if isinstance(plan, RestartPlan):
        if plan.exhaustive:
            return f"no restarts{_at_most(most)} make room for it (every set of pods was tried)."
        return f"no restarts{_at_most(most)} were found that make room for it (try a higher --limit)."
    if plan.proven:
        return f"no moves of running containers{_at_most(most)} make room for it (proven)."
    return "no plan was found; there may be one (try a higher --limit)."


def _at_most(most: int | None) -> str:
    return "" if most is None else f", at most {most},"


def _restart_table(plan: RestartPlan, who: str, topology: CPUTopology | None) -> str:
    rows = [
        [
            str(number),
            who if step.action == "place" else step.pod,
            _MEANING[step.action],
            *_sets(step.before, step.after, topology),
        ]
        for number, step in enumerate(plan.steps, 1)
    ]
    return format_table(("STEP", "POD", "WHAT", *_headings(topology)), rows, right=(0,), bold=True)


def _move_table(plan: Plan, who: str, topology: CPUTopology | None, *, last: str) -> str:
    memory = any(c.memory_nodes_before or c.memory_nodes_after for move in plan.moves for c in move.containers)
    rows = [row for step, move in enumerate(plan.moves, 1) for row in _rows(step, move, topology, memory=memory)]
    then = _sets(CPUSet(), plan.placed, topology)
    rows.append([str(len(plan.moves) + 1), who, last, *then, *["-", "-"] * memory])
    headings = ["STEP", "POD", "CONTAINER", *_headings(topology)] + ["MEMORY NOW", "MEMORY THEN"] * memory
    return format_table(headings, rows, right=(0,), bold=True)


def _rows(step: int, move: Move, topology: CPUTopology | None, *, memory: bool) -> list[list[str]]:
    rows = [_row(container, topology, memory=memory) for container in move.containers]
    if move.pod_cpus_before is not None and move.pod_cpus_after is not None:
        sets = _sets(move.pod_cpus_before, move.pod_cpus_after, topology)
        rows.insert(0, ["(pod)", *sets, *["-", "-"] * memory])
    pod = f"{move.namespace}/{move.name}"
    return [[str(step) if i == 0 else "", pod if i == 0 else "", *row] for i, row in enumerate(rows)]


def _row(container: ContainerMove, topology: CPUTopology | None, *, memory: bool) -> list[str]:
    row = [container.name, *_sets(container.cpus_before, container.cpus_after, topology)]
    if memory:
        row += [_nodes(container.memory_nodes_before), _nodes(container.memory_nodes_after)]
    return row


def _headings(topology: CPUTopology | None) -> list[str]:
    if topology is None:
        return ["CPUS NOW", "CPUS THEN"]
    return ["CPUS NOW", "COUNT", "NUMA NOW", "CPUS THEN", "COUNT", "NUMA THEN"]


def _sets(before: CPUSet, after: CPUSet, topology: CPUTopology | None) -> list[str]:
    """Return both sets as cells; with a topology, each with its number of CPUs and its NUMA nodes."""
    if topology is None:
        return [_set(before), _set(after)]
    cells = []
    for cpus in (before, after):
        nodes = [node for node, there in topology.numa_nodes.items() if there & cpus.bits]
        cells += [_set(cpus), str(len(cpus)) if cpus else "-", _nodes(CPUSet(nodes))]
    return cells


def _set(cpus: CPUSet) -> str:
    return str(cpus) or "-"


def _nodes(nodes: CPUSet) -> str:
    return f"NUMA {nodes}" if nodes else "-"
