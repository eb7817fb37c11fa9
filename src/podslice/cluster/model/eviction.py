"""Room for a pod that topology keeps out: which pods of lower priority leave which node.

kube-scheduler never preempts for topology alone, because a node that only an extender refuses seems to fit without any
victim. So this is asked beside it: all pods of lower priority are taken away in thought, from the node's own state, and
as many as can be stay, the most important and the longest running first. What is left must go; without any one of them
the pod would not be admitted. Pods that leave anyway cost nothing. Budgets of disruption are respected by whoever
evicts (the Eviction API).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podslice.node.decide import Shape, decide, release
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.values.errors import UpstreamDefectError


class Evictable(NamedTuple):
    """A pod on a node, its priority and when it began, in seconds. `going`: it leaves in any case."""

    uid: str
    priority: int = 0
    began: float = 0.0
    going: bool = False


class Eviction(NamedTuple):
    """The pods that leave a node so that another fits, by UID, least important first."""

    node: str
    victims: tuple[str, ...]


def find_victims(
    rules: NodeRules, state: NodeState, pod: Shape, running: Iterable[Evictable], *, below: int
) -> tuple[Evictable, ...] | None:
    """Which of the pods with a priority below that have to leave; None where it does not help if all do, nobody where
    the pod fits as it is, or will once those that leave anyway are gone."""
    here = [one for one in running if one.uid in state.pods]
    state = _without(rules, state, (one for one in here if one.going))
    lower = sorted((one for one in here if one.priority < below and not one.going), key=_importance)
    if not _admits(rules, _without(rules, state, lower), pod):
        return None
    leaving = lower
    for one in lower:
        fewer = [other for other in leaving if other is not one]
        if _admits(rules, _without(rules, state, fewer), pod):
            leaving = fewer
    return tuple(reversed(leaving))


def choose_cheapest(found: Sequence[tuple[str, tuple[Evictable, ...]]]) -> Eviction | None:
    """Of several nodes the one whose most important victim matters least, then their sum, then the fewest, then those
    that began last (kube-scheduler's order)."""
    if not found:
        return None
    node, victims = min(found, key=lambda one: (_cost(one[1]), one[0]))
    return Eviction(node, tuple(one.uid for one in victims))


def _importance(one: Evictable) -> tuple[int, float, str]:
    """The most important first."""
    return -one.priority, one.began, one.uid


def _cost(victims: Sequence[Evictable]) -> tuple[int, int, int, float]:
    most = max((one.priority for one in victims), default=0)
    began = min((one.began for one in victims if one.priority == most), default=0.0)
    return most, sum(one.priority for one in victims), len(victims), -began


def _without(rules: NodeRules, state: NodeState, leaving: Iterable[Evictable]) -> NodeState:
    for one in leaving:
        state = release(rules, state, one.uid)
    return state


def _admits(rules: NodeRules, state: NodeState, pod: Shape) -> bool:
    try:
        return decide(rules, state, pod).refusal is None
    except UpstreamDefectError:
        return False
