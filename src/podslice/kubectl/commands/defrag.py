"""`kubectl podslice defrag`: make room on a node by moving containers that run there."""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from podslice.cli.options.pods import pod_options, read_pods
from podslice.cli.output import OUTPUT, emit, print_warnings, prose_width, quiet_option
from podslice.cli.provenance import agent_provenance, print_provenance
from podslice.evidence.provenance import Provenance
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.ansi import echo
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.advise.defrag.documents import PodPlan
    from podslice.advise.defrag.plan import Plan
    from podslice.api.pod.spec import Pod
    from podslice.kubectl.agents import AgentPod, Agents
    from podslice.node.node import Node

_LONGEST_MOVE = 600.0
_TABLES = ("table", "wide")
_SOCKET = "/run/podslice/agent.sock"


@click.command()
@click.option("-f", "--filename", "file", metavar="FILE", help="The pod to make room for; - is stdin.")
@click.option("--resize", is_flag=True, help="FILE is a pod that runs there, and asks for more.")
@click.option("--plan", "plan_path", metavar="PLAN", help="Instead of FILE: a plan that -o json printed before.")
@click.option(
    "--node", "name", required=True, metavar="NAME", shell_complete=complete_node, help="The node to make room on."
)
@click.option("--moves", "most", type=click.IntRange(min=0), metavar="N", help="At most so many container moves.")
@click.option("--apply", "carry_out", is_flag=True, help="Have the node's agent carry out the plan.")
@click.option("--undo", is_flag=True, help="Have it take back the moves of its last plan.")
@click.option("--yes", is_flag=True, help="Do not ask before anything is moved.")
@click.option("--dry-run", is_flag=True, help="With --apply: go as far as the question, and move nothing.")
@click.option("--socket", default=_SOCKET, show_default=True, metavar="PATH", help="The agent's own, in its container.")
@cluster_options
@pod_options
@quiet_option
@OUTPUT("table", "wide")
def defrag(
    *,
    file: str | None,
    resize: bool,
    plan_path: str | None,
    name: str,
    most: int | None,
    carry_out: bool,
    undo: bool,
    yes: bool,
    dry_run: bool,
    socket: str,
    output: str,
    **options: Any,
) -> None:
    """Plan the fewest moves of running containers after which the pod of FILE fits on the node NAME, as the node is
    now. With --apply its agent carries them out, one verified step after the other, up to the first surprise; each is
    shown when it has ended. --undo takes them back.

    Nothing is moved without --apply or --undo, without a yes, on a node whose policy does not say so
    (defrag.carryOut), or once who has what is not as the plan knows it. The moves go through `kubectl exec`, so they
    need the right to that in the agents' namespace.

    \b
    Examples:
      kubectl podslice defrag -f big.yaml --node n7
      kubectl podslice defrag -f big.yaml --node n7 --apply
      kubectl podslice defrag --node n7 --undo --yes

    Exit codes: 0 fits, with the plan or without, or all is carried out; 1 it does not, or it is not; 2 bad input.
    """
    _check(file=file, plan_path=plan_path, undo=undo, carry_out=carry_out, dry_run=dry_run)
    how = {key: options.pop(key) for key in ("replicas", "strict", "validate")}
    agents = agents_of(options)
    agent = agents.on(name)
    if undo:
        _ask(f"Take back the moves of the last plan on {name}?", yes=yes)
        _run(agents, agent, ("--undo", "--socket", socket), b"", output)
    if plan_path is not None:
        from podslice.reading.files import read_text

        plan = read_text(plan_path).encode()
    else:
        from podslice.advise.defrag.documents import PodPlan

        assert file is not None
        who, found, state, never, provenance = _plan(agents, agent, file, how, resize=resize, most=most)
        if carry_out and never:
            print_warnings((f"the policy of {name} says defrag.carryOut: never, its agent will refuse",))
        moves = carry_out and found.fits and bool(found.moves)
        planned, silent = PodPlan(who, found, resize, state), moves and output not in _TABLES
        plan = _show(planned, provenance, output, most=most, silent=silent)
        if not moves:
            sys.exit(0 if found.fits else 1)
    if dry_run:
        echo(f"Nothing was moved on {name}: --dry-run.", err=True)
        sys.exit(0)
    _ask(f"Move these containers on {name}?", yes=yes)
    _run(agents, agent, ("--apply", "-", "--socket", socket), plan, output)


def _check(*, file: str | None, plan_path: str | None, undo: bool, carry_out: bool, dry_run: bool) -> None:
    """Raise `InputError` for options that contradict each other."""
    if undo and (file or plan_path or carry_out or dry_run):
        raise InputError("goes alone", path="--undo", remedy="undo first, then plan anew")
    if not undo and (file is None) == (plan_path is None):
        raise InputError("for which pod?", path="-f", remedy="give -f FILE, or --plan PLAN with --apply")
    if plan_path is not None and not carry_out:
        raise InputError("is there to be carried out", path="--plan", remedy="add --apply")
    if dry_run and not carry_out:
        raise InputError("goes with --apply", path="--dry-run", remedy="without --apply nothing is moved either")


def _plan(
    agents: Agents, agent: AgentPod, file: str, how: dict[str, Any], *, resize: bool, most: int | None
) -> tuple[str, Plan, str, bool, Provenance]:
    """Return the pod's name, the plan, the digest of the state that it was made on, whether the node's policy forbids
    carrying plans out, and what the plan rests on. Raises `InputError`."""
    from podslice.advise.defrag.plan import defragment, defragment_for_resize
    from podslice.node.holding import digest

    node = _node(agents, agent)
    read = read_pods((file,), **how).beside(() if resize else set(node.pods))
    print_warnings(read.warnings)
    if len(read.pods) != 1:
        raise InputError(f"holds {len(read.pods)} pods", source=file, remedy="make room for one, and go on")
    pod: Pod = read.pods[0].pod
    make = defragment_for_resize if resize else defragment
    who = pod.metadata.full_name
    never = node.rules.policy.defrag.carry_out == "never"
    provenance = agent_provenance(node, f"the agent of {agent.node}")
    return who, make(node, pod, most=most), digest(node.state).named, never, provenance


def _node(agents: Agents, agent: AgentPod) -> Node:
    """Return the node of an agent. Raises `InputError` where nothing can be decided."""
    from podslice.kubectl.live import remote_node

    remote = remote_node(agents.ask(agent, "/node"), agent.node)
    if remote.node is None:
        raise InputError(
            f"nothing can be decided there: {remote.problem}", source=agent.node, remedy="see podslice status"
        )
    return remote.node


def _show(planned: PodPlan, provenance: Provenance, output: str, *, most: int | None, silent: bool) -> bytes:
    """Print the plan unless `silent`: then the outcome is the document to print. Returns the plan as an agent reads
    it."""
    from podslice.advise.defrag.documents import DefragmentationPlanList
    from podslice.advise.defrag.table import plan_text
    from podslice.render.prose import wrap_lines
    from podslice.values.document import document

    plans = DefragmentationPlanList((planned,), provenance)
    if output in _TABLES:
        print_provenance(provenance, output)
        title = f"The resize of {planned.pod}" if planned.resized else planned.pod
        text = plan_text(planned.plan, title, most=most, topology=None, resized=planned.resized)
        echo(wrap_lines(text, prose_width()))
    elif not silent:
        emit(plans, output)
    sys.stdout.flush()
    return msgspec.json.encode(document(plans), enc_hook=str)


def _ask(question: str, *, yes: bool) -> None:
    """Ask for confirmation; exit the command at a no. Raises `InputError` without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError("there is no terminal to ask at", path="--yes", remedy="add --yes, or look at the plan first")
    if not click.confirm(question, err=True):
        sys.exit(1)


def _run(agents: Agents, agent: AgentPod, arguments: tuple[str, ...], given: bytes, output: str) -> None:
    """Run `podslice defrag` in the agent's container, pass its output on as it comes, and exit with its code."""
    from podslice.kubectl.agents import trouble_error
    from podslice.kubectl.execute import execute

    if agent.trouble:
        raise trouble_error(agent)
    command = ("podslice", "defrag", *arguments, "-o", output)
    # A character may be split between two pieces of output.
    decoders = {error: codecs.getincrementaldecoder("utf-8")("replace") for error in (False, True)}
    for piece in execute(agents.cluster, agent.path, command, given, patience=_LONGEST_MOVE):
        if piece.code is not None:
            sys.exit(piece.code)
        echo(decoders[piece.error].decode(piece.data), err=piece.error, nl=False)
        sys.stdout.flush()
