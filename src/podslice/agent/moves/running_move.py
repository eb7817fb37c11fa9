"""One move of running containers, on its way: what is written in which order, read back, and taken back.

While it lasts the pod owns the CPUs that it leaves and those that it is to have, in the ledgers and on the disk, so at
every moment a CPU is effective for one owner's containers at most, or for the shared ones. Until the ledgers say that
it is done everything can be taken back, and is at the first surprise; a process killed anywhere starts with the move
done or never begun.
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


class MoveConflictError(Exception):
    """Something is not as the plan has it."""


class MoveStep(NamedTuple):
    """A container that goes from what it had to what it is to have."""

    record: ContainerRecord
    before: Pinning
    after: Pinning


class RunningMove(NamedTuple):
    """A move on its way: the node as it was and as it is to be, and who goes; `known` are all
    containers of the pod, `promised` is the digest of the state it leads to."""

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
        """The UID under which the pod was admitted."""
        return self.move.uid

    @property
    def takes(self) -> Bits:
        """CPUs that nobody may run on before it comes."""
        had, gets = self.intent.sides
        return gets.cpus & ~had.cpus


class MoveRecord(NamedTuple):
    """What became of a move, the digest of the state it was to lead to, and how many containers went."""

    outcome: MoveOutcome
    promised: str
    went: int


class MoveRunner:
    """Makes moves on one node, one after the other. `find` knows what pods say now; `threads` the affinities of a
    container's; `kernel` is its release. Once `stopping` is set the delay of a move is cut short."""

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
        self._leaving = CPUEvacuator(owner, cgroups)
        self._find = find
        self._threads = threads
        self._kernel = kernel
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._stuck: dict[str, RunningMove] = {}
        self.stopping = asyncio.Event()

    @property
    def _store(self) -> ResizeStore:
        store = self._owner.store
        if store is None:
            raise MoveConflictError("the state cannot be trusted")
        return store

    async def release_stuck(self) -> None:
        """Take back what could not be taken back before."""
        for running_move in list(self._stuck.values()):
            await self._taken_back(running_move)

    async def one(self, move: Move, lent: Lent | None) -> MoveRecord:
        """Make it, or leave everything as it was."""
        started, record = self._clock(), self._owner.pods.get(move.uid.partition("/")[0])
        identity = Identity(move.uid, move.namespace, move.name, {}) if record is None else record.identity
        had = lent_cpus(self._store.node.state.cpu.of_pod(move.uid))
        result: Result = "notBegun"
        promised, problem, count = "", "", 0
        try:
            running_move = await self._begun(identity, move, lent)
            promised, count = running_move.promised, len(running_move.steps)
            result, problem = await self._through(running_move)
        except (MoveConflictError, StateWriteError, InputError) as error:
            problem = str(error)
        seconds = self._clock() - started
        text = f"{move_text(move)}: {problem}" if problem else move_text(move)
        self._owner.reporter.moved(identity, MoveReport(result, text, seconds))
        return MoveRecord(MoveOutcome(move, result, problem, int(seconds * 1000), had), promised, count)

    async def _begun(self, identity: Identity, move: Move, lent: Lent | None) -> RunningMove:
        """A move that nothing stands in the way of, in the ledgers. Raises `MoveConflictError`, `StateWriteError`."""
        running_move = self._planned(identity, move, lent)
        pod = self._pod(move)
        for step in running_move.steps:
            too = container_movability(self._owner.admitting.policy, pod).get(step.record.member) == "pinned-too"
            threads = await self._run_in_thread(self._threads, step.record)
            _surprise(pinned_problem(step.record, step.before.cpus, threads, too=too, kernel=self._kernel))
        running_move = self._planned(identity, move, lent)
        self._owner.placing.running_move[move.uid] = running_move.before
        try:
            self._store.begin_move(move.uid, running_move.intent)
        except StateWriteError:
            del self._owner.placing.running_move[move.uid]
            raise
        self._owner.admitting.journal.moved()
        return running_move

    def _planned(self, identity: Identity, move: Move, lent: Lent | None) -> RunningMove:
        """Raises `MoveConflictError`."""
        store = self._store
        if move.uid in self._owner.placing.running_move:
            raise MoveConflictError("an earlier move of the pod is not undone yet")
        _surprise(ledger_problem(store.node.view, move))
        _surprise(permission_problem(self._owner.admitting.policy, self._pod(move), move))
        if self._resizing.waits(move.uid) or move.uid in store.open_resizes:
            raise MoveConflictError("a resize of the pod waits or is on its way")

        def place(node: Node) -> None:
            apply_move(node, move, lent=lent)

        seen: list[tuple[NodeView, str]] = []

        def place_and_look(node: Node) -> None:
            place(node)
            seen.append((node.view, digest(node.state).named))

        before = store.node.view
        intent = store.plan_move(move.uid, lambda node: apply_move(node, move))
        if lent is not None:
            _surprise(problem_with_lent(*intent.sides, lent))
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
        """What the pod says by now, as far as it can be known."""
        return movable_now(self._owner, self._store.node.view.pods[move.uid].spec, self._find)

    def _steps(self, unit: str, before: NodeView, after: NodeView) -> list[MoveStep]:
        """Its containers that run and get other sets."""
        placing, records = self._owner.placing, self._resizing.actuator.records(unit)
        wanted = []
        for view in (before, after):
            placing.running_move[unit] = view
            wanted.append([placing.wanted(record) for record in records])
        del placing.running_move[unit]
        steps = [MoveStep(*one) for one in zip(records, *wanted, strict=True)]
        return [one for one in steps if one.before != one.after]

    def _check_running(self, running_move: RunningMove) -> None:
        """Who is to go is where the ledgers say. Raises `MoveConflictError`."""
        for record, before, _ in running_move.steps:
            found = self._cgroups.effective(record) if record.started else None
            if found is None:
                raise MoveConflictError(f"container {record.name} is being made, or its cgroup cannot be seen")
            if found != before.cpus:
                raise MoveConflictError(
                    f"container {record.name} runs on CPUs {format_bits(found)}, the ledger says {before.cpu_list}"
                )

    # RunningMove

    async def _through(self, running_move: RunningMove) -> tuple[Result, str]:
        """What became of it: the result, and what was the matter."""
        try:
            remark = await self._cross(running_move)
            self._check_still(running_move)
            self._store.commit_move(running_move.unit, running_move.place)
        except Exception as error:
            problem = self._said(running_move, error)
            left = await self._taken_back(running_move)
            return "failed", f"{problem}; {left}" if left else problem
        except asyncio.CancelledError:
            await self._taken_back(running_move)
            raise
        self._settle(running_move)
        return "done", remark

    def _said(self, running_move: RunningMove, error: Exception) -> str:
        """What is wrong; an error that nobody expects is this pod's failure."""
        if isinstance(error, (OSError, PodsliceError, MoveConflictError)):
            return error_text(error)
        self._owner.reporter.failed(running_move.identity, failure_of("move", error))
        return f"{type(error).__name__}: {error}"

    async def _cross(self, running_move: RunningMove) -> str:
        """All writes up to the ledgers; what is to be said of it besides. Raises `OSError`, `MoveConflictError`."""
        owner = self._owner
        await self._leaving.leave(running_move.takes, owner.containers.values())
        await self._announce(running_move)
        await self._answers_written()
        await self._memory.widen(running_move.steps)
        self._check_still(running_move)
        self._check_free(running_move)
        owner.placing.running_move[running_move.unit] = running_move.after
        for record, before, after in running_move.steps:
            if before.cpus == after.cpus:
                continue
            if not self._cgroups.narrow(record, after.cpus):
                raise MoveConflictError(f"container {record.name} has no cgroup any more")
            owner.updates.narrowed(record, after.cpus)
        for record, _, after in running_move.steps:
            await self._on(record, after.cpus)
        return await self._memory.follow(running_move.steps)

    async def _announce(self, running_move: RunningMove) -> None:
        """Containers that are to go are told where, and left time."""
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

    async def _answers_written(self) -> None:
        """The runtime has written what it was answered before all this, which says other sets. Raises
        `MoveConflictError`."""
        updates = self._owner.updates
        while (seconds := updates.answered_at + LONGEST_CALL - updates.clock()) > 0:
            await self._resizing.actuator.until(self.stopping, seconds)
            if self.stopping.is_set():
                raise MoveConflictError("the agent is being stopped")

    def _check_still(self, running_move: RunningMove) -> None:
        """The pod, its containers and its CPUs are those that the move began with. Raises `MoveConflictError`."""
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
        if (has.assignments, has.bubble) != (both.assignments, both.bubble):
            raise MoveConflictError("the pod's CPUs were changed meanwhile")
        had, gets = running_move.intent.sides
        if had.memory != gets.memory and node.view.memory != running_move.before.memory:
            raise MoveConflictError("memory of the node was given to others or freed meanwhile")

    def _check_free(self, running_move: RunningMove) -> None:
        """By the kernel's word nobody is left on the CPUs that it is to have. Raises `MoveConflictError`."""
        going = {step.record.id for step in running_move.steps}
        for record in self._owner.containers.values():
            if record.id not in going and (found := (self._cgroups.effective(record) or 0) & running_move.takes):
                raise MoveConflictError(
                    f"container {record.name} runs again on CPUs {format_bits(found)}, which it had left"
                )

    async def _on(self, record: ContainerRecord, cpus: Bits) -> None:
        """Returns when the kernel says that a container runs on these CPUs. Raises `OSError`, `MoveConflictError`."""
        patience = LONGEST_LEAVING
        while (found := self._cgroups.effective(record)) != cpus:
            if found is None:
                raise MoveConflictError(f"container {record.name} has no cgroup any more")
            if patience <= 0:
                place = f"{cgroup_path(record.cgroups_path)}/cpuset.cpus.effective"
                raise OSError(errno.EBUSY, f"is {format_bits(found)} and not {format_bits(cpus)}", place)
            patience -= POLL_SECONDS
            await asyncio.sleep(POLL_SECONDS)

    def _settle(self, running_move: RunningMove) -> None:
        """The ledgers say that it is done: its containers are told, and the others may have what it left."""
        owner = self._owner
        owner.placing.running_move.pop(running_move.unit, None)
        for record in self._resizing.actuator.records(running_move.unit):
            owner.updates.write_started(record, self._cgroups.write)
            self._events.change_finished(record)
        try:
            self._store.end_resize(running_move.unit)
        except StateWriteError as error:
            owner.reporter.trouble("stateWrite", str(error))
        self._open_up(running_move.unit)

    def _open_up(self, unit: str) -> None:
        self._owner.admitting.journal.moved()
        self._owner.updates.unit_changed(unit)
        self._owner.updates.pool_changed()
        self._owner.made_room()

    # The way back

    async def _taken_back(self, running_move: RunningMove) -> str:
        """Everything is as it was; else what is not. Then nobody else gets the CPUs, and it is tried again before the
        next plan."""
        owner = self._owner
        owner.placing.running_move[running_move.unit] = running_move.before
        try:
            for record, before, after in reversed(running_move.steps):
                there = owner.containers.get(record.id) is record and before.cpus != after.cpus
                if there and not self._is_on(record, before.cpus) and self._cgroups.narrow(record, before.cpus):
                    owner.updates.narrowed(record, before.cpus)
            live = [step.record for step in running_move.steps if owner.containers.get(step.record.id) is step.record]
            await wait_until_vacated(self._cgroups, [(record, running_move.takes) for record in live])
            await self._memory.back(running_move.steps)
        except OSError as error:
            self._stuck[running_move.unit] = running_move
            text = (
                f"it could not be undone: {error_text(error)}; CPUs {format_bits(running_move.takes)} stay its own too"
            )
            owner.reporter.trouble("move", f"{running_move.identity}: {text}")
            return text
        self._stuck.pop(running_move.unit, None)
        owner.placing.running_move.pop(running_move.unit, None)
        if running_move.unit in self._store.node.view.pods:
            try:
                self._store.undo_move(running_move.unit)
            except StateWriteError as error:
                owner.reporter.trouble("stateWrite", str(error))
        self._open_up(running_move.unit)
        return ""

    def _is_on(self, record: ContainerRecord, cpus: Bits) -> bool:
        """True for a container that has not been written elsewhere."""
        return record.applied.cpus == cpus == self._cgroups.effective(record)


def _surprise(problem: str) -> None:
    if problem:
        raise MoveConflictError(problem)
