"""The connection of journals and placements: events, confirmations, and what only passing time changes."""

from __future__ import annotations

import asyncio

from podslice.cluster.journal.confirmations import Confirmations
from podslice.cluster.journal.sources import ReplicaSource
from podslice.cluster.placements import Placements
from podslice.replica.events import Stamped
from podslice.replica.replica import ApplyResult
from podslice.service.clusterobjects import ScheduledNode
from podslice.service.pacing import LoopTurn

_LOOK_SECONDS = 0.5


class JournalFeed:
    """Passes events of journals to the placements, and nodes that left the cluster to the journals."""

    def __init__(self, placing: Placements, journals: ReplicaSource, confirmations: Confirmations) -> None:
        self._placing, self._journals, self._confirmations = placing, journals, confirmations

    def apply(self, node: str, stamped: Stamped, applied: ApplyResult) -> None:
        """Take in an event after the node's replica did."""
        self._placing.apply_event(node, stamped, applied, self._journals.nodes[node].replica)
        self.confirm(node)

    def confirm(self, node: str) -> None:
        """Confirm a node whose stream is alive and agrees, or end its confirmation."""
        self._placing.confirm(node, confirmed=self._confirmations.look(node))

    def forget_gone(self, old: ScheduledNode | None, new: ScheduledNode | None) -> None:
        """Forget a node that left the cluster."""
        if new is None and old is not None:
            self._journals.forget(old.name)
            self._confirmations.forget(old.name)


class Upkeep:
    """Expires holds, and takes silent nodes out of use."""

    def __init__(self, placing: Placements, journals: ReplicaSource, confirmations: Confirmations) -> None:
        self._placing, self._journals, self._confirmations = placing, journals, confirmations

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
            await self.confirm_all()

    async def confirm_all(self) -> None:
        """Look at every node that has or had an agent, and report what changed."""
        turn = LoopTurn()
        await self._placing.confirm_all(self._confirmations.look)
        # Of another version, or without a state: the model has no nodes but those of journals, and maybe not all.
        if len(self._journals.nodes) > len(self._placing.model.names()):
            for name in list(self._journals.nodes):
                if not self._placing.model.has_node(name):
                    self._confirmations.look(name)
                await turn.give_way()
        self._confirmations.report()
