"""`podslice admit`: the main job. Decide where pods land on one node, and show it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podslice.admit.documents import AdmissionReport, ClaimAnswer, NodeCPUs, Resized
from podslice.cli.options.node import node_options, resize_option, start_node
from podslice.cli.options.pods import read_pods, unknown_devices
from podslice.cli.options.resize import RequestedResize, read_resizes
from podslice.cli.options.running import running_options
from podslice.cli.output import (
    OUTPUT,
    emit,
    only_refused_option,
    print_data,
    print_warnings,
    prose_width,
    quiet_option,
)
from podslice.cli.provenance import print_provenance
from podslice.dra.commands.options import ClaimAnswers, allocate_claims, claim_options
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.kubelet_differs import kubelet_differs
from podslice.evidence.provenance import provenance_lines
from podslice.evidence.said import check_status
from podslice.node.decision import ContainerDecision, Decision
from podslice.node.node import Node
from podslice.node.pod_remarks import budget_remarks, describe_reserved
from podslice.render.ansi import echo, style
from podslice.render.picture import picture_of
from podslice.values.cpuset import CPUSet
from podslice.values.errors import UpstreamDefectError
from podslice.values.reasons import UPSTREAM_DEFECT

if TYPE_CHECKING:
    from podslice.evidence.provenance import Provenance
    from podslice.node.view import NodeView

_UNPINNED = "With cpuManagerPolicy none no container gets CPUs of its own (--set cpuManagerPolicy=static)."


@click.command()
@click.argument("files", nargs=-1, metavar="FILE...")
@node_options
@running_options
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a picture of the node afterwards: .svg, .html or .txt.",
)
@resize_option
@claim_options
@click.option("--map/--no-map", "show_map", default=True, help="Draw the node's CPU map.")
@only_refused_option
@quiet_option
@OUTPUT("table", "wide", "nrt")
def admit(
    *,
    files: tuple[str, ...],
    out: Path | None,
    resize_paths: tuple[str, ...],
    claim_paths: tuple[str, ...],
    slice_paths: tuple[str, ...],
    show_map: bool,
    only_refused: bool,
    output: str,
    **options: Any,
) -> None:
    """Admit the pods of FILE... in order onto one node and print, for each, the verdict and every container's CPUs.

    FILE holds Pods, Lists, workloads (Deployment, Job, JobSet, RayCluster …) or any object with a pod template, as
    YAML or JSON; a folder is all such files in it, - is standard input. The node is this very machine unless you name
    another one, and empty unless --pods or --state name the pods that run there. With --claims and --slices the claims
    of the pods are allocated first, as kube-scheduler does it; a claim that no pod names is allocated by itself.

    \b
    Examples:
      podslice admit pod.yaml
      podslice admit pods.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      kubectl get pod db -o yaml | podslice admit - --machine xeon-6338-2s \\
          --set cpuManagerPolicy=static --set reservedSystemCPUs=0-1
      podslice admit new.yaml --state /var/lib/kubelet --config /var/lib/kubelet/config.yaml
      podslice admit new.yaml --pods running.yaml --machine epyc-9654-nps4 --config kubelet.yaml --out after.html
      podslice admit pods.yaml --from 'pack:2 numa:2 core:8 pu:2' --profile kubelet-1.36 -o json
      podslice admit pods.yaml --machine epyc-9654-nps4 --config kubelet.yaml -o nrt   # NodeResourceTopology
      podslice admit db.yaml --policy policy.yaml --resize db-8-cpus.yaml --resize db-4-cpus.yaml
      podslice admit pods.yaml --claims claims.yaml --slices slices.yaml   # Dynamic Resource Allocation

    Exit codes: 0 all admitted and resized, 1 some not, 2 bad input.
    """
    claims = ClaimAnswers(claim_paths, slice_paths) if claim_paths or slice_paths else None
    # Claims may be allocated without any pod.
    if not files and claims is None:
        raise click.UsageError("Missing argument 'FILE...'.")
    if out is not None:
        from podslice.draw.command import picture_form, write_picture

        form = picture_form(None, out)
    asked = read_pods(files, **options)
    node, _, warnings, provenance, *_ = start_node(asked=asked.pods, **options)
    before = None if out is None else picture_of(node.view)
    read = asked.beside(set(node.pods))
    print_warnings((*warnings, *read.warnings, *unknown_devices(read.pods, node.view.devices)))
    answers: list[ClaimAnswer] = []
    there, decisions, contradictions = set(node.pods), list[Decision](), list[Contradiction]()
    pods, start = list(allocate_claims(claims, read.pods, answers, node.rules.gates)), node.copy()
    for pod in pods:
        decisions.append(_decide(node, pod))
        # A pod that runs there already is asked about as one more such pod, which has no status.
        if pod.metadata.uid not in there:
            reason = None if decisions[-1].admitted else decisions[-1].reason
            contradictions += filter(None, [check_status(pod, reason)])
    # Resizes come after all pods, as on a node where the pods run already.
    resizes = [_resize(node, one) for one in read_resizes(resize_paths, **options)]
    granted = all(one.decision.outcome in ("Allocated", "Unchanged") for one in resizes)
    all_admitted = granted and all(decision.admitted for decision in decisions)
    all_admitted = all_admitted and all(answer.allocated for answer in answers)
    if only_refused:
        decisions = [decision for decision in decisions if not decision.admitted]
    if out is not None:
        basis = provenance_lines(provenance)
        write_picture(out, [("", picture_of(node.view, before=before, basis=basis))], form)
    provenance = asked.tell(provenance)
    print_provenance(provenance, output, contradictions)
    if output in ("table", "wide"):
        if claims is not None:
            from podslice.dra.commands.table import print_answers

            print_answers(answers)
            echo("")
        if decisions or claims is None:
            differs = kubelet_differs(start, pods)
            print_admissions(node, decisions, resizes, wide=output == "wide", show_map=show_map, differs=differs)
    elif output == "nrt":
        from podslice.node_objects.write_nrt import node_topology

        print_data(node_topology(node), "yaml")
    else:
        emit(_report(node, decisions, resizes, answers, provenance, contradictions), output)
    if not all_admitted:
        sys.exit(1)


def _decide(node: Node, pod: Any) -> Decision:
    try:
        return node.admit(pod)
    except UpstreamDefectError as defect:
        return Decision(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            qos="",
            admitted=False,
            reason=UPSTREAM_DEFECT,
            message=defect.consequence,
            why=defect.because,
        )


def _resize(node: Node, requested: RequestedResize) -> Resized:
    decision = requested.try_on(node)
    held = node.state.cpu.assignments.get(decision.uid, {})
    return Resized(decision, {name: CPUSet.from_bits(cpus) for name, cpus in held.items()})


def _report(
    node: Node,
    decisions: list[Decision],
    resizes: list[Resized],
    answers: list[ClaimAnswer],
    provenance: Provenance,
    contradictions: list[Contradiction],
) -> AdmissionReport:
    cpus = NodeCPUs(node.reserved_cpus, node.shared_cpus, node.assignable_cpus)
    profile = provenance.profile
    return AdmissionReport(
        node.machine.name,
        profile,
        tuple(decisions),
        cpus,
        tuple(resizes),
        tuple(answers),
        provenance,
        tuple(contradictions),
    )


def print_admissions(
    node: Node,
    decisions: list[Decision],
    resizes: list[Resized],
    *,
    wide: bool,
    show_map: bool,
    differs: str = "",
) -> None:
    """Print the decisions as a table, the reasons of refusals, a sentence on where a kubelet `differs`, and with
    `show_map` the map of the node."""
    from podslice.render.prose import wrap_lines
    from podslice.render.table import print_table

    if not node.view.pins_cpus:
        echo(wrap_lines(_UNPINNED, prose_width()) + "\n")
    memory = node.view.binds_memory
    devices = bool(node.view.devices)
    headings = ["POD", "CONTAINER", "VERDICT", "QOS", "CPUS", "CPU LIST", "NUMA", "ISOLATION", "CFS QUOTA"]
    headings += ["MEMORY NODES"] * memory + ["DEVICES"] * devices
    if wide:
        headings += ["KIND", "AFFINITY", "PREFERRED"]
    view = node.view
    rows = [row for d in decisions for row in _rows(d, view, wide=wide, memory=memory, devices=devices)]
    print_table(headings, rows, right=(4,))
    for decision in decisions:
        name = style(f"{decision.namespace}/{decision.name}", bold=True)
        if not decision.admitted:
            echo(wrap_lines(f"\n{name} {style(decision.reason, fg='red')}: {decision.message}", prose_width()))
            if decision.why:
                echo(wrap_lines(f"  {decision.why}", prose_width()))
        for title, text in _notes(decision, node):
            echo(wrap_lines(f"\n{name} {style(title, fg='yellow')}: {text}", prose_width()))
    if differs:
        echo(wrap_lines(f"\n{differs}", prose_width()))
    _print_resizes(resizes)
    if memory:
        echo("\n" + _memory_table(node))
    if show_map:
        echo("\n" + _map(node))


def _print_resizes(resizes: list[Resized]) -> None:
    from podslice.node.resize.events import restart_note
    from podslice.render.prose import wrap_lines
    from podslice.render.table import format_table

    if not resizes:
        return
    rows = []
    for one in resizes:
        cpus = " ".join(f"{name}:{held}" for name, held in one.cpus.items()) or "shared"
        colour = "green" if one.decision.outcome in ("Allocated", "Unchanged") else "red"
        rows.append([f"{one.decision.namespace}/{one.decision.name}", style(one.decision.outcome, fg=colour), cpus])
    echo("\n" + format_table(["RESIZED", "ANSWER", "CPUS AFTER"], rows, bold=True))
    for one in resizes:
        name = style(f"{one.decision.namespace}/{one.decision.name}", bold=True)
        if one.decision.restarts:
            echo(wrap_lines(f"\n{name} {restart_note(one.decision.restarts)}", prose_width()))
        if one.decision.message:
            echo(wrap_lines(f"\n{name} {style(one.decision.outcome, fg='red')}: {one.decision.message}", prose_width()))


def _notes(decision: Decision, node: Node) -> Iterator[tuple[str, str]]:
    """Yield what is worth knowing about an admitted pod beside its placement."""
    if decision.preempted:
        yield "preempts", f"{', '.join(decision.preempted)}, to make room for a critical pod"
    for event in decision.events:
        yield event.reason, event.message
    admission = node.view.pods.get(decision.uid)
    if admission is not None:
        for text in budget_remarks(admission, node.view.gates, whole=node.view.places_whole(admission)):
            yield "wastes resources", text
    if decision.ended_early:
        yield "not proven to be the best there is", " and ".join(decision.ended_early)
    for container in decision.containers:
        if given := container.exclusive_cpus & node.reserved_cpus:
            yield "takes reserved CPUs", f"{describe_reserved(container.name, given)} (docs/deviations.md)"
        if container.error:
            yield f"container {container.name} does not start", container.error


def _memory_table(node: Node) -> str:
    """Return memory and huge pages of every NUMA node as in the Memory Manager's ledger."""
    from podslice.render.table import format_bytes, format_table

    rows = []
    for numa, ledger in sorted(node.view.memory.items()):
        group = ",".join(map(str, ledger.cells or ()))
        for name, table in sorted((ledger.memory_map or {}).items(), reverse=True):
            if not table.total and name != "memory":
                continue
            amounts = (table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
            rows.append([str(numa), name, *map(format_bytes, amounts), group])
    headings = ["NUMA", "MEMORY", "TOTAL", "SYSTEM RESERVED", "ALLOCATABLE", "IN USE", "FREE", "GROUP"]
    return format_table(headings, rows, right=(2, 3, 4, 5, 6), bold=True)


def _rows(decision: Decision, view: NodeView, *, wide: bool, memory: bool, devices: bool) -> list[list[str]]:
    pod = f"{decision.namespace}/{decision.name}"
    if not decision.admitted:
        # A refused pod has one row, with a dash under every heading of a container.
        columns = 5 + memory + devices + 3 * wide
        verdict = "no answer" if decision.reason == UPSTREAM_DEFECT else "refused"
        return [[pod, "-", style(verdict, fg="red"), decision.qos, *["-"] * columns]]
    verdict = style("admitted", fg="green")
    rows = []
    for index, container in enumerate(decision.containers):
        first = index == 0
        row = [pod if first else "", container.name, verdict if first else "", decision.qos if first else ""]
        row += _cpu_columns(container, view, decision.uid, wide=wide)
        row += [str(container.memory_nodes) or "any"] * memory
        row += [_device_text(container)] * devices
        if wide:
            affinity = "any" if container.affinity is None else str(container.affinity)
            row += [container.kind, affinity, "yes" if container.preferred else "no"]
        rows.append(row)
    return rows


def _device_text(container: ContainerDecision) -> str:
    held = [f"{resource} {','.join(ids)}" for resource, ids in container.devices.items()]
    return "; ".join(held) or container.error or "-"


def _cpu_columns(container: ContainerDecision, view: NodeView, uid: str, *, wide: bool) -> list[str]:
    """Return the cells about a container's CPUs. The shared pool is shown as it is after the last pod, since it is one
    for all that run there; with CPU classes, the shared part of the container's classes."""
    shared = container.isolation == "host" and bool(container.cpus)
    cpus = CPUSet.from_bits(view.affinity(uid, container.name)) if shared else container.cpus
    text = "shared pool" if shared and cpus.bits == view.shared and not wide else str(cpus)
    if container.isolation == "mixed":
        text = f"{container.exclusive_cpus} + {container.cpus - container.exclusive_cpus}"
    return [
        str(len(cpus)),
        text or "unpinned",
        str(container.numa_nodes) or "-",
        container.isolation,
        "on" if container.cfs_quota else "off",
    ]


def _map(node: Node) -> str:
    from podslice.render.terminal import to_text

    return to_text(picture_of(node.view), width=shutil.get_terminal_size((120, 24)).columns)
