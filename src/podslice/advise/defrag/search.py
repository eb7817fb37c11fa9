"""Searching for the fewest moves: best first with a lower bound, then a beam where that would take too long.

The first search (A*) expands the state with the fewest moves made plus moves still needed at least; the first state
that admits the pod is then reached by the fewest moves there are. After `limit` states it gives up, with the fewest
moves that have not been ruled out. The beam then keeps only the most promising states of each length, for as many
states again.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from podslice.advise.defrag.bound import IMPOSSIBLE, LowerBound
from podslice.advise.defrag.space import Place, Space, State, Step
from podslice.api.pod.spec import Pod

MOST_STATES = 10_000
_BEAM, _NARROWEST = 40, 3
_DEPTH = 12


class Found(NamedTuple):
    """Steps that make the pod fit, None for none. `at_least`: container moves that every plan needs. `proven`: these
    steps are the fewest, or there are none."""

    steps: tuple[Step, ...] | None
    at_least: int
    proven: bool


class _Node(NamedTuple):
    """A state of the search: containers moved so far, its draft, the step that led to it, and its predecessor."""

    moved: int
    draft: State
    step: Step | None
    before: _Node | None


def find_fewest_moves(
    space: Space, bound: LowerBound, pod: Pod, limit: int = MOST_STATES, *, most: int = IMPOSSIBLE - 1
) -> Found:
    """Find the fewest container moves, at most `most`, after which the node admits the pod."""
    start = space.initial_state()
    if space.admits(start, pod):
        return Found((), 0, True)
    if bound.minimum(start)[0] > most:
        return Found(None, 0, True)
    # If the pod does not fit with every movable group gone, no move helps: proven where more free CPUs can only help.
    hopeless = not space.admits(space.without_groups(start), pod)
    if hopeless and bound.is_monotonic:
        return Found(None, 0, True)
    found = _best_first(space, bound, pod, limit, most)
    if found.steps is None and not found.proven and not hopeless:
        steps = _beam(space, bound, pod, limit, most)
        if steps is not None:
            moved = sum(space.groups[step.group].weight for step in steps)
            return Found(steps, found.at_least, moved <= found.at_least)
    return found


def _best_first(space: Space, bound: LowerBound, pod: Pod, limit: int, most: int) -> Found:
    """Search exactly, until `limit` states are made."""
    start = space.initial_state()
    least = bound.minimum(start)
    # Among equal totals the state with fewer missing CPUs comes first, then the deeper one; the running number keeps
    # nodes out of the comparison.
    heap: list[tuple[int, int, int, int, _Node]] = [(least[0], least[1], 0, 0, _Node(0, start, None, None))]
    known = {space.signature(start.places): 0}
    made = 1
    while heap:
        total, _, _, _, node = heappop(heap)
        if made > limit:
            return Found(None, max(1, total if space.exhaustive else least[0]), False)
        # The heap keeps stale entries: a cheaper way to this state was found after this one was pushed.
        if known[space.signature(node.draft.places)] < node.moved:
            continue
        # Picking CPUs is the costly part, so it is put off until a state is expanded; its children know only counts.
        state = node.draft if node.step is None else space.pick_cpus(node.draft, node.step)
        if state is None:
            continue
        if total == node.moved and node.step is not None and space.admits(state, pod):
            # Where possible moves were left out, reaching a state first proves nothing; only the bound from the start
            # holds.
            at_least = node.moved if space.exhaustive else max(1, least[0])
            return Found(_path(node), at_least, space.exhaustive or node.moved <= at_least)
        here = _Node(node.moved, state, node.step, node.before)
        for child, key in _successors(space, here):
            if known.get(key, IMPOSSIBLE) <= child.moved:
                continue
            known[key] = child.moved
            needed, missing = bound.minimum(child.draft)
            if child.moved + needed <= most:
                made += 1
                heappush(heap, (child.moved + needed, missing, -child.moved, made, child))
    return Found(None, 0, space.exhaustive)


def _successors(space: Space, node: _Node) -> list[tuple[_Node, tuple[tuple[int, Place], ...]]]:
    """Return every state one step away, with its key."""
    found = []
    for step in space.steps(node.draft):
        draft = space.draft(node.draft, step)
        child = _Node(node.moved + space.groups[step.group].weight, draft, step, node)
        found.append((child, space.signature(draft.places)))
    return found


def _beam(space: Space, bound: LowerBound, pod: Pod, limit: int, most: int) -> tuple[Step, ...] | None:
    """Return steps that lead to the goal, not always the fewest; None when the beam misses it. Its width is what
    `limit` allows for a plan of usual length (`_DEPTH`)."""
    layer = [_Node(0, space.initial_state(), None, None)]
    known = {space.signature(layer[0].draft.places)}
    width = _BEAM
    while layer and len(known) <= limit:
        ranked: list[tuple[tuple[int, int], int, int, _Node]] = []
        for node in layer:
            for child, key in _successors(space, node):
                if key not in known and child.moved <= most:
                    known.add(key)
                    ranked.append((bound.estimate(child.draft), child.moved, len(ranked), child))
        # States with many successors narrow the beam, so that a plan of usual depth stays within the limit.
        width = min(width, max(_NARROWEST, limit * len(layer) // (_DEPTH * max(1, len(ranked)))))
        ranked.sort()
        layer = []
        for (needed, _), _, _, child in ranked:
            state = space.pick_cpus(child.draft, child.step) if child.step is not None else None
            if state is None:
                continue
            if needed == 0 and space.admits(state, pod):
                return _path(child)
            layer.append(_Node(child.moved, state, child.step, child.before))
            if len(layer) == width:
                break
    return None


def _path(node: _Node) -> tuple[Step, ...]:
    steps = []
    at: _Node | None = node
    while at is not None and at.step is not None:
        steps.append(at.step)
        at = at.before
    return tuple(reversed(steps))
