"""Executes plans of moves that make room for a pod (docs/defrag.md, Carrying out a plan).

One plan at a time, move by move, and only from the state it was made on. Nothing is improvised: the first deviation
from the plan ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

from podslice.advise.defrag.moves import DefragmentationResult, MoveOutcome, MoveProgress, MoveRequest, move_text
from podslice.advise.defrag.plan import problem_in_moves
from podslice.advise.trial.trial import Trial
from podslice.agent.moves.memory_moves import RunInThread
from podslice.agent.moves.running_move import MoveRunner
from podslice.agent.owner import Owner
from podslice.agent.resize.cgroup_writes import POLL_SECONDS
from podslice.agent.status.trialnode import copy_for_trial
from podslice.host.state.resize_store import ResizeStore
from podslice.node.holding import digest
from podslice.values.errors import PodsliceError

HOUR_SECONDS = 3600.0
LONGEST_END = 2.0
"""Seconds that a stopping agent waits for a running move."""
ReportProgress = Callable[[MoveProgress], None]
"""Called after each move. Raises `ConnectionError` where the client has gone."""


class MovesRefusedError(PodsliceError):
    """The plan was refused; nothing was moved."""


class PlanExecutor:
    """Executes plans on one node. `observe`: moves nothing. `last` is the result of the latest plan that moved a
    container."""

    def __init__(
        self,
        owner: Owner,
        running_moves: MoveRunner,
        *,
        observe: bool = False,
        clock: Callable[[], float] = time.monotonic,
        run_in_thread: RunInThread = asyncio.to_thread,
    ) -> None:
        self._owner = owner
        self._running_moves = running_moves
        self._observe = observe
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._busy = False
        self._moved: deque[float] = deque()
        self.last: DefragmentationResult | None = None

    async def carry_out(
        self, request: MoveRequest, report_progress: ReportProgress | None = None
    ) -> DefragmentationResult:
        """Execute a plan, move by move, up to the first deviation. Raises `MovesRefusedError`."""
        if self._busy:
            raise MovesRefusedError("another plan is being carried out")
        self._busy = True
        try:
            before = await self._accept(request)
            outcomes, problem = await self._run_moves(request, report_progress)
            result = DefragmentationResult(tuple(outcomes), before, self._digest(), problem, request.undo)
            if any(outcome.result == "done" for outcome in outcomes):
                self.last = result
            return result
        finally:
            self._busy = False

    async def close(self) -> None:
        """Begin no further move, and cut the delay of a running one short."""
        self._running_moves.stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_END):
                while self._busy:
                    await asyncio.sleep(POLL_SECONDS)

    # Checks

    @property
    def _store(self) -> ResizeStore:
        store = self._owner.store
        if store is None:
            raise MovesRefusedError(f"the state cannot be trusted: {self._owner.safe_mode or 'it is not read yet'}")
        return store

    def _digest(self) -> str:
        return digest(self._store.node.state).named

    async def _accept(self, request: MoveRequest) -> str:
        """Check a plan and return the digest of the state it begins with. Raises `MovesRefusedError`."""
        rules = self._owner.admitting.policy.defrag
        if self._observe:
            raise MovesRefusedError("this is a dry run")
        if rules.carry_out == "never":
            raise MovesRefusedError("the policy of this node says defrag.carryOut: never")
        store = self._store
        await self._running_moves.retry_rollbacks()
        before = self._digest()
        stale = f"the plan was made on the state {request.state[:40] or '(none given)'}, now it is {before}"
        if request.state != before:
            raise MovesRefusedError(f"{stale}: plan anew")
        self._check_hour(request, rules.max_moves_per_hour)
        problem = await self._run_in_thread(problem_in_moves, Trial.of(copy_for_trial(store.node)), request.moves)
        if problem:
            raise MovesRefusedError(problem)
        # The check ran in a thread, and pods may have come or gone in that time.
        if self._digest() != before:
            raise MovesRefusedError(f"{stale}: plan anew")
        return before

    @property
    def remaining_this_hour(self) -> int:
        """Number of containers that may still be moved in this hour."""
        while self._moved and self._clock() - self._moved[0] > HOUR_SECONDS:
            self._moved.popleft()
        return max(0, self._owner.admitting.policy.defrag.max_moves_per_hour - len(self._moved))

    def _check_hour(self, request: MoveRequest, most: int) -> None:
        """Check the limit of moves per hour; undoing a plan is always allowed. Raises `MovesRefusedError`."""
        left = self.remaining_this_hour
        count = sum(len(move.containers) for move in request.moves)
        if not request.undo and count > left:
            done = f", of which {len(self._moved)} are made" if self._moved else ""
            raise MovesRefusedError(f"the plan moves {count} containers, defrag.maxMovesPerHour is {most}{done}")

    async def _run_moves(
        self, request: MoveRequest, report_progress: ReportProgress | None
    ) -> tuple[list[MoveOutcome], str]:
        """Execute the moves; return the outcome of each, and the problem that stopped them."""
        outcomes, problem, expected = list[MoveOutcome](), "", self._digest()
        for number, move in enumerate(request.moves, 1):
            if not problem and self._running_moves.stopping.is_set():
                problem = "the agent is being stopped"
            elif not problem and self._digest() != expected:
                problem = "CPUs or memory of another pod changed meanwhile"
            if problem:
                outcomes.append(MoveOutcome(move, "notBegun"))
                continue
            outcome, expected, count = await self._running_moves.one(
                move, request.lent[number - 1] if request.lent else None
            )
            self._moved.extend([self._clock()] * (count if outcome.result == "done" else 0))
            outcomes.append(outcome)
            problem = outcome.problem
            if report_progress is None:
                continue
            try:
                report_progress(MoveProgress(number, len(request.moves), move_text(move), outcome.result, problem))
            except ConnectionError:
                # This move is done and stays; no one would see the outcome of further ones.
                problem = problem or "the client has disconnected"
        return outcomes, problem if any(one.result != "done" for one in outcomes) else ""
