"""`podslice status`: the state of the agent on this node."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click
import msgspec

from podslice.cli.closed_pipe import is_unread
from podslice.cli.output import OUTPUT, emit, prose_width, socket_option, use_colours
from podslice.render.ansi import echo, style
from podslice.status.agent_socket import read_status
from podslice.status.status import AgentStatus, ClaimReport, PodReport, RejectedPod, waiting_text
from podslice.values.errors import InputError

_MOST_REJECTED = 5


@click.command()
@socket_option
@click.option("--watch", is_flag=True, help="Show it again every two seconds, also while no agent answers.")
@click.option("--map/--no-map", "show_map", default=True, help="Draw the node's CPU map.")
@OUTPUT("table", "wide")
def status(*, socket: str, watch: bool, show_map: bool, output: str) -> None:
    """Show pods, sets, pools, drift and the CPU map of the agent on this node.

    \b
    Examples:
      podslice status
      podslice status --watch
      podslice status -o json

    Exit codes: 0 shown, 2 no agent answers.
    """
    if not watch:
        show_status(read_status(socket), output, show_map=show_map)
        return
    while not is_unread():
        if output in ("table", "wide"):
            # Clearing is for terminals; in a pipe an empty line separates the pictures.
            click.clear() if use_colours() else echo("")
        try:
            show_status(read_status(socket), output, show_map=show_map)
        except InputError as error:
            echo(f"error: {error}", err=True)
        time.sleep(2)


def show_status(status: AgentStatus, output: str, *, show_map: bool) -> None:
    """Print the status in the requested form."""
    if output not in ("table", "wide"):
        emit(status, output)
        return
    from podslice.render.prose import wrap_lines
    from podslice.render.table import print_table

    echo(_headline(status))
    if status.safe_mode:
        echo(style(f"SAFE MODE: {status.safe_mode}", fg="red", bold=True))
    for warning in status.warnings:
        echo(style(f"warning: {warning}", fg="yellow"))
    for condition in status.conditions:
        echo(style(f"condition: {condition}", fg="yellow"))
    pools = {} if status.pools is None else msgspec.structs.asdict(status.pools)
    echo(wrap_lines(" · ".join(f"{name} {cpus or '-'}" for name, cpus in pools.items()), prose_width()) + "\n")
    wide = output == "wide"
    rows = [row for pod in status.pods for row in status_rows(pod, wide=wide)]
    more = ["POD UID", "CONTAINER ID", "CGROUP"] * wide
    print_table(["POD", "CONTAINER", "CPUS", "MEMORY NODES", "ISOLATION", "CFS QUOTA", "", *more], rows)
    _show_claims(status.claims)
    _show_refusals(status.pods)
    _show_rejected(status.rejected)
    if status.drift:
        echo("")
        print_table(
            ["DRIFT", "POD", "CONTAINER", "WANTED", "FOUND", "REPAIRED"],
            [
                [d.kind, d.pod, d.container, d.wanted, d.found, "yes" if d.repaired else "no"]
                for d in status.drift[-20:]
            ],
        )
    if show_map and status.map:
        echo("\n" + status.map)


def _show_claims(claims: Iterable[ClaimReport]) -> None:
    """Print the claims of devices, and the containers on their CPUs."""
    from podslice.render.table import print_table

    rows = [
        [f"{claim.namespace}/{claim.name}", device.request, device.device, device.cpus or "-",
         " ".join(f"{name}={size}" for name, size in device.memory.items()) or "-", ",".join(claim.containers) or "-"]
        for claim in claims
        for device in claim.devices
    ]  # fmt: skip
    if rows:
        echo("")
        print_table(["CLAIM", "REQUEST", "DEVICE", "CPUS", "MEMORY", "CONTAINERS"], rows)


def _show_refusals(pods: Iterable[PodReport]) -> None:
    """Print refused pods with the kubelet's reason and message and our explanation, and other findings."""
    for pod in pods:
        for finding in pod.findings:
            echo("\n" + style("finding", fg="yellow") + f" {pod.namespace}/{pod.name}: {finding}")
        for refusal in pod.refusals:
            who = f"{pod.namespace}/{pod.name} {refusal.container}".strip()
            state = "waits" if refusal.waits_for else "rejected" if refusal.rejected else "refused"
            ago = f" ({format_age(refusal.since)})" if refusal.since else ""
            colour = "yellow" if refusal.waits_for else "red"
            echo("\n" + style(state, fg=colour) + f" {who}{ago}: {refusal.reason}: {refusal.message}")
            if refusal.why:
                echo(f"  {refusal.why}")
            if refusal.waits_for:
                echo(f"  {waiting_text(refusal.waits_for)}")
            if refusal.fix:
                echo(f"  What would help: {refusal.fix}")


def _show_rejected(pods: Iterable[RejectedPod]) -> None:
    """Print the pods that were marked Failed: their owners have replaced them, if they have any."""
    shown = list(pods)[-_MOST_REJECTED:]
    for pod in shown:
        who = f"{pod.namespace}/{pod.name}"
        echo("\n" + style("failed", fg="red") + f" {who} ({format_age(pod.since)}): {pod.reason}: {pod.message}")
        if pod.why:
            echo(f"  {pod.why}")
        if pod.fix:
            echo(f"  What would help: {pod.fix}")


def format_age(since: float) -> str:
    """Return the time since something began, as kubectl prints it."""
    # The agent's clock is this machine's, but it may have been set back since.
    seconds = max(0, int(time.time() - since))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def _headline(status: AgentStatus) -> str:
    state = "connected" if status.connected else "not connected"
    release = f"Kubernetes {status.kubernetes}" if status.kubernetes else ""
    parts = [status.node, status.runtime, release, state, "dry run" if status.observe else "", status.ready]
    return " · ".join(part for part in parts if part)


def status_rows(pod: PodReport, *, wide: bool) -> list[list[str]]:
    """Return the table rows of a pod: one for itself, then one for each container."""
    name = f"{pod.namespace}/{pod.name}"
    note = style("refused", fg="red") if pod.refused else ""
    if not pod.containers:
        return [[name, "-", "-", "-", "-", "-", note, *[pod.uid, "-", "-"] * wide]]
    rows = []
    for container in pod.containers:
        remark = note or ("stranger" if container.stranger else "")
        grown = container.baseline not in ("", container.cpus)
        remark = remark or (f"promised {container.baseline}" if grown else "")
        sets = [container.cpus or "unpinned", container.memory_nodes or "any"]
        more = [pod.uid, container.id, container.cgroup_path or "-"] * wide
        rows.append([name, container.name, *sets, container.isolation, container.quota, remark, *more])
        name = ""
    return rows
