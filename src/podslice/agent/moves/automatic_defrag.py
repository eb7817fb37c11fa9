"""Automatic defragmentation: makes room for pods that the node has just refused because nothing was aligned.

Active only under `defrag.carryOut: automatic`. The search for a plan is slow, so it runs in a thread on a copy of the
node; the plan is then carried out like any other. An unsuccessful search is repeated only after the node has changed.
The room is not reserved: the pod admitted first gets it.
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

WANTED_SECONDS = 60.0
"""Seconds after a refusal for which the pod is taken to be still waiting."""
INTERVAL_SECONDS = 2.0
"""Seconds between two attempts."""
SEARCH_LIMIT = 1000
"""States that one search for a plan may visit: a second or two."""


class AutomaticDefrag:
    """Makes room on one node. `clock` is the clock of the refusals."""

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
        """Make room for refused pods, for ever."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.make_room()

    async def make_room(self) -> DefragmentationResult | None:
        """Make room for the first pod that needs some; None where none does, or nothing was moved."""
        if self._owner.admitting.policy.defrag.carry_out != "automatic":
            return None
        node = self._owner.node
        wants = None if node is None else next(self._refused_pods(node), None)
        if node is None or wants is None:
            return None
        state, most = digest(node.state).named, self._moving.remaining_this_hour
        # The digest was taken before the search: a node that changes meanwhile has the plan refused as outdated.
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

    def _refused_pods(self, node: Node) -> Iterator[Pod]:
        """Yield recently refused pods for which no plan was searched on the node as it is now."""
        state = digest(node.state).named
        refused = {uid: pod.refusals[uid] for uid, pod in self._owner.pods.items() if uid in pod.refusals}
        self._tried = {uid: tried for uid, tried in self._tried.items() if uid in refused}
        for uid, refusal in refused.items():
            lately = refusal.final and self._clock() - refusal.at <= WANTED_SECONDS
            wants = lately and refusal.reason == TOPOLOGY_AFFINITY and not refusal.waits_for
            if wants and refusal.spec is not None and self._tried.get(uid) != state:
                self._tried[uid] = state
                yield refusal.spec


def _plan(node: Node, pod: Pod, most: int) -> Plan:
    return defragment(node, pod, most=most, limit=SEARCH_LIMIT)
