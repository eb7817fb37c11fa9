"""Moves that nobody asked for: room for pods that the node has just refused because nothing was aligned.

Only while the policy says `carryOut: automatic`. Looking for a plan takes long, so it is done beside the event loop on
a copy of the node; the plan is then carried out like any other. What was tried in vain is not tried again before the
node has changed. The room is nobody's: whoever comes first gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from podslice.advise.defrag.moves import DefragmentationResult, MoveRequest
from podslice.advise.defrag.plan import Plan, defragment
from podslice.agent.moves.memory_moves import RunInThread
from podslice.agent.moves.plan_executor import MovesRefusedError, PlanExecutor
from podslice.agent.owner import Owner
from podslice.agent.seam import failure_of
from podslice.agent.status.trialnode import copy_for_trial
from podslice.api.pod.spec import Pod
from podslice.node.holding import digest
from podslice.node.node import Node
from podslice.values.reasons import TOPOLOGY_AFFINITY

LATELY = 60.0
"""Seconds after which nobody is known to want the room."""
EVERY = 2.0
"""Seconds between two looks."""
MOST_STATES = 1000
"""Of the search for a plan: a second or two."""


class AutomaticDefrag:
    """On one node. `clock` is that of the refusals."""

    def __init__(
        self,
        owner: Owner,
        moving: PlanExecutor,
        *,
        clock: Callable[[], float] = time.perf_counter,
        run_in_thread: RunInThread = asyncio.to_thread,
    ) -> None:
        self._owner = owner
        self._moving = moving
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._tried: dict[str, str] = {}

    async def run(self) -> None:
        """Make room for ever."""
        while True:
            await asyncio.sleep(EVERY)
            await self.look()

    async def look(self) -> DefragmentationResult | None:
        """Make room for the first pod that wants some; None where none does, or nothing was moved."""
        if self._owner.admitting.policy.defrag.carry_out != "automatic":
            return None
        node = self._owner.node
        wants = None if node is None else next(self._wanting(node), None)
        if node is None or wants is None:
            return None
        state, most = digest(node.state).named, self._moving.left_this_hour
        try:
            plan = await self._run_in_thread(_plan, copy_for_trial(node), wants, most) if most else None
            if plan is None or not plan.fits or not plan.moves:
                return None
            return await self._moving.carry_out(MoveRequest(state, plan.moves))
        except MovesRefusedError as error:
            self._owner.reporter.trouble("defrag", str(error))
        except Exception as error:
            self._owner.reporter.trouble("defrag", str(failure_of("defrag", error)))
        return None

    def _wanting(self, node: Node) -> Iterator[Pod]:
        """Pods that were refused lately, and for which nothing was tried on the node as it is."""
        state = digest(node.state).named
        refused = {uid: pod.refusals[uid] for uid, pod in self._owner.pods.items() if uid in pod.refusals}
        self._tried = {uid: tried for uid, tried in self._tried.items() if uid in refused}
        for uid, refusal in refused.items():
            lately = refusal.final and self._clock() - refusal.at <= LATELY
            wants = lately and refusal.reason == TOPOLOGY_AFFINITY and not refusal.waits_for
            if wants and refusal.spec is not None and self._tried.get(uid) != state:
                self._tried[uid] = state
                yield refusal.spec


def _plan(node: Node, pod: Pod, most: int) -> Plan:
    return defragment(node, pod, most=most, limit=MOST_STATES)
