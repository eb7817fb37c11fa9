"""The holds of all pods on their way: their begin, their deadline, and which end together.

A pod may be held on several nodes until the scheduler has chosen. The holds of a gang end together. A hold expires
unless its pod is bound. Each change is written into the node's row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush

from podslice.cluster.model.classes import StateClasses
from podslice.cluster.model.gangs import Gangs
from podslice.cluster.model.holds import FOREVER, HeldNode, Hold
from podslice.cluster.model.verdicts import ModelLimits, Verdicts
from podslice.replica.signature import Signature


class HeldPods:
    """`pods` are the holds by UID, the earliest first; `counts` counts those that expired."""

    def __init__(self, classes: StateClasses, verdicts: Verdicts, limits: ModelLimits, counts: Counter[str]) -> None:
        self.pods: dict[str, Hold] = {}
        self._further: dict[str, list[Hold]] = {}
        """Holds of pods on further nodes than the one in `pods`."""
        self._deadlines: list[tuple[float, str]] = []
        self._gangs = Gangs(limits.groups)
        self._evicting: set[str] = set()
        """UIDs of pods whose victims have yet to leave."""
        self._verdicts, self._nodes, self._classes = verdicts, verdicts.nodes, classes
        self._limits, self._counts = limits, counts

    # Begin and end

    def hold(self, uid: str, signature: Signature, name: str, now: float, *, group: str, bound: bool = False) -> None:
        """Hold a node for a pod, if it gets exclusive resources there."""
        node = self._nodes[name]
        if not node.kind.needs(signature).exclusive:
            return
        hold = Hold(uid, signature, name, since=now, group=group, bound=bound)
        node.add(self._classes, hold)
        if bound:
            # Bound elsewhere, or before a restart: no order was tried with it.
            node.proven = None
        if uid in self.pods:
            self._further.setdefault(uid, []).append(hold)
        else:
            self.pods[uid] = hold
        if not bound:
            # A bound pod neither expires nor falls with its gang.
            self._gangs.hold(uid, group)
            self._set_deadline(hold, now + self._hold_seconds(group))
        self._verdicts.write(node)

    def bind(self, hold: Hold) -> None:
        """Keep the hold of a bound pod until its node has reported it."""
        hold.bound, hold.until = True, FOREVER
        self._gangs.drop(hold.uid, hold.group)

    def drop(self, uid: str) -> None:
        """Drop all holds of a pod."""
        hold = self.pods.pop(uid, None)
        if hold is None:
            return
        self._forget(hold)
        for one in (hold, *self._further.pop(uid, ())):
            self._undo(one)

    def end(self, node: HeldNode, uid: str) -> None:
        """End the hold of a pod that its node has reported; the caller writes the node's state."""
        self._forget(node.forget(uid))
        del self.pods[uid]

    def remove_node(self, node: HeldNode) -> None:
        """Drop the holds on a node that is gone; holds of the same pods elsewhere stay."""
        for uid in list(node.holds):
            elsewhere = [one for one in (self.pods[uid], *self._further.pop(uid, ())) if one.node != node.name]
            if elsewhere:
                self.pods[uid], self._further[uid] = elsewhere[0], elsewhere[1:]
            else:
                self._forget(self.pods.pop(uid))

    def apply_deletion(self, uid: str, now: float) -> None:
        """End the hold of a pod that is gone from the API server. One of a bound pod stays a while, because its node
        may still start it; one of a gang's member ends all of the gang's."""
        hold = self.pods.get(uid)
        if hold is not None and hold.bound:
            self._set_deadline(hold, now + self._limits.deleted)
        elif hold is not None and hold.group:
            self._release(hold.group)
        else:
            self.drop(uid)

    def expire(self, now: float) -> list[str]:
        """Drop the holds whose deadline is over, and return the UIDs of their pods."""
        gone = []
        while self._deadlines and self._deadlines[0][0] <= now:
            until, uid = heappop(self._deadlines)
            hold = self.pods.get(uid)
            # Deadlines that were moved stay in the heap; only the one that is in the hold counts.
            if hold is not None and hold.until == until:
                self.drop(uid)
                fallen = [uid, *self._release(hold.group)]
                self._counts["expired"] += len(fallen)
                gone += fallen
        return gone

    def settle(self, uid: str, name: str) -> None:
        """Drop the holds of a pod on other nodes than this one, if it is held here."""
        held = [one for one in (self.pods.get(uid), *self._further.get(uid, ())) if one is not None]
        here = next((one for one in held if one.node == name), None)
        if here is None or len(held) == 1:
            return
        del self._further[uid]
        self.pods[uid] = here
        for one in held:
            if one is not here:
                self._undo(one)

    def _undo(self, hold: Hold) -> None:
        node = self._nodes[hold.node]
        node.forget(hold.uid)
        node.replay(self._classes)
        self._verdicts.write(node)

    def _forget(self, hold: Hold) -> None:
        self._evicting.discard(hold.uid)
        self._gangs.drop(hold.uid, hold.group)

    # How long

    def _set_deadline(self, hold: Hold, until: float) -> None:
        hold.until = until
        heappush(self._deadlines, (until, hold.uid))

    def _hold_seconds(self, group: str) -> float:
        if not group:
            return self._limits.hold
        return self._limits.failed_group_hold if group in self._gangs.short else self._limits.group_hold

    def pinned_node(self, uid: str, names: Sequence[str]) -> str:
        """Return the node to which a filter is pinned: the only one that it names, or the one where the pod may be
        bound already, because the outcome of its Binding is unknown. Empty for none."""
        hold = self.pods.get(uid)
        if hold is not None and hold.bound and hold.node in names:
            return hold.node
        return names[0] if len(names) == 1 else ""

    def keep_hold(self, uid: str, name: str, now: float) -> bool:
        """Whether the hold on the node that the scheduler asks for still stands; its deadline starts again."""
        self.settle(uid, name)
        hold = self.pods.get(uid)
        if hold is None or hold.node != name or not hold.fits or not self._nodes[name].confirmed:
            return False
        if not hold.bound and not self._nodes[name].fits_in_any_order(self._classes):
            return False
        if not hold.bound:
            self._set_deadline(hold, now + self._hold_seconds(hold.group))
        return True

    # Evictions

    def await_victims(self, uid: str, now: float) -> bool:
        """Keep the hold of a pod while victims leave for it. Returns False where there is none."""
        if uid not in self.pods:
            return False
        self._evicting.add(uid)
        return self.keep_room(uid, now)

    def keep_room(self, uid: str, now: float) -> bool:
        """Start the deadline again while victims leave. Returns False where nothing is held for the pod."""
        hold = self.pods.get(uid)
        if hold is None or uid not in self._evicting:
            return False
        self._set_deadline(hold, now + self._limits.eviction_hold)
        return True

    def is_awaiting_victims(self, uid: str) -> bool:
        """Whether the pod does not fit yet where victims leave for it."""
        return uid in self._evicting and not self.pods[uid].fits

    # Gangs

    def begin_simulation(self, uid: str, group: str) -> None:
        """Drop the holds of a group where this filter begins another simulation: a member is filtered again."""
        if group and self._gangs.start_simulation(uid, group):
            self._release(group)

    def mark_short(self, group: str, now: float) -> None:
        """Let the holds of a group expire soon, because a member found no node; not those of bound pods."""
        self._gangs.mark_short(group)
        for uid in self._gangs.held_members(group):
            self._set_deadline(self.pods[uid], now + self._limits.failed_group_hold)

    def release_short_groups(self, group: str) -> bool:
        """Drop the holds of groups that found no node for a member, because a pod of another group needs room. Returns
        whether there were any."""
        held = [other for other in self._gangs.short if other != group and self._gangs.held_members(other)]
        for other in held:
            self._release(other)
        return bool(held)

    def _release(self, group: str) -> list[str]:
        """Drop the holds of a group, except of bound pods; return the UIDs."""
        members = self._gangs.held_members(group)
        for uid in members:
            self.drop(uid)
        return members
