"""Carrying out one resize: what is written, in which order, and how it is taken back (docs/resize.md, In the agent).

At every moment a CPU is effective for one owner's containers at most, or for the shared ones: whoever loses CPUs leaves
them, and the kernel says so, before they are anybody else's. What is about to change is on disk before it changes, so a
process killed anywhere starts with the old CPUs or with the new ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from podslice.agent.contract import NodeEvents, ResizeReport
from podslice.agent.moves.memory_moves import RunInThread
from podslice.agent.moves.move_rules import Threads
from podslice.agent.owner import Owner
from podslice.agent.records import ContainerRecord
from podslice.agent.resize.cgroup_writes import Cgroups, CPUEvacuator
from podslice.agent.resize.memory_migration import MemoryMigration
from podslice.agent.resize.resize_in_progress import CPUsLostError, ResizeInProgress, ResizeRefusedError
from podslice.agent.resize.resize_requests import ResizeRequests
from podslice.agent.runtime.exposure import Upcoming
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.config.annotations import requested_resize
from podslice.config.policy import ExclusiveResize
from podslice.host.state.resize_store import ResizeStore
from podslice.host.state.store import StateWriteError
from podslice.node.cpu.state import Intent
from podslice.values.cpuset import format_bits

LONGEST_CALL = 2.0
"""Seconds after which a runtime that does not say so has written what it was answered."""


class Actuator:
    """Carries out the resizes of one node. `clock` counts seconds, `sleep` waits for them."""

    def __init__(
        self,
        owner: Owner,
        events: NodeEvents,
        requests: ResizeRequests,
        cgroups: Cgroups,
        *,
        memory: MemoryMigration | None = None,
        threads: Threads | None = None,
        run_in_thread: RunInThread = asyncio.to_thread,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._owner = owner
        self._events = events
        self._requests = requests
        self._cgroups = cgroups
        self._leaving = CPUEvacuator(owner, cgroups)
        self._memory = memory
        self._threads = threads
        self._run_in_thread = run_in_thread
        self._clock = clock
        self._sleep = sleep
        self.in_progress = requests.in_progress
        """By unit."""

    async def carry_out(self, ongoing: ResizeInProgress) -> None:
        """Raises `ResizeRefusedError`."""
        try:
            await self._carry_out(ongoing)
        finally:
            self._owner.placing.withheld.pop(ongoing.unit, None)
            if self.in_progress.get(ongoing.unit) is ongoing:
                del self.in_progress[ongoing.unit]
            ongoing.done.set()

    async def _carry_out(self, ongoing: ResizeInProgress) -> None:
        """All steps but the answer to a container that waits in its call. Raises `ResizeRefusedError` where it was
        undone; a pod that is gone ends it."""
        store, unit = self.store, ongoing.unit
        try:
            if ongoing.operation != "keep":
                store.begin_resize(unit, ongoing.intent)
            if ongoing.gives:
                self._owner.admitting.files.replace(ongoing.desired)
                await self._answered(ongoing)
                await self._delay(ongoing)
                await self._count_bound(ongoing)
                self._owner.placing.withheld[unit] = ongoing.changed
                await self._leaving.leave(ongoing.gives, self.records(unit))
            if self.active(unit) is None:
                return
            self._commit(store, ongoing)
            await self._left(store, ongoing)
            if self._memory is not None and (ongoing.gives or not ongoing.hook):
                records = self.records(unit)
                await self._memory.leave([(record, self._owner.placing.wanted(record)) for record in records])
        except (OSError, StateWriteError, CPUsLostError) as error:
            self._undo(store, ongoing)
            raise self._failed(ongoing, error_text(error)) from None
        except asyncio.CancelledError:
            self._undo(store, ongoing)
            raise
        self._owner.placing.withheld.pop(unit, None)
        if self.active(unit) is not None:
            self._settle(store, ongoing)

    async def _count_bound(self, ongoing: ResizeInProgress) -> None:
        """Look at the containers' threads while they still have what they are about to give back; only that they are
        there is told, nobody's affinity is set."""
        for record in self.records(ongoing.unit) if self._threads is not None else ():
            if record.started and record.applied.cpus & ongoing.gives:
                masks = (await self._run_in_thread(self._threads, record)).masks
                ongoing.bound += sum(1 for mask in masks if mask and not mask & ~ongoing.gives)

    async def _left(self, store: ResizeStore, ongoing: ResizeInProgress) -> None:
        """Nobody else is on what the pod has now, also where the machine changed meanwhile. Raises `OSError`, and
        `CPUsLostError` where CPUs went that it was to get."""
        machine, due = None, ongoing.changed
        while machine is not self._owner.machine:
            machine = self._owner.machine
            await self._leaving.leave(due, self._owner.containers.values())
            if gone := ongoing.takes & store.node.state.cpu.offline:
                raise CPUsLostError(f"CPUs {format_bits(gone)} went offline meanwhile")
            due = ongoing.changed | store.node.state.of_pod(ongoing.unit).cpus

    async def _answered(self, ongoing: ResizeInProgress) -> None:
        """The runtime has done with the call: it sets the CPUs that it was answered, and could do so late."""
        if ongoing.hook:
            await self.until(ongoing.applied, LONGEST_CALL)

    async def until(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for the event, but no longer than that by our own sleep."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._sleep(seconds))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _delay(self, ongoing: ResizeInProgress) -> None:
        """Containers that give back CPUs are told, and left time."""
        seconds = self.delay_of(ongoing.before, ongoing.intent)
        if not seconds:
            return
        ongoing.waiting = True
        for record in self.records(ongoing.unit):
            after = ongoing.intent.after.assignments.get(record.member)
            if after is not None and after != ongoing.intent.before.assignments.get(record.member):
                self._owner.placing.upcoming[record.id] = Upcoming(after, self._owner.admitting.now() + seconds)
                self._events.pinning_changed(record)
        try:
            await self.until(ongoing.hurry, seconds)
        finally:
            ongoing.waiting = False
            for record in self.records(ongoing.unit):
                if self._owner.placing.upcoming.pop(record.id, None):
                    self._events.pinning_changed(record)

    def delay_of(self, pod: Pod, intent: Intent) -> float:
        """How long the slowest of the containers that give back CPUs is waited for."""
        delays = requested_resize(self._owner.admitting.policy, pod).delays
        before, after = intent.before.assignments, intent.after.assignments
        running = {record.member for record in self.records(pod.metadata.uid)}
        giving = [name for name, cpus in before.items() if cpus & ~after.get(name, 0) and name in running]
        rule = self.policy.shrink_delay_seconds
        whole = rule if intent.before.bubble & ~intent.after.bubble else 0.0
        return max((delays.get(name, rule) for name in giving), default=whole)

    def _commit(self, store: ResizeStore, ongoing: ResizeInProgress) -> None:
        """The state says what is to be. Raises `OSError`, `StateWriteError`."""
        self._owner.placing.withheld[ongoing.unit] = ongoing.changed
        state = store.node.state
        before = state.of_pod(ongoing.unit)
        ongoing.stays = ongoing.stays or self.memory_stays(ongoing.unit, ongoing.intent)
        decision = store.resize(ongoing.desired, memory_stays=bool(ongoing.stays))
        if ongoing.stays:
            self._owner.admitting.journal.settle()
        else:
            self._owner.admitting.journal.resized(state, ongoing.desired, decision)
        if decision.outcome not in ("Allocated", "Unchanged"):
            raise StateWriteError(f"there is no room any more: {decision.message}")
        ongoing.committed = True
        ongoing.plan(ongoing.intent._replace(before=before, after=store.node.state.of_pod(ongoing.unit)))
        self._owner.placing.withheld[ongoing.unit] = ongoing.changed
        if not ongoing.gives:
            self._owner.admitting.files.replace(ongoing.desired)

    def _settle(self, store: ResizeStore, ongoing: ResizeInProgress) -> None:
        """Nobody is in the way: the pod's containers get what is theirs, everybody else what is left."""
        active = self.active(ongoing.unit)
        for record in self.records(ongoing.unit):
            if active is not None:
                self._allow(record, active)
                self._owner.carried_out(record)
            if record.id != ongoing.hook or ongoing.gives:
                self._owner.updates.write_started(record, self._cgroups.write)
            self._events.change_finished(record)
        self._owner.updates.unit_changed(ongoing.unit)
        self._owner.updates.pool_changed()
        if ongoing.hook and not ongoing.gives:
            asyncio.get_running_loop().call_soon(self.end, store, ongoing.unit)
        else:
            self.end(store, ongoing.unit)
        seconds = self._clock() - ongoing.since
        self._owner.reporter.resize_answered(
            ongoing.identity, ResizeReport(ongoing.operation, "applied", ongoing.text(), seconds=seconds)
        )
        if ongoing.gives:
            self._owner.made_room()

    def end(self, store: ResizeStore, unit: str) -> None:
        """No call waits for this: until it is written, the next process finds the resize done."""
        ongoing = self.in_progress.get(unit)
        if ongoing is not None and not ongoing.committed:
            return
        try:
            store.end_resize(unit)
        except StateWriteError as error:
            self._owner.reporter.trouble("stateWrite", str(error))

    def _allow(self, record: ContainerRecord, active: AdmissionPod) -> None:
        """Limit and weight of what a container has now; the runtime's call says them too, sooner or later."""
        container = next((one for one in active.containers if one.name == record.member), None)
        limit = None if container is None else (container.spec.resources.limits or {}).get("cpu")
        record.created = None
        if limit is None or not record.started:
            return
        milli = limit.milli_value()
        if record.limits is not None and record.limits.quota is not None:
            record.limits = replace(record.limits, quota=milli * record.limits.period // 1000)
        try:
            self._cgroups.weigh(record, milli)
        except OSError as error:
            self._owner.reporter.trouble("resize", error_text(error))

    def _undo(self, store: ResizeStore, ongoing: ResizeInProgress) -> None:
        """Everything is as it was: ledgers, files, and, with the next writes, cgroups."""
        self._owner.placing.withheld.pop(ongoing.unit, None)
        try:
            if self.active(ongoing.unit) is not None:
                if ongoing.committed:
                    store.undo_resize(ongoing.before, ongoing.intent.before)
                self._owner.admitting.files.replace(ongoing.before)
            store.end_resize(ongoing.unit)
        except (OSError, StateWriteError) as error:
            self._owner.reporter.trouble("stateWrite", error_text(error))
        self._owner.updates.unit_changed(ongoing.unit)
        self._owner.updates.pool_changed()

    def _failed(self, ongoing: ResizeInProgress, text: str) -> ResizeRefusedError:
        self._owner.reporter.resize_answered(ongoing.identity, ResizeReport(ongoing.operation, "failed", text))
        return ResizeRefusedError("failed", text)

    def memory_stays(self, unit: str, intent: Intent) -> str:
        """Why a pod's memory has to stay on NUMA nodes that it is to leave; empty where it need not."""
        return "" if self._memory is None else self._memory.stays(intent, self.records(unit))

    def records(self, unit: str) -> list[ContainerRecord]:
        """The containers of a unit."""
        return [record for record in self._owner.containers.values() if record.unit == unit]

    @property
    def store(self) -> ResizeStore:
        """The state. Raises `ResizeRefusedError` where it cannot be trusted."""
        return self._requests.store

    @property
    def policy(self) -> ExclusiveResize:
        """What the node's policy says about resizes by now."""
        return self._requests.policy

    def active(self, unit: str) -> AdmissionPod | None:
        """The pod that was admitted under this unit, None for one that is gone."""
        return self._requests.active(unit)


def error_text(error: Exception) -> str:
    """One line with the file, where there is one."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error} (errno {error.errno})"
    return str(error)
