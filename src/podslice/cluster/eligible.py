"""Where the scheduler's own plugins would let a pod go, as far as it can be told from the pod and the node alone.

Only nodes that pass here are nominated. It need not be the whole truth: kube-scheduler runs all its plugins on a
nominated node too, and looks elsewhere where one refuses it. Pods whose place depends on other pods, on volumes or on
claims are not nominated at all; they go the ordinary way (docs/cluster-scheduler.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from podslice.k8s.clusterobjects import PlacementTerms, ScheduledNode, Taint, Toleration

_KEEPS_OUT = ("NoSchedule", "NoExecute")
_CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def takes(node: ScheduledNode, terms: PlacementTerms) -> bool:
    """True when labels, taints and cordons of the node let such a pod in."""
    if any(node.labels.get(key) != value for key, value in terms.selector):
        return False
    taints = (*node.taints, _CORDON) if node.unschedulable else node.taints
    return all(tolerated(taint, terms.tolerations) for taint in taints if taint.effect in _KEEPS_OUT)


def why_not(node: ScheduledNode, terms: PlacementTerms) -> str:
    """What of a node keeps such a pod out, in kube-scheduler's words; empty where it is let in."""
    if takes(node, terms):
        return ""
    if any(node.labels.get(key) != value for key, value in terms.selector):
        return "node(s) didn't match Pod's node affinity/selector"
    if node.unschedulable and not tolerated(_CORDON, terms.tolerations):
        return "node(s) were unschedulable"
    return "node(s) had untolerated taint(s)"


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """True when one of them tolerates the taint."""
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(one: Toleration, taint: Taint) -> bool:
    if one.effect and one.effect != taint.effect:
        return False
    if one.key and one.key != taint.key:
        return False
    if one.operator == "Exists":
        return True
    return bool(one.key) and one.operator in ("", "Equal") and one.value == taint.value


class Places:
    """The nodes of the cluster, and which of them a pod may go to."""

    def __init__(self) -> None:
        self.nodes: dict[str, ScheduledNode] = {}
        self._special: set[str] = set()

    def put(self, node: ScheduledNode) -> None:
        self.nodes[node.name] = node
        if node.taints or node.unschedulable:
            self._special.add(node.name)
        else:
            self._special.discard(node.name)

    def drop(self, name: str) -> None:
        self.nodes.pop(name, None)
        self._special.discard(name)

    def among(self, terms: PlacementTerms) -> list[str] | None:
        """Names of the nodes that let such a pod in; None for all there are."""
        if not terms.selector and not self._special:
            return None
        return [name for name, node in self.nodes.items() if takes(node, terms)]
