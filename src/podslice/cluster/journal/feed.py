"""From the nodes' journals to the placements: each event, whether a node is heard, and what only time brings."""

from __future__ import annotations

import asyncio

from podslice.cluster.journal.sources import ReplicaSource
from podslice.cluster.placements import Placements
from podslice.replica.events import Stamped
from podslice.replica.replica import ApplyResult
from podslice.service.clusterobjects import ScheduledNode

_LOOK_SECONDS = 0.5


class JournalFeed:
    """Takes what journals announce to the placements, and nodes that left the cluster back to the journals."""

    def __init__(self, placing: Placements, journals: ReplicaSource) -> None:
        self._placing, self._journals = placing, journals

    def apply(self, node: str, stamped: Stamped, applied: ApplyResult) -> None:
        """Take in an event after the node's replica did."""
        self._placing.apply_event(node, stamped, applied, self._journals.nodes[node].replica)
        self.confirm(node)

    def confirm(self, node: str) -> None:
        """Confirm the node, or not, as its stream is now."""
        self._placing.confirm(node, confirmed=self._journals.is_fresh(node))

    def forget_gone(self, old: ScheduledNode | None, new: ScheduledNode | None) -> None:
        """Forget a node that left the cluster."""
        if new is None and old is not None:
            self._journals.forget(old.name)


class Upkeep:
    """What only time brings: holds that expire, and nodes that fall silent."""

    def __init__(self, placing: Placements, journals: ReplicaSource) -> None:
        self._placing, self._journals = placing, journals

    async def run(self) -> None:
        """Look twice a second, for ever."""
        events = self._placing.events
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for uid in self._placing.expire():
                events.settled(uid)
                pod = self._placing.pods.get(uid)
                if pod is not None and not pod.node:
                    events.pending(pod)
            await self._placing.confirm_all(self._journals.is_fresh)
