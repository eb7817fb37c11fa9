"""Carrying out plans of moves that make room for a pod (docs/defrag.md, Carrying out a plan).

One plan at a time, move by move, and only on the state it was made on. Nothing is made better on the way: what is not
as the plan has it ends the plan.
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

AN_HOUR = 3600.0
LONGEST_END = 2.0
"""Seconds that an agent which is being stopped waits for a move."""
Tell = Callable[[MoveProgress], None]
"""Hears of every move that has ended. Raises `ConnectionError` where nobody listens any more."""


class MovesRefusedError(PodsliceError):
    """Nothing was moved."""


class PlanExecutor:
    """Of one node. With `observe` nothing is moved. `last` is what became of the last plan that moved anybody."""

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

    async def carry_out(self, request: MoveRequest, tell: Tell | None = None) -> DefragmentationResult:
        """One plan at a time, move by move, up to the first surprise. Raises `MovesRefusedError`."""
        if self._busy:
            raise MovesRefusedError("another plan is being carried out")
        self._busy = True
        try:
            before = await self._accepted(request)
            outcomes, problem = await self._all(request, tell)
            result = DefragmentationResult(tuple(outcomes), before, self._digest(), problem, request.undo)
            if any(outcome.result == "done" for outcome in outcomes):
                self.last = result
            return result
        finally:
            self._busy = False

    async def close(self) -> None:
        """No further move begins, and the delay of one is cut short."""
        self._running_moves.stopping.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_END):
                while self._busy:
                    await asyncio.sleep(POLL_SECONDS)

    # Whether

    @property
    def _store(self) -> ResizeStore:
        store = self._owner.store
        if store is None:
            raise MovesRefusedError(f"the state cannot be trusted: {self._owner.safe_mode or 'it is not read yet'}")
        return store

    def _digest(self) -> str:
        return digest(self._store.node.state).named

    async def _accepted(self, request: MoveRequest) -> str:
        """The digest of the state on which the plan begins. Raises `MovesRefusedError`."""
        rules = self._owner.admitting.policy.defrag
        if self._observe:
            raise MovesRefusedError("this is a dry run")
        if rules.carry_out == "never":
            raise MovesRefusedError("the policy of this node says defrag.carryOut: never")
        store = self._store
        await self._running_moves.release_stuck()
        before = self._digest()
        stale = f"the plan was made on the state {request.state[:40] or 'of nobody knows what'}, now it is {before}"
        if request.state != before:
            raise MovesRefusedError(f"{stale}: plan anew")
        self._check_hour(request, rules.max_moves_per_hour)
        problem = await self._run_in_thread(problem_in_moves, Trial.of(copy_for_trial(store.node)), request.moves)
        if problem:
            raise MovesRefusedError(problem)
        if self._digest() != before:
            raise MovesRefusedError(f"{stale}: plan anew")
        return before

    @property
    def left_this_hour(self) -> int:
        """How many containers may still be moved."""
        while self._moved and self._clock() - self._moved[0] > AN_HOUR:
            self._moved.popleft()
        return max(0, self._owner.admitting.policy.defrag.max_moves_per_hour - len(self._moved))

    def _check_hour(self, request: MoveRequest, most: int) -> None:
        """Raises `MovesRefusedError`; the way back is always open."""
        left = self.left_this_hour
        count = sum(len(move.containers) for move in request.moves)
        if not request.undo and count > left:
            done = f", of which {len(self._moved)} are made" if self._moved else ""
            raise MovesRefusedError(f"the plan moves {count} containers, defrag.maxMovesPerHour is {most}{done}")

    async def _all(self, request: MoveRequest, tell: Tell | None) -> tuple[list[MoveOutcome], str]:
        """What became of each move, and what stopped them."""
        outcomes, problem, expected = list[MoveOutcome](), "", self._digest()
        for number, move in enumerate(request.moves, 1):
            if not problem and self._running_moves.stopping.is_set():
                problem = "the agent is being stopped"
            elif not problem and self._digest() != expected:
                problem = "somebody else's CPUs or memory changed meanwhile"
            if problem:
                outcomes.append(MoveOutcome(move, "notBegun"))
                continue
            outcome, expected, count = await self._running_moves.one(
                move, request.lent[number - 1] if request.lent else None
            )
            self._moved.extend([self._clock()] * (count if outcome.result == "done" else 0))
            outcomes.append(outcome)
            problem = outcome.problem
            if tell is None:
                continue
            try:
                tell(MoveProgress(number, len(request.moves), move_text(move), outcome.result, problem))
            except ConnectionError:
                problem = problem or "whoever asked has gone"
        return outcomes, problem if any(one.result != "done" for one in outcomes) else ""
