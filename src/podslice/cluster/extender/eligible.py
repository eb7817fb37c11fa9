"""Eligible nodes by labels, taints and cordons: the scheduler's own filters that need only the pod and the node.

Only nodes that pass here are nominated. It need not be complete: kube-scheduler runs all its plugins on a nominated
node too, and looks elsewhere where one refuses it. Pods that depend on other pods, on volumes or on claims are not
nominated at all; they go the ordinary way (docs/cluster-scheduler.md).
"""

from __future__ import annotations

from podslice.scheduling.selectors import has_labels
from podslice.scheduling.taints import CORDON, Taint
from podslice.service.clusterobjects import PlacementTerms, ScheduledNode

TaintKind = frozenset[Taint]
"""The taints that keep pods out; nodes with equal ones are of one kind."""


def taints_of(node: ScheduledNode) -> TaintKind:
    """Return the taints of a node that keep pods out; a cordon counts as its taint."""
    cordon = (CORDON,) if node.unschedulable else ()
    return frozenset((*(taint for taint in node.taints if taint.excludes), *cordon))


def is_tolerated(kind: TaintKind, terms: PlacementTerms) -> bool:
    """Whether a pod tolerates nodes of this kind. One with more tolerations than are read counts as tolerant."""
    return bool(terms.excess) or all(map(terms.tolerations.tolerate, kind))


def is_eligible(node: ScheduledNode, terms: PlacementTerms) -> bool:
    """Whether labels, taints and cordons of the node admit such a pod."""
    return _is_selected(node, terms) and is_tolerated(taints_of(node), terms)


def exclusion_reason(node: ScheduledNode, terms: PlacementTerms) -> str:
    """Return why a node excludes such a pod, in kube-scheduler's words; empty for no reason."""
    if is_eligible(node, terms):
        return ""
    if not _is_selected(node, terms):
        return "node(s) didn't match Pod's node affinity/selector"
    if node.unschedulable and not terms.tolerations.tolerate(CORDON):
        return "node(s) were unschedulable"
    return "node(s) had untolerated taint(s)"


def _is_selected(node: ScheduledNode, terms: PlacementTerms) -> bool:
    return has_labels(node.labels, terms.selector)


class Places:
    """The nodes of the cluster by taints, so that a pod's tolerations are compared once per kind of node, not per
    node."""

    def __init__(self) -> None:
        self.nodes: dict[str, ScheduledNode] = {}
        self._kinds: dict[TaintKind, dict[str, ScheduledNode]] = {}

    def put(self, node: ScheduledNode) -> None:
        self._forget(node.name)
        self.nodes[node.name] = node
        self._kinds.setdefault(taints_of(node), {})[node.name] = node

    def drop(self, name: str) -> None:
        self._forget(name)
        self.nodes.pop(name, None)

    def _forget(self, name: str) -> None:
        known = self.nodes.get(name)
        if known is not None:
            kind = taints_of(known)
            del self._kinds[kind][name]
            if not self._kinds[kind]:
                del self._kinds[kind]

    def among(self, terms: PlacementTerms) -> list[str] | None:
        """Return the names of eligible nodes; None for all nodes."""
        allowed = [nodes for kind, nodes in self._kinds.items() if is_tolerated(kind, terms)]
        if terms.selector:
            return [name for nodes in allowed for name, node in nodes.items() if _is_selected(node, terms)]
        if len(allowed) == len(self._kinds):
            return None
        return [name for nodes in allowed for name in nodes]
