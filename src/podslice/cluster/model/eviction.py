"""The choice of victims for a pod that only topology keeps out.

kube-scheduler never preempts for topology alone, because a node that only an extender refuses seems to fit without any
victim. So victims are chosen here, by the rule of `scheduling.victims` on copies of the node's state. Pods that leave
anyway cost nothing. PodDisruptionBudgets are respected by the Eviction API, through which pods leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podslice.node.decide import Shape, decide, release
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.scheduling.victims import cost_of, order_by_importance, reprieve
from podslice.values.errors import UpstreamDefectError


class Evictable(NamedTuple):
    """A pod on a node, with its priority and start in Unix seconds. `going`: it is being deleted."""

    uid: str
    priority: int = 0
    since: float = 0.0
    going: bool = False


class Eviction(NamedTuple):
    """A node and the UIDs of its victims, the least important first."""

    node: str
    victims: tuple[str, ...]


def find_victims(
    rules: NodeRules, state: NodeState, pod: Shape, running: Iterable[Evictable], *, below: int
) -> tuple[Evictable, ...] | None:
    """Return the pods with a priority lower than `below` that have to leave. None where the pod does not fit even
    without all of them; empty where it fits without victims, or once pods that leave anyway are gone."""
    here = [one for one in running if one.uid in state.pods]
    state = _without(rules, state, (one for one in here if one.going))
    lower = order_by_importance(one for one in here if one.priority < below and not one.going)
    if not _admits(rules, _without(rules, state, lower), pod):
        return None
    leaving, _ = reprieve(lower, lambda _, fewer: _admits(rules, _without(rules, state, fewer), pod))
    return tuple(reversed(leaving))


def choose_cheapest(found: Sequence[tuple[str, tuple[Evictable, ...]]]) -> Eviction | None:
    """Choose the node whose victims cost least, by name among equals."""
    if not found:
        return None
    node, victims = min(found, key=lambda one: (cost_of(one[1]), one[0]))
    return Eviction(node, tuple(one.uid for one in victims))


def _without(rules: NodeRules, state: NodeState, leaving: Iterable[Evictable]) -> NodeState:
    for one in leaving:
        state = release(rules, state, one.uid)
    return state


def _admits(rules: NodeRules, state: NodeState, pod: Shape) -> bool:
    try:
        return decide(rules, state, pod).refusal is None
    # v1.36.2 crashes or hangs here: that is no room.
    except UpstreamDefectError:
        return False
