"""`podslice defrag`: the fewest container moves, or pod restarts, that make room."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import click
import msgspec
from click.core import ParameterSource

from podslice.advise.defrag.apply_command import LAST, apply_plan, undo_plan
from podslice.advise.defrag.documents import DefragmentationPlanList, LargestPod, PodPlan
from podslice.advise.defrag.plan import Plan, apply_move, defragment, defragment_for_resize
from podslice.advise.defrag.restarts import MOST_TRIES, RestartPlan, carry_out, plan_restarts
from podslice.advise.defrag.search import MOST_STATES
from podslice.api.pod.spec import Pod
from podslice.cli.options.node import StartedNode, node_options, resize_option, start_node
from podslice.cli.options.pods import read_pods, unknown_devices
from podslice.cli.options.resize import RequestedResize, read_resizes
from podslice.cli.options.running import running_options
from podslice.cli.output import (
    OUTPUT,
    emit,
    only_refused_option,
    print_warnings,
    prose_width,
    quiet_option,
    socket_option,
)
from podslice.cli.progress import progress
from podslice.cli.provenance import agent_provenance, print_provenance
from podslice.evidence.contradiction import doubt_node
from podslice.evidence.provenance import Provenance
from podslice.machine.model import CPUTopology
from podslice.node.holding import digest
from podslice.node.node import Node
from podslice.render.ansi import echo
from podslice.render.prose import wrap_lines
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

_MOST_RESTARTS = 3


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]")
@node_options
@running_options
@resize_option
@click.option(
    "--restarts", is_flag=True, help="Plan restarts of pods, as a kubelet without an agent can do, instead of moves."
)
@click.option(
    "--largest", is_flag=True, help="Find the most CPUs that the pod of FILE could request (the default without FILE)."
)
@click.option(
    "--memory", default="1Mi", show_default=True, metavar="QUANTITY", help="Memory of the largest pod, without FILE."
)
@click.option(
    "--moves",
    "most",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Most container moves [default: no limit], or with --restarts most pods [default: {_MOST_RESTARTS}].",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tries before the search accepts a plan that may not be minimal "
    f"[default: {MOST_STATES}, with --restarts {MOST_TRIES}].",
)
@only_refused_option
@click.option("--agent", "live", is_flag=True, help="Plan on the current node of the agent on this machine.")
@click.option("--apply", "apply_path", metavar="PLAN", help="Have the agent carry out a plan that -o json printed.")
@click.option(
    "--undo",
    "undo_path",
    metavar="[RESULT]",
    is_flag=False,
    flag_value=LAST,
    help="Have the agent reverse the moves of a result, or of its last plan where none is given.",
)
@socket_option
@quiet_option
@OUTPUT("table", "wide")
def defrag(
    *,
    files: tuple[str, ...],
    resize_paths: tuple[str, ...],
    restarts: bool,
    largest: bool,
    memory: str,
    most: int | None,
    limit: int | None,
    only_refused: bool,
    live: bool,
    apply_path: str | None,
    undo_path: str | None,
    socket: str,
    output: str,
    **options: Any,
) -> None:
    """Plan the fewest moves of running containers that make room for the pods of FILE..., one pod after the other, and
    then for the in-place resizes of --resize. Without FILE, make room for the largest pod that can fit.

    A move gives a running container other CPUs, and other NUMA nodes for its memory. The agent can do that through NRI;
    a kubelet cannot, so --restarts plans with pods that end and are admitted again. Every plan was tried on a copy of
    the node, step by step, with the pod admitted at the end. Nothing moves without --apply. It needs an agent whose
    policy allows moves, and a node still in the state that the plan begins on; --undo reverses the moves.

    \b
    Examples:
      podslice defrag big.yaml --state /var/lib/kubelet --config kubelet.yaml --pods running.yaml
      podslice defrag big.yaml --machine epyc-9654-nps4 --config kubelet.yaml --pods running.yaml --restarts
      podslice defrag --machine epyc-9654-nps4 --config kubelet.yaml --pods running.yaml     # the largest pod
      podslice defrag --resize db-8.yaml --pods running.yaml --policy policy.yaml --config kubelet.yaml
      podslice defrag big.yaml --agent -o json > plan.json && podslice defrag --apply plan.json
      podslice defrag --undo

    Exit codes: 0 all fit, with the plan or without it, or all moves are done; 1 some do not fit, or a move is not done;
    2 bad input.
    """
    if apply_path is not None or undo_path is not None:
        _check_alone(apply_path, undo_path, files=files, resize_paths=resize_paths, live=live)
        if apply_path is not None:
            apply_plan(apply_path, socket, output)
        undo_plan(undo_path or LAST, socket, output)
    # Neither `apply_plan` nor `undo_plan` returns: both exit with the result of the moves.
    size = _quantity(memory)
    asked = read_pods(files, **options)
    started = _start_from_agent(socket) if live else start_node(asked=asked.pods, **options)
    node = started.node
    doubt = doubt_node(started.provenance.contradictions)
    if doubt is not None:
        raise InputError(f"no plan: it would rest on the {doubt.about}, which is in doubt. {doubt}")
    read = asked.beside(set(node.pods))
    print_warnings((*started.warnings, *read.warnings, *unknown_devices(read.pods, node.view.devices)))
    pods = [one.pod for one in read.pods]
    resizes = read_resizes(resize_paths, **options)
    mode = _Mode(restarts, most, limit, asked.tell(started.provenance))
    if resizes and (restarts or largest):
        raise InputError("goes with moves only", path="--resize", remedy="leave out --restarts and --largest")
    if not largest and (pods or resizes):
        _plan_pods(node, pods, resizes, mode, output, only_refused=only_refused)
        return
    if len(pods) > 1:
        raise InputError(f"{len(pods)} pods", source=", ".join(files), remedy="--largest sizes one pod")
    _plan_largest(node, pods[0] if pods else None, size, mode, output)


def _check_alone(apply_path: str | None, undo_path: str | None, **others: object) -> None:
    """Raise `InputError` when `--apply` or `--undo` comes with options for planning."""
    option = "--apply" if apply_path is not None else "--undo"
    if any(others.values()) or (apply_path is not None and undo_path is not None):
        raise InputError("goes with -o and --socket only", path=option, remedy="plan first, then carry out")


def _start_from_agent(socket: str) -> StartedNode:
    """Start from the node of the agent on this machine. Raises `InputError`, also when the command line describes a
    node as well."""
    from podslice.advise.defrag.apply_command import live_node

    ctx = click.get_current_context()
    # Only options that were typed describe another node; the others have their defaults.
    chosen = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for option in ctx.command.params:
        if option.name in chosen & _NODE_OPTIONS:
            raise InputError("does not go with --agent, which knows its node", path=option.opts[0])
    node = live_node(socket)
    pods = tuple(pod.spec for pod in node.view.pods.values())
    provenance = agent_provenance(node, f"the agent at {socket}")
    return StartedNode(node, pods, (), provenance)


_NODE_OPTIONS = {
    "machine", "sysfs", "source", "config_path", "overrides", "policy_path", "profile", "kubernetes", "devices_path",
    "predicates", "pods_path", "state_path",
}  # fmt: skip
"""Parameters that describe a node, which `--agent` already knows."""


class _Mode(NamedTuple):
    """The kind of plan, moves or restarts, the bounds of the search, and what the answer rests on."""

    restarts: bool
    most: int | None
    limit: int | None
    provenance: Provenance

    @property
    def most_allowed(self) -> int | None:
        return _MOST_RESTARTS if self.restarts and self.most is None else self.most

    def plan(self, node: Node, pod: Pod) -> Plan | RestartPlan:
        """Plan for one pod."""
        if self.restarts:
            return plan_restarts(node, pod, most=self.most_allowed or 0, limit=self.limit or MOST_TRIES)
        return defragment(node, pod, most=self.most_allowed, limit=self.limit or MOST_STATES)

    def planner(self, node: Node) -> Callable[[Pod], Plan | RestartPlan]:
        return lambda pod: self.plan(node, pod)


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise InputError(f"{text!r} is not a quantity: {error}", path="--memory", remedy="--memory 4Gi") from None


def _plan_pods(
    node: Node, pods: list[Pod], resizes: list[RequestedResize], mode: _Mode, output: str, *, only_refused: bool
) -> None:
    """Plan for each pod and resize, print the plans, and exit with 1 where one does not fit."""
    from podslice.advise.defrag.table import plan_text

    data, fits = list[PodPlan](), True
    topology = _topology(node, output)
    print_provenance(mode.provenance, output)
    plans = chain(_plan_each(node, pods, mode), _plan_resizes(node, resizes, mode))
    results = progress(plans, total=len(pods) + len(resizes), what="pods planned")
    for number, (plan, pod, state) in enumerate(results):
        fits = fits and plan.fits
        if only_refused and plan.fits:
            continue
        resized = number >= len(pods)
        who = pod.metadata.full_name
        if output in ("table", "wide"):
            title = f"The resize of {who}" if resized else who
            text = plan_text(plan, title, most=mode.most_allowed, topology=topology, resized=resized)
            text = wrap_lines(text, prose_width())
            echo(f"\n{text}" if data else text)
            sys.stdout.flush()
        data.append(PodPlan(who, plan, resized, state))
    if output not in ("table", "wide"):
        emit(DefragmentationPlanList(tuple(data), mode.provenance), output)
    sys.exit(0 if fits else 1)


def _plan_each(node: Node, pods: list[Pod], mode: _Mode) -> Iterator[tuple[Plan | RestartPlan, Pod, str]]:
    """Plan for one pod after the other, each plan carried out before the next; yield with it the digest of the state it
    begins on."""
    for pod in pods:
        state = digest(node.state).named
        plan = mode.plan(node, pod)
        if isinstance(plan, RestartPlan):
            carry_out(node, plan, pod)
        elif plan.fits:
            for move in plan.moves:
                apply_move(node, move)
            node.admit(pod)
        yield plan, pod, state


def _plan_resizes(node: Node, resizes: list[RequestedResize], mode: _Mode) -> Iterator[tuple[Plan, Pod, str]]:
    """Do the same for resizes of pods that are on the node."""
    for one in resizes:
        pod, state = one.find_among(node.view.pods), digest(node.state).named
        try:
            plan = defragment_for_resize(node, pod, most=mode.most_allowed, limit=mode.limit or MOST_STATES)
        except InputError as error:
            raise one.at(error) from None
        if plan.fits:
            for move in plan.moves:
                apply_move(node, move)
            node.resize(pod)
        yield plan, pod, state


def _plan_largest(node: Node, shape: Pod | None, memory: Quantity, mode: _Mode, output: str) -> None:
    """Find the largest pod, print it, and exit with 1 where there is none."""
    from podslice.advise.defrag.largest import largest_pod, probe_pod
    from podslice.advise.defrag.table import largest_text

    if not node.view.pins_cpus:
        raise InputError(
            "the CPU Manager policy is none: no container owns CPUs", remedy="--set cpuManagerPolicy=static"
        )
    found = largest_pod(node, shape or probe_pod(memory), mode.planner(node))
    print_provenance(mode.provenance, output)
    answer = LargestPod(**msgspec.structs.asdict(found), provenance=mode.provenance)
    _show(largest_text(found, topology=_topology(node, output)), answer, output)
    sys.exit(0 if found.after else 1)


def _topology(node: Node, output: str) -> CPUTopology | None:
    """Return the topology for `-o wide`, which also shows how many CPUs lie on which NUMA nodes."""
    return node.topology if output == "wide" else None


def _show(text: str, answer: msgspec.Struct, output: str) -> None:
    if output in ("table", "wide"):
        echo(wrap_lines(text, prose_width()))
    else:
        emit(answer, output)
