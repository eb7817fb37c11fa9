"""One move of running containers: the order of its writes, how they are verified, and how they are rolled back.

While it runs the pod owns both its old and its new CPUs, in the node's state and on disk, so at every moment a CPU is
effective for the containers of one owner at most, or for the shared ones. Until the state is committed everything can
be rolled back, and is at the first deviation; a process killed anywhere starts with the move done or never begun.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from typing import NamedTuple

from podslice.advise.defrag.moves import MoveOutcome, Result, lent_cpus, move_text, problem_with_lent
from podslice.advise.defrag.plan import Lent, Move, apply_move
from podslice.agent.contract import MoveReport, NodeEvents
from podslice.agent.moves.memory_moves import MemoryMoves, RunInThread
from podslice.agent.moves.move_rules import Threads, ledger_problem, permission_problem, pinned_problem
from podslice.agent.owner import Owner
from podslice.agent.records import ContainerRecord, Pinning
from podslice.agent.resize.actuator import LONGEST_CALL, error_text
from podslice.agent.resize.cgroup_writes import LONGEST_LEAVING, POLL_SECONDS, Cgroups, CPUEvacuator, wait_until_vacated
from podslice.agent.resize.resizing import Resizing
from podslice.agent.runtime.exposure import Upcoming
from podslice.agent.seam import failure_of
from podslice.agent.status.live import movable_now
from podslice.api.pod.spec import Pod
from podslice.config.annotations import container_movability
from podslice.host.kernel.cgroup2 import cgroup_path
from podslice.host.state.resize_store import ResizeStore
from podslice.host.state.store import StateWriteError
from podslice.node.cpu.state import Intent
from podslice.node.holding import digest
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.service.identity import Identity
from podslice.values.cpuset import Bits, format_bits
from podslice.values.errors import InputError, PodsliceError


class MoveConflictError(PodsliceError):
    """Something differs from what the plan expects."""


class MoveStep(NamedTuple):
    """A container and its pinning before and after the move."""

    record: ContainerRecord
    before: Pinning
    after: Pinning


class RunningMove(NamedTuple):
    """A move that has begun: the node before and after it, and the containers that move.

    `known`: ids of all containers of the pod. `promised`: digest of the state after the move.
    """

    move: Move
    identity: Identity
    intent: Intent
    before: NodeView
    after: NodeView
    place: Callable[[Node], None]
    steps: tuple[MoveStep, ...]
    known: frozenset[str]
    promised: str

    @property
    def unit(self) -> str:
        """UID under which the pod was admitted."""
        return self.move.uid

    @property
    def takes(self) -> Bits:
        """CPUs that have to be free of all other containers before the pod comes."""
        had, gets = self.intent.sides
        return gets.cpus & ~had.cpus


class MoveRecord(NamedTuple):
    """The outcome of a move, the digest of the state it leads to, and the number of containers that moved."""

    outcome: MoveOutcome
    promised: str
    went: int


class MoveRunner:
    """Executes moves on one node, one at a time. `find` returns the latest specification of a pod, `threads` the
    affinities of a container's threads; `kernel` is the release. Setting `stopping` cuts the delay of a move short."""

    def __init__(
        self,
        owner: Owner,
        events: NodeEvents,
        resizing: Resizing,
        cgroups: Cgroups,
        memory: MemoryMoves,
        *,
        find: Callable[[Identity], Pod | None],
        threads: Threads,
        kernel: tuple[int, int],
        clock: Callable[[], float] = time.monotonic,
        run_in_thread: RunInThread = asyncio.to_thread,
    ) -> None:
        self._owner = owner
        self._events = events
        self._resizing = resizing
        self._cgroups = cgroups
        self._memory = memory
        self._evacuator = CPUEvacuator(owner, cgroups)
        self._find = find
        self._threads = threads
        self._kernel = kernel
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._unfinished_rollbacks: dict[str, RunningMove] = {}
        self.stopping = asyncio.Event()

    @property
    def _store(self) -> ResizeStore:
        store = self._owner.store
        if store is None:
            raise MoveConflictError("the state cannot be trusted")
        return store

    async def retry_rollbacks(self) -> None:
        """Retry rollbacks that failed earlier."""
        for running_move in list(self._unfinished_rollbacks.values()):
            await self._roll_back(running_move)

    async def one(self, move: Move, lent: Lent | None) -> MoveRecord:
        """Execute a move, or leave everything as it was."""
        started, record = self._clock(), self._owner.pods.get(move.uid.partition("/")[0])
        identity = Identity(move.uid, move.namespace, move.name, {}) if record is None else record.identity
        had = lent_cpus(self._store.node.state.cpu.of_pod(move.uid))
        result: Result = "notBegun"
        promised, problem, count = "", "", 0
        try:
            running_move = await self._begin(identity, move, lent)
            promised, count = running_move.promised, len(running_move.steps)
            result, problem = await self._execute(running_move)
        except (MoveConflictError, StateWriteError, InputError) as error:
            problem = str(error)
        seconds = self._clock() - started
        text = f"{move_text(move)}: {problem}" if problem else move_text(move)
        self._owner.reporter.moved(identity, MoveReport(result, text, seconds))
        return MoveRecord(MoveOutcome(move, result, problem, int(seconds * 1000), had), promised, count)

    async def _begin(self, identity: Identity, move: Move, lent: Lent | None) -> RunningMove:
        """Check a move and record it in the state and on disk. Raises `MoveConflictError`, `StateWriteError`."""
        running_move = self._plan(identity, move, lent)
        pod = self._pod(move)
        for step in running_move.steps:
            too = container_movability(self._owner.admitting.policy, pod).get(step.record.member) == "pinned-too"
            threads = await self._run_in_thread(self._threads, step.record)
            _raise_conflict(pinned_problem(step.record, step.before.cpus, threads, too=too, kernel=self._kernel))
        # Planned again: reading the threads awaited, and the node may have changed.
        running_move = self._plan(identity, move, lent)
        self._owner.placing.running_move[move.uid] = running_move.before
        try:
            self._store.begin_move(move.uid, running_move.intent)
        except StateWriteError:
            del self._owner.placing.running_move[move.uid]
            raise
        self._owner.admitting.journal.record_move()
        return running_move

    def _plan(self, identity: Identity, move: Move, lent: Lent | None) -> RunningMove:
        """Check a move and derive its steps. Raises `MoveConflictError`."""
        store = self._store
        if move.uid in self._owner.placing.running_move:
            raise MoveConflictError("an earlier move of the pod is not rolled back yet")
        _raise_conflict(ledger_problem(store.node.view, move))
        _raise_conflict(permission_problem(self._owner.admitting.policy, self._pod(move), move))
        if self._resizing.waits(move.uid) or move.uid in store.open_resizes:
            raise MoveConflictError("a resize of the pod is waiting or running")

        def place(node: Node) -> None:
            apply_move(node, move, lent=lent)

        seen: list[tuple[NodeView, str]] = []

        def place_and_look(node: Node) -> None:
            place(node)
            seen.append((node.view, digest(node.state).named))

        before = store.node.view
        intent = store.plan_move(move.uid, lambda node: apply_move(node, move))
        if lent is not None:
            _raise_conflict(problem_with_lent(*intent.sides, lent))
        intent = store.plan_move(move.uid, place_and_look)
        after, promised = seen[0]
        steps = tuple(self._steps(move.uid, before, after))
        known = frozenset(record.id for record in self._resizing.actuator.records(move.uid))
        running_move = RunningMove(move, identity, intent, before, after, place, steps, known, promised)
        if running_move.takes & ~before.assignable:
            raise MoveConflictError(f"CPUs {format_bits(running_move.takes & ~before.assignable)} are not free")
        self._check_running(running_move)
        return running_move

    def _pod(self, move: Move) -> Pod:
        """Return the pod's latest known specification."""
        return movable_now(self._owner, self._store.node.view.pods[move.uid].spec, self._find)

    def _steps(self, unit: str, before: NodeView, after: NodeView) -> list[MoveStep]:
        """Return the running containers whose pinning changes."""
        placing, records = self._owner.placing, self._resizing.actuator.records(unit)
        wanted = []
        for view in (before, after):
            placing.running_move[unit] = view
            wanted.append([placing.wanted(record) for record in records])
        del placing.running_move[unit]
        steps = [MoveStep(*one) for one in zip(records, *wanted, strict=True)]
        return [one for one in steps if one.before != one.after]

    def _check_running(self, running_move: RunningMove) -> None:
        """Check that the moving containers run where the state says. Raises `MoveConflictError`."""
        for record, before, _ in running_move.steps:
            found = self._cgroups.effective(record) if record.started else None
            if found is None:
                raise MoveConflictError(f"container {record.name} is being created, or its cgroup is not visible")
            if found != before.cpus:
                raise MoveConflictError(
                    f"container {record.name} runs on CPUs {format_bits(found)}, the ledger says {before.cpu_list}"
                )

    # Execution

    async def _execute(self, running_move: RunningMove) -> tuple[Result, str]:
        """Write, verify and commit a move, or roll it back; return the result and the problem or remark."""
        try:
            remark = await self._write_cgroups(running_move)
            self._check_unchanged(running_move)
            self._store.commit_move(running_move.unit, running_move.place)
        except Exception as error:
            problem = self._describe(running_move, error)
            left = await self._roll_back(running_move)
            return "failed", f"{problem}; {left}" if left else problem
        except asyncio.CancelledError:
            await self._roll_back(running_move)
            raise
        self._finish(running_move)
        return "done", remark

    def _describe(self, running_move: RunningMove, error: Exception) -> str:
        """Return an error as text; one that is not expected is reported as a failure of this pod."""
        if isinstance(error, (OSError, PodsliceError)):
            return error_text(error)
        self._owner.reporter.failed(running_move.identity, failure_of("move", error))
        return f"{type(error).__name__}: {error}"

    async def _write_cgroups(self, running_move: RunningMove) -> str:
        """Do all writes before the commit; return a remark about memory that still migrates. Raises `OSError`,
        `MoveConflictError`."""
        # During the delay the runtime may apply an older answer, so `_check_free` looks again just before the write.
        owner = self._owner
        await self._evacuator.evacuate(running_move.takes, owner.containers.values())
        await self._announce(running_move)
        await self._wait_until_written()
        await self._memory.widen(running_move.steps)
        self._check_unchanged(running_move)
        self._check_free(running_move)
        owner.placing.running_move[running_move.unit] = running_move.after
        for record, before, after in running_move.steps:
            if before.cpus == after.cpus:
                continue
            if not self._cgroups.narrow(record, after.cpus):
                raise MoveConflictError(f"container {record.name} has no cgroup any more")
            owner.updates.narrowed(record, after.cpus)
        for record, _, after in running_move.steps:
            await self._wait_until_on(record, after.cpus)
        return await self._memory.follow(running_move.steps)

    async def _announce(self, running_move: RunningMove) -> None:
        """Announce the coming CPUs to the containers that move, and wait for the delay."""
        seconds = self._resizing.actuator.delay_of(
            running_move.before.pods[running_move.unit].spec, running_move.intent
        )
        if not seconds:
            return
        placing = self._owner.placing
        at = self._owner.admitting.now() + seconds
        for record, _, after in running_move.steps:
            placing.upcoming[record.id] = Upcoming(after.exclusive or after.cpus, at)
            self._events.pinning_changed(record)
        try:
            await self._resizing.actuator.until(self.stopping, seconds)
        finally:
            for record, _, _ in running_move.steps:
                placing.upcoming.pop(record.id, None)
                self._events.pinning_changed(record)
        if self.stopping.is_set():
            raise MoveConflictError("the agent is being stopped")

    async def _wait_until_written(self) -> None:
        """Wait until the runtime has applied earlier answers, which name the old sets. Raises `MoveConflictError`."""
        updates = self._owner.updates
        while (seconds := updates.answered_at + LONGEST_CALL - updates.clock()) > 0:
            await self._resizing.actuator.until(self.stopping, seconds)
            if self.stopping.is_set():
                raise MoveConflictError("the agent is being stopped")

    def _check_unchanged(self, running_move: RunningMove) -> None:
        """Check that pod, containers and CPUs are those the move began with. Raises `MoveConflictError`."""
        node = self._store.node
        if running_move.unit not in node.view.pods:
            raise MoveConflictError("the pod has gone")
        now = {record.id for record in self._resizing.actuator.records(running_move.unit)}
        gone = [step.record.name for step in running_move.steps if step.record.id not in now]
        if gone or now != running_move.known:
            raise MoveConflictError(
                f"container {gone[0]} has ended" if gone else "the pod has another container by now"
            )
        both, has = running_move.intent.both, node.state.cpu.of_pod(running_move.unit)
        if (has.assignments, has.pod_cpus) != (both.assignments, both.pod_cpus):
            raise MoveConflictError("the pod's CPUs were changed meanwhile")
        had, gets = running_move.intent.sides
        if had.memory != gets.memory and node.view.memory != running_move.before.memory:
            raise MoveConflictError("memory of the node was given to others or freed meanwhile")

    def _check_free(self, running_move: RunningMove) -> None:
        """Check that the kernel lets no other container run on the new CPUs. Raises `MoveConflictError`."""
        going = {step.record.id for step in running_move.steps}
        for record in self._owner.containers.values():
            if record.id not in going and (found := (self._cgroups.effective(record) or 0) & running_move.takes):
                raise MoveConflictError(
                    f"container {record.name} runs again on CPUs {format_bits(found)}, which it had left"
                )

    async def _wait_until_on(self, record: ContainerRecord, cpus: Bits) -> None:
        """Wait until the kernel reports these CPUs for the container. Raises `OSError`, `MoveConflictError`."""
        patience = LONGEST_LEAVING
        while (found := self._cgroups.effective(record)) != cpus:
            if found is None:
                raise MoveConflictError(f"container {record.name} has no cgroup any more")
            if patience <= 0:
                place = f"{cgroup_path(record.cgroups_path)}/cpuset.cpus.effective"
                raise OSError(errno.EBUSY, f"is {format_bits(found)} and not {format_bits(cpus)}", place)
            patience -= POLL_SECONDS
            await asyncio.sleep(POLL_SECONDS)

    def _finish(self, running_move: RunningMove) -> None:
        """Rewrite the containers' files, remove the intent, and release the CPUs that were left."""
        owner = self._owner
        owner.placing.running_move.pop(running_move.unit, None)
        for record in self._resizing.actuator.records(running_move.unit):
            owner.updates.write_started(record, self._cgroups.write)
            self._events.change_finished(record)
        try:
            self._store.end_resize(running_move.unit)
        except StateWriteError as error:
            owner.reporter.trouble("stateWrite", str(error))
        self._announce_room(running_move.unit)

    def _announce_room(self, unit: str) -> None:
        self._owner.admitting.journal.record_move()
        self._owner.updates.unit_changed(unit)
        self._owner.updates.pool_changed()
        self._owner.made_room()

    # Rollback

    async def _roll_back(self, running_move: RunningMove) -> str:
        """Undo a move; return why that is not possible, empty where it is.

        After a failed rollback the pod keeps both sets of CPUs, and the rollback is retried before the next plan.
        """
        owner = self._owner
        owner.placing.running_move[running_move.unit] = running_move.before
        try:
            for record, before, after in reversed(running_move.steps):
                there = owner.containers.get(record.id) is record and before.cpus != after.cpus
                if there and not self._is_on(record, before.cpus) and self._cgroups.narrow(record, before.cpus):
                    owner.updates.narrowed(record, before.cpus)
            live = [step.record for step in running_move.steps if owner.containers.get(step.record.id) is step.record]
            await wait_until_vacated(self._cgroups, [(record, running_move.takes) for record in live])
            await self._memory.restore(running_move.steps)
        except OSError as error:
            self._unfinished_rollbacks[running_move.unit] = running_move
            text = (
                f"it could not be undone: {error_text(error)}; CPUs {format_bits(running_move.takes)} stay its own too"
            )
            owner.reporter.trouble("move", f"{running_move.identity}: {text}")
            return text
        self._unfinished_rollbacks.pop(running_move.unit, None)
        owner.placing.running_move.pop(running_move.unit, None)
        if running_move.unit in self._store.node.view.pods:
            try:
                self._store.undo_move(running_move.unit)
            except StateWriteError as error:
                owner.reporter.trouble("stateWrite", str(error))
        self._announce_room(running_move.unit)
        return ""

    def _is_on(self, record: ContainerRecord, cpus: Bits) -> bool:
        """Return whether nothing else was written into the container's cgroup."""
        return record.applied.cpus == cpus == self._cgroups.effective(record)


def _raise_conflict(problem: str) -> None:
    if problem:
        raise MoveConflictError(problem)
