"""The cheapest ways out for a pod that no node takes: moves of other containers, evictions, a smaller request.

Each is searched on a few nodes, in the node's own state with the pods on their way, and each was tried: after it the
core admits the pod. Pure functions of values, so that they can run in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from podslice.advise.defrag.plan import Move, apply_move, defragment
from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.changes import EditPod
from podslice.advise.explain.fixes.fix import price
from podslice.advise.explain.fixes.pod_fixes import PodFixes
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.cluster.model.eviction import Evictable, find_victims
from podslice.cluster_view.answers import WayOut
from podslice.node.decide import decide, release, shape_of
from podslice.node.node import Node
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.values.errors import UpstreamDefectError

_MOST_MOVES = 6
_MOST_STATES = 400
_ANY_PRIORITY = 1 << 40
_SHARES = ("fraction", "share")
"""Codes of fixes after which the pod has no exclusive CPUs, which is not what it asked for."""
_MOST_NAMED = 4


class CrowdedNode(NamedTuple):
    """A node that refuses the pod: its `state` with the pods on their way, and its pods by priority."""

    name: str
    rules: NodeRules
    state: NodeState
    running: tuple[Evictable, ...]


def ways_out(pod: Pod, nodes: Sequence[CrowdedNode], names: Mapping[str, str]) -> tuple[WayOut, ...]:
    """Return the cheapest way of each kind, the cheapest first. `names` are NAMESPACE/NAME by UID. Never raises for a
    decoded pod."""
    best: dict[str, WayOut] = {}
    for node in nodes:
        for way in ways_on(pod, node, names):
            known = best.get(way.kind)
            if known is None or way.cost < known.cost:
                best[way.kind] = way
    return tuple(sorted(best.values(), key=lambda way: way.cost))


def ways_on(pod: Pod, node: CrowdedNode, names: Mapping[str, str]) -> Iterator[WayOut]:
    """Yield the ways on one node."""
    for search in (_moves, _eviction, _request):
        try:
            yield from search(pod, node, names)
        except UpstreamDefectError:
            continue


def _moves(pod: Pod, node: CrowdedNode, names: Mapping[str, str]) -> Iterator[WayOut]:
    plan = defragment(Node.of(node.rules, node.state), pod, most=_MOST_MOVES, limit=_MOST_STATES)
    if not plan.fits or not plan.moves or not _fits_after(pod, node, plan.moves):
        return
    moved = tuple(dict.fromkeys(_name(move.uid, names) for move in plan.moves))
    count = plan.container_moves
    text = f"Move {count} container{'s' if count != 1 else ''} of {_list_text(moved)} within {node.name}"
    yield WayOut("moves", node.name, text, price("move-containers", extra=0.5 * (count - 1)), moved)


def _fits_after(pod: Pod, node: CrowdedNode, moves: Iterable[Move]) -> bool:
    copy = Node.of(node.rules, node.state)
    for move in moves:
        apply_move(copy, move)
    return copy.try_admit(pod).admitted


def _eviction(pod: Pod, node: CrowdedNode, names: Mapping[str, str]) -> Iterator[WayOut]:
    """Yield the eviction of pods of lower priority, which the scheduler may do; else of any priority, which only a
    person may, at a higher cost."""
    shape = shape_of(node.rules, pod)
    for below, extra in ((pod.spec.priority or 0, 0.0), (_ANY_PRIORITY, 5.0)):
        victims = find_victims(node.rules, node.state, shape, node.running, below=below)
        if victims and _fits_without(pod, node, victims):
            who = tuple(_name(one.uid, names) for one in victims)
            why = "of lower priority" if not extra else "of no lower priority"
            text = f"Evict {_list_text(who)} from {node.name} ({why})"
            yield WayOut("eviction", node.name, text, price("evict-pods", extra=extra + 2 * (len(who) - 1)), who)
            return


def _fits_without(pod: Pod, node: CrowdedNode, victims: Iterable[Evictable]) -> bool:
    state = node.state
    for one in victims:
        state = release(node.rules, state, one.uid)
    return decide(node.rules, state, pod).refusal is None


def _request(pod: Pod, node: CrowdedNode, names: Mapping[str, str]) -> Iterator[WayOut]:
    asked = default_pod(pod, node.rules.gates)
    fixes = PodFixes(Alternatives(Trial.of(Node.of(node.rules, node.state))), asked).find()
    for fix in sorted(fixes, key=lambda one: one.cost):
        if fix.code in _SHARES or not isinstance(fix.change, EditPod):
            continue
        if decide(node.rules, node.state, fix.change.pod).refusal is None:
            yield WayOut("request", node.name, f"{fix.text}, for {node.name}", fix.cost, (), fix.edits)
            return


def _name(uid: str, names: Mapping[str, str]) -> str:
    return names.get(uid, uid)


def _list_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
