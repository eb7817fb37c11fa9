"""`kubectl podslice pod`: the placement of a pod, or its refusal, with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from podslice.cli.output import OUTPUT, emit, prose_width
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.ansi import echo, style
from podslice.status.status import waiting_text
from podslice.values.errors import InputError
from podslice.values.reasons import REJECTED

if TYPE_CHECKING:
    from podslice.kubectl.documents import PodPlacement
    from podslice.kubectl.pod import FoundPod


@click.command()
@click.argument("name", metavar="[NAMESPACE/]NAME")
@cluster_options
@click.option("--node", "where", metavar="NODE", default="", shell_complete=complete_node,
              help="Try it on this node, not on the one it is on.")  # fmt: skip
@click.option("--events/--no-events", "show_events", default=True, help="Show the pod's Events.")
@OUTPUT("table", "wide")
def pod(*, name: str, where: str, show_events: bool, output: str, **options: Any) -> None:
    """Show what the API server knows of a pod (phase, reason, Events), what its node's agent knows (CPUs, memory nodes,
    refusals), and what the node would do if the pod came now, with the changes that would make it fit.

    \b
    Examples:
      kubectl podslice pod shop/web-0
      kubectl podslice pod -n shop web-0 -o json
      kubectl podslice pod shop/web-0 --node n8

    Exit codes: 0 shown, 2 no such pod, or the API server does not answer.
    """
    from podslice.kubectl.pod import find_pod

    namespace, slash, short = name.rpartition("/")
    if not short or "/" in namespace or (slash and not namespace):
        raise InputError(f"{name!r} is not a pod", remedy="write NAMESPACE/NAME, or -n NAMESPACE NAME")
    agents = agents_of(options)
    found = find_pod(agents, namespace or agents.cluster.namespace, short, where)
    if output not in ("table", "wide"):
        emit(found.placement, output)
        return
    _print(found, wide=output == "wide", show_events=show_events)


def _print(found: FoundPod, *, wide: bool, show_events: bool) -> None:
    from podslice.advise.explain.table import to_text
    from podslice.advise.why.table import events_text
    from podslice.render.prose import wrap_lines

    placement, width = found.placement, prose_width()
    echo(wrap_lines("\n".join(_head(placement)), width))
    if placement.containers:
        echo("")
        _print_containers(placement, wide=wide)
    for text in (*_refusals(placement), *(f"finding: {finding}" for finding in placement.findings)):
        echo("\n" + wrap_lines(text, width))
    if show_events and placement.events:
        echo("\n" + events_text(placement.events))
    if found.now is not None:
        echo("\n" + style(_now_heading(placement), bold=True))
        echo(to_text(found.now, wide=wide, width=width))


def _head(placement: PodPlacement) -> list[str]:
    facts = [f"on {placement.node}" if placement.node else "on no node", placement.phase, placement.qos_class]
    lines = [style(f"{placement.namespace}/{placement.name}", bold=True) + "  " + ", ".join(filter(None, facts))]
    if placement.reason or placement.message:
        lines.append(style(": ".join(filter(None, (placement.reason, placement.message))), fg="red"))
    if placement.problem:
        lines.append(style(placement.problem, fg="yellow"))
    return lines


def _print_containers(placement: PodPlacement, *, wide: bool) -> None:
    from podslice.render.table import print_table

    rows = [
        [one.name, one.cpus or "unpinned", one.memory_nodes or "any", one.isolation, one.quota,
         *[one.id, one.cgroup_path or "-"] * wide]
        for one in placement.containers
    ]  # fmt: skip
    more = ["CONTAINER ID", "CGROUP"] * wide
    print_table(["CONTAINER", "CPUS", "MEMORY NODES", "ISOLATION", "CFS QUOTA", *more], rows)


def _refusals(placement: PodPlacement) -> list[str]:
    """Return a text for each refusal: reason and message, below it the cause and a remedy."""
    texts = []
    for refusal in placement.refusals:
        who = f" {refusal.container}" if refusal.container else ""
        said = refusal.reason == placement.reason and placement.message.removeprefix(REJECTED) == refusal.message
        head = "the node's agent says why" if said and refusal.why else f"{refusal.reason}: {refusal.message}"
        lines = [style(f"refused{who}", fg="red") + f": {head}", refusal.why]
        lines.append(waiting_text(refusal.waits_for) if refusal.waits_for else "")
        lines.append(f"What would help: {refusal.fix}" if refusal.fix else "")
        texts.append("\n  ".join(filter(None, lines)))
    return texts


def _now_heading(placement: PodPlacement) -> str:
    return f"If it came to {placement.node} {'again' if placement.containers else 'now'}:"
