"""Fixes that concern other pods: deleting them, letting them come back after the pod, and another node."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.bench import PodNeeds
from podslice.advise.explain.fixes.changes import EmptyNode, Remove
from podslice.advise.explain.fixes.fix import COSTS, Fix
from podslice.advise.explain.fixes.removals import Removals
from podslice.api.pod.critical import is_critical
from podslice.node.view import NodeView
from podslice.values.cpuset import format_bits
from podslice.values.quantity import plural

_MOST_MOVES = 8
_MOST_NAMED = 6
_ANOTHER_POD = 0.5


def pod_moves(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield the least disruptive pod, pair, or set of pods to restart on the node, and to delete from it. A set that
    may come back is not proposed twice."""
    node = nodes.view
    search = Removals(nodes, needs)
    uids = tuple(uid for uid in nodes.least_disruptive if uid != needs.admission.uid)
    removed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    then: NodeView | None = None
    may_move = nodes.has_room_for_all(needs)
    for count, one in enumerate(search.singles(uids)):
        removed = removed or (one,)
        if may_move and (then := nodes.readmit((one,), needs)) is not None:
            moved = (one,)
        # Trying whether a pod comes back takes a whole node each time, so it ends after a few.
        if moved or not may_move or count == _MOST_MOVES:
            break
    if not removed:
        removed = search.pair(uids) or search.few(uids)
        if removed and may_move and (then := nodes.readmit(removed, needs)) is not None:
            moved = removed
    if removed and set(removed) != set(moved):
        yield removal(node, removed)
    if then is not None:
        yield _return(node, moved, then)


def removal(node: NodeView, uids: tuple[str, ...]) -> Fix:
    """Return the fix that these pods leave the node."""
    # What they own may be more than they need: an init container that has ended keeps its CPUs.
    owned = sum(node.owned_by(uid).bit_count() for uid in uids)
    have = "which own" if len(uids) > 1 else "which owns"
    cpus = f", {have} {plural(owned, 'CPU')}," if owned else ""
    them = "them run on other nodes" if len(uids) > 1 else "it run on another node"
    return Fix("evict-pods", f"Delete {_names(node, uids)}{cpus} and let {them}", _cost(node, "evict-pods", uids),
               Remove(uids))  # fmt: skip


def _return(node: NodeView, uids: tuple[str, ...], then: NodeView) -> Fix:
    """Return the fix that these pods leave and come back after the pod; `then` is the node after that was tried."""
    text = f"Delete {_names(node, uids)}, let this pod start, then let {_return_text(uids, then)}"
    return Fix("move-pods", text, _cost(node, "move-pods", uids), Remove(uids, back=True))


def _return_text(uids: tuple[str, ...], then: NodeView) -> str:
    if len(uids) > 1:
        return "them come back: they will fit on this node"
    (uid,) = uids
    cpus = then.owned_by(uid)
    numa = [node for node, own in then.topology.numa_nodes.items() if own & cpus]
    where = f"on NUMA {format_bits(sum(1 << one for one in numa))}" if numa and min(numa) >= 0 else "on this node"
    return f"{then.pods[uid].spec.metadata.name} come back: it will fit {where}"


def _names(node: NodeView, uids: tuple[str, ...]) -> str:
    names = [m.full_name for m in (node.pods[uid].spec.metadata for uid in uids)]
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more pods"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _cost(node: NodeView, code: str, uids: tuple[str, ...]) -> float:
    cpus = sum(node.pods[uid].cpus for uid in uids)
    critical = sum(is_critical(node.pods[uid].spec) for uid in uids)
    return round(COSTS[code] + _ANOTHER_POD * (len(uids) - 1) + min(0.4, cpus / 1000) + 5 * critical, 3)


def empty_node(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield the fix of another node with the same machine and configuration and no pods."""
    node = nodes.view
    if node.pods and nodes.admits_empty(needs, node.config, node.machine):
        yield Fix("empty-node", "Run it on an empty node like this one", COSTS["empty-node"], EmptyNode())
