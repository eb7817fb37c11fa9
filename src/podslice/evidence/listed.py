"""Pods of a list that run on the node of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podslice.api.pod.spec import Pod
from podslice.evidence.provenance import LeftOut, Reason

ENDED = ("Succeeded", "Failed")
"""Phases of pods that no longer hold resources."""
_PENDING = "Pending"


class ListedPods(NamedTuple):
    """Pods of a list: those that run on the node, those that have ended, those of other nodes, and all that are left
    out by reason."""

    running: tuple[Pod, ...]
    ended: tuple[Pod, ...]
    elsewhere: tuple[Pod, ...]
    left_out: tuple[LeftOut, ...]


def sort_listed(pods: Iterable[Pod], node: str = "") -> ListedPods:
    """Sort the pods of a list by whether they run on the node of this name; pods of every node count where the name is
    empty. A pod that names no node counts unless its status says that it waits for one."""
    found: dict[Reason | None, list[Pod]] = {None: [], "ended": [], "pending": [], "other-node": []}
    for pod in pods:
        found[_reason_to_leave_out(pod, node)].append(pod)
    left_out = tuple(
        LeftOut(reason, tuple(one.metadata.full_name for one in some))
        for reason, some in found.items()
        if reason is not None and some
    )
    return ListedPods(tuple(found[None]), tuple(found["ended"]), tuple(found["other-node"]), left_out)


def _reason_to_leave_out(pod: Pod, node: str) -> Reason | None:
    if pod.status.phase in ENDED:
        return "ended"
    if not pod.spec.node_name:
        return "pending" if pod.status.phase == _PENDING else None
    return "other-node" if node and pod.spec.node_name != node else None


def find_node_name(asked: Iterable[Pod], machine: str, listed: Sequence[Pod]) -> str:
    """Return the name of the node that an answer is about: that of the pods asked about, else the machine's where the
    list has pods of it. Empty where neither says it."""
    named = {pod.spec.node_name for pod in asked} - {""}
    if len(named) == 1:
        return named.pop()
    return machine if any(pod.spec.node_name == machine for pod in listed) else ""
