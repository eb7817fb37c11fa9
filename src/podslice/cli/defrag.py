"""`podslice defrag`: the fewest pods to move so that another one fits."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from podslice.cli.node_option import node_options, print_warnings, running_options, start_node
from podslice.cli.output import OUTPUT, emit
from podslice.core.defrag import Largest, Plan, defragment, largest
from podslice.core.errors import InputError

_MEANING = {"stop": "ends", "start": "starts again", "place": "is admitted"}


@click.command()
@click.argument("file", metavar="FILE")
@node_options
@running_options
@click.option("--moves", default=3, show_default=True, type=click.IntRange(0, 8), help="Move at most so many pods.")
@click.option("--largest", "grow", is_flag=True, help="Size FILE's pod: the most CPUs it could ask for, and the plan.")
@OUTPUT("table")
def defrag(file: str, moves: int, grow: bool, output: str, **options: Any) -> None:
    """Find the fewest running pods to restart so that the pod of FILE is admitted, in an order in which every step
    works. A pod moves by ending and being admitted again; every plan was carried out on a copy of the node.

    \b
    Examples:
      podslice defrag big.yaml --pods running.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      podslice defrag big.yaml --state /var/lib/kubelet --config kubelet.yaml --largest --moves 1

    Exit codes: 0 there is a plan (or it fits already), 1 there is none, 2 bad input.
    """
    from podslice.k8s.manifest import load_pods, unique

    started = start_node(**options)
    print_warnings(started.warnings)
    kubelet = started.node.kubelet
    pods = unique(load_pods(file), taken=set(kubelet.active))
    if len(pods) != 1:
        raise InputError(f"holds {len(pods)} pods", source=file, remedy="give one pending pod")
    pod = pods[0].pod
    if grow:
        found = largest(kubelet, pod, most_moves=moves)
        _show_largest(found, output)
        sys.exit(0 if found.after else 1)
    plan = defragment(kubelet, pod, most_moves=moves)
    if output == "table":
        click.echo("No plan with so few moves was found." if plan is None else _text(plan))
    else:
        emit(_data(plan), output)
    sys.exit(0 if plan is not None else 1)


def _data(plan: Plan | None) -> Any:
    return None if plan is None else msgspec.to_builtins(plan, enc_hook=str)


def _text(plan: Plan) -> str:
    from podslice.render.table import format_table

    if not plan.moved:
        return f"It fits as it is: CPUs {plan.steps[-1].after}."
    rows = [
        (str(place), step.pod, _MEANING[step.action], str(step.before) or "-", str(step.after) or "-")
        for place, step in enumerate(plan.steps, 1)
    ]
    pods = f"{len(plan.moved)} pod{'s' if len(plan.moved) != 1 else ''}"
    return f"It fits after {pods} moved:\n\n" + format_table(
        ("STEP", "POD", "WHAT", "CPUS BEFORE", "CPUS AFTER"), rows, right=(0,), bold=True
    )


def _show_largest(found: Largest, output: str) -> None:
    if output != "table":
        emit({"now": found.now, "after": found.after, "plan": _data(found.plan)}, output)
        return
    click.echo(f"Largest such pod now: {found.now} CPUs.")
    if found.plan is not None:
        click.echo(f"With moves: {found.after} CPUs. {_text(found.plan)}")
