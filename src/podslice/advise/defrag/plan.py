"""A plan: moves in order, each of which leaves the node valid, after which a pod fits; and its making and checking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podslice.advise.defrag.bound import IMPOSSIBLE, Bound, GrowthBound, LowerBound
from podslice.advise.defrag.groups import is_no_worse
from podslice.advise.defrag.search import MOST_STATES, Found, find_fewest_moves
from podslice.advise.defrag.space import Space, relocate_group
from podslice.advise.trial.trial import Moved, Trial
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.node.node import Node, with_default_uid
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet, bits_of, union

_FEW_MOVES, _FEW_STATES = 3, 500
"""Bounds of moves and states for a plan that is only one fix among others."""


class ContainerMove(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs of one container, and the NUMA nodes of its memory, before and after; empty for what it does not own."""

    name: str
    cpus_before: CPUSet
    cpus_after: CPUSet
    memory_nodes_before: CPUSet
    memory_nodes_after: CPUSet


class Move(msgspec.Struct, frozen=True, rename="camel"):
    """Containers of one pod that move at once. `pod_cpus_*` are the CPUs of a pod with pod-level resources, None for
    other pods."""

    uid: str
    namespace: str
    name: str
    containers: tuple[ContainerMove, ...]
    pod_cpus_before: CPUSet | None = None
    pod_cpus_after: CPUSet | None = None


class Plan(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="moves"):
    """The answer for one pod. `fits`: it is admitted after the moves. `container_moves` counts running containers; no
    plan has fewer than `at_least`. `proven`: there is no shorter plan, or with `fits` False none at all. `placed`: the
    CPUs that the pod then owns."""

    fits: bool
    moves: tuple[Move, ...]
    container_moves: int
    at_least: int
    proven: bool
    placed: CPUSet = CPUSet()


def defragment(node: Node, pod: Pod, *, most: int | None = None, limit: int = MOST_STATES) -> Plan:
    """Plan the fewest container moves, at most `most`, after which the node admits the pod; `limit` bounds the states
    of the exact search.

    The node is left as it is. A plan is tried from the first move to the admission of the pod before it is returned.
    """
    trial = Trial.of(node)
    view = trial.view
    pod = default_pod(pod, view.gates)
    space = Space(trial)
    return _plan(trial, space, Bound(view, view.admission(pod), space.groups), pod, most, limit)


def defragment_for_resize(node: Node, pod: Pod, *, most: int | None = None, limit: int = MOST_STATES) -> Plan:
    """Plan as `defragment`, for an in-place resize of a pod that is on the node: it is granted after moves of other
    pods. Raises `InputError` as `Node.resize`."""
    return _plan_for_resize(Trial.of(node), with_default_uid(pod), most, limit)


def moves_for_resize(node: Trial, pod: Pod) -> tuple[Moved, ...]:
    """Return a short plan for a resize, found within a small budget; empty where there is none."""
    plan = _plan_for_resize(node, pod, _FEW_MOVES, _FEW_STATES)
    return tuple(map(_relocation, plan.moves)) if plan.fits else ()


def _plan_for_resize(trial: Trial, pod: Pod, most: int | None, limit: int) -> Plan:
    view = trial.view
    pod = default_pod(pod, view.gates)
    # For its errors alone: a resize that the API server would refuse needs no search.
    trial.copy().try_resize(pod)
    space = Space(trial, resized=pod.metadata.uid)
    bound = GrowthBound(view, view.pods[pod.metadata.uid], view.admission(pod))
    return _plan(trial, space, bound, pod, most, limit)


def _plan(trial: Trial, space: Space, bound: LowerBound, pod: Pod, most: int | None, limit: int) -> Plan:
    """Plan moves by a plugin's proposal or by the search, and check them on a copy."""
    most = IMPOSSIBLE - 1 if most is None else most
    for proposed in _plugin_proposals(trial, pod):
        copy = trial.copy()
        if len(proposed) <= most and not problem_with(copy, proposed, pod):
            # A plugin's proposal costs no search, but nothing proves it minimal unless it meets the bound.
            at_least, _ = bound.minimum(space.initial_state())
            placed = CPUSet.from_bits(copy.view.owned_by(pod.metadata.uid))
            return Plan(True, proposed, len(proposed), at_least, len(proposed) <= at_least, placed)
    found = find_fewest_moves(space, bound, pod, limit, most=most)
    if found.steps is None:
        return Plan(False, (), 0, found.at_least, found.proven)
    # The search works on a model of the node; what it found is tried on a real one before it is returned.
    moves = _record_moves(trial.copy(), space, found)
    copy = trial.copy()
    if problem_with(copy, moves, pod):
        return Plan(False, (), 0, found.at_least, False)
    count = sum(space.groups[step.group].weight for step in found.steps)
    return Plan(
        True, moves, count, found.at_least, found.proven, CPUSet.from_bits(copy.view.owned_by(pod.metadata.uid))
    )


def _plugin_proposals(trial: Trial, pod: Pod) -> Iterator[tuple[Move, ...]]:
    """Yield the moves that plugins propose when the pod is refused; memory stays where it is."""
    copy, view = trial.copy(), trial.view
    if copy.try_run(pod):
        return
    for proposed in copy.proposed_moves:
        cpus: dict[tuple[str, str], Bits] = {}
        moves: list[Move] = []
        for one in proposed.moves:
            metadata = view.pods[one.uid].spec.metadata
            nodes = CPUSet.from_bits(view.numa_nodes(one.uid, one.container))
            held = cpus.get((one.uid, one.container), view.assignment(one.uid, one.container) or 0)
            cpus[one.uid, one.container] = one.cpus
            container = ContainerMove(one.container, CPUSet.from_bits(held), CPUSet.from_bits(one.cpus), nodes, nodes)
            moves.append(Move(one.uid, metadata.namespace or "default", metadata.name, (container,)))
        # A plugin names single containers; pods with pod-level resources move only as a whole.
        if not any(one.uid in view.pod_cpus for one in proposed.moves):
            yield tuple(moves)


def _record_moves(copy: Trial, space: Space, found: Found) -> tuple[Move, ...]:
    """Take the steps on a copy and record what changes."""
    state, moves = space.initial_state(), []
    for step in found.steps or ():
        after = space.pick_cpus(space.draft(state, step), step)
        assert after is not None, "the search took this step"
        group = space.groups[step.group]
        before = copy.view
        relocate_group(copy, group, after.cpus[step.group], step.to.nodes)
        now = copy.view
        metadata = now.pods[group.uid].spec.metadata
        moves.append(
            Move(
                uid=group.uid,
                namespace=metadata.namespace or "default",
                name=metadata.name,
                containers=tuple(_container_move(before, now, group.uid, name) for name in group.names),
                pod_cpus_before=_pod_cpus(before, group.uid),
                pod_cpus_after=_pod_cpus(now, group.uid),
            )
        )
        state = after
    return tuple(moves)


def _container_move(before: NodeView, now: NodeView, uid: str, name: str) -> ContainerMove:
    cpus = (CPUSet.from_bits(view.assignment(uid, name) or 0) for view in (before, now))
    nodes = (CPUSet.from_bits(view.numa_nodes(uid, name)) for view in (before, now))
    return ContainerMove(name, *cpus, *nodes)


def _pod_cpus(view: NodeView, uid: str) -> CPUSet | None:
    return CPUSet.from_bits(view.pod_cpus[uid]) if uid in view.pod_cpus else None


# Applying


Lent = Mapping[str, tuple[int, ...]]
"""CPUs beyond the promised ones by container, in the order in which they were added; those of the whole pod under the
empty name."""
WHOLE_POD = ""


def apply_move(node: Node, move: Move, lent: Lent | None = None) -> None:
    """Move the containers on the node itself: CPUs and memory in its ledgers. Of containers with more CPUs than
    promised, the lowest count as the promised ones unless `lent` names the others."""
    trial = Trial.on(node)
    _carry_out(trial, move)
    if lent is not None:
        loans = {name: cpus for name, cpus in lent.items() if name != WHOLE_POD}
        trial.lend_cpus(move.uid, loans, bits_of(lent.get(WHOLE_POD, ())))


def _carry_out(node: Trial, move: Move) -> None:
    node.move(_relocation(move))


def _relocation(move: Move) -> Moved:
    return Moved(
        move.uid,
        {c.name: c.cpus_after.bits for c in move.containers if c.cpus_after},
        None if move.pod_cpus_after is None else move.pod_cpus_after.bits,
        tuple(c.name for c in move.containers),
        next((c.memory_nodes_after.bits for c in move.containers if c.memory_nodes_after), 0),
    )


def problem_with(node: Trial, moves: Iterable[Move], pod: Pod) -> str:
    """Return what goes wrong when a plan is applied to this node and the pod then admitted, or resized where it is on
    the node already; empty if nothing.

    Checked after every move: each container has as many CPUs as before, all of them free or the group's own; the shared
    pool keeps its size; no CPU is owned twice; and a restarted kubelet takes all pods back as the state files say.
    """
    if problem := problem_in_moves(node, moves):
        return problem
    if pod.metadata.uid in node.view.pods:
        return "" if node.try_resize(pod) else "the resize is not granted after the moves"
    return "" if node.try_run(pod) else "the pod is refused after the moves"


def problem_in_moves(node: Trial, moves: Iterable[Move]) -> str:
    """Check as `problem_with`, the moves alone."""
    for number, move in enumerate(moves, 1):
        if problem := _problem_with_move(node, move):
            return f"move {number} ({move.namespace}/{move.name}): {problem}"
    return ""


def _problem_with_move(node: Trial, move: Move) -> str:
    """Carry out one move on `node`; return what is wrong with it, empty if nothing."""
    if move.uid not in node.view.pods:
        return "the pod is not on this node"
    if all(c.cpus_before == c.cpus_after and c.memory_nodes_before == c.memory_nodes_after for c in move.containers):
        return "nothing would move"
    view, standing = node.view, node.standing(move.uid)
    # A group may keep some of its CPUs, and exchange the others among its containers.
    usable = view.assignable | union(c.cpus_before.bits for c in move.containers)
    usable |= move.pod_cpus_before.bits if move.pod_cpus_before is not None else 0
    if any(len(c.cpus_before) != len(c.cpus_after) or c.cpus_after.bits & ~usable for c in move.containers):
        return "CPUs that are not free, or not as many as before"
    _carry_out(node, move)
    if not node.view.shared or node.view.shared.bit_count() != view.shared.bit_count():
        return "the shared pool changed its size"
    if not is_no_worse(standing, node.standing(move.uid)):
        return "it is aligned worse than before"
    return node.restart_problem()
