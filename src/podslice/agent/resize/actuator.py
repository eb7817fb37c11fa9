"""Carries out one resize: what is written in which order, and how it is rolled back (docs/resize.md, In the agent).

At every moment a CPU is effective for the containers of one owner at most, or for the shared ones: a container that
loses CPUs leaves them, confirmed by the kernel, before another one gets them. Every change is on disk before it
happens, so a process killed anywhere starts with the old CPUs or with the new ones.
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
"""Seconds after which a runtime that sends no PostUpdateContainer has surely applied our answer."""


class Actuator:
    """Carries out the resizes of one node. `clock` returns seconds, `sleep` waits for them. Announces
    `change_finished` for each resized container."""

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
        self._evacuator = CPUEvacuator(owner, cgroups)
        self._memory = memory
        self._threads = threads
        self._run_in_thread = run_in_thread
        self._clock = clock
        self._sleep = sleep
        self.in_progress = requests.in_progress
        """Running resizes by unit."""

    async def carry_out(self, ongoing: ResizeInProgress) -> None:
        """Carry out a resize and clean up after it, whatever its result. Raises `ResizeRefusedError`."""
        try:
            await self._carry_out(ongoing)
        finally:
            self._owner.placing.withheld.pop(ongoing.unit, None)
            if self.in_progress.get(ongoing.unit) is ongoing:
                del self.in_progress[ongoing.unit]
            ongoing.done.set()

    async def _carry_out(self, ongoing: ResizeInProgress) -> None:
        """Perform all steps but the answer to the container whose call waits.

        Stops early when the pod has gone. Raises `ResizeRefusedError` after rolling back.
        """
        store, unit = self.store, ongoing.unit
        try:
            # On disk before anything is written elsewhere: a restart learns which CPUs were on their way.
            if ongoing.operation != "keep":
                store.begin_resize(unit, ongoing.intent)
            if ongoing.gives:
                self._owner.admitting.files.replace(ongoing.desired)
                await self._wait_until_written(ongoing)
                await self._announce(ongoing)
                await self._count_bound_threads(ongoing)
                self._owner.placing.withheld[unit] = ongoing.changed
                await self._evacuator.evacuate(ongoing.gives, self.records(unit))
            # The pod may have gone during the waits; its CPUs were released with it.
            if self.active(unit) is None:
                return
            self._commit(store, ongoing)
            await self._evacuate_others(store, ongoing)
            if self._memory is not None and (ongoing.gives or not ongoing.hook):
                records = self.records(unit)
                await self._memory.migrate([(record, self._owner.placing.wanted(record)) for record in records])
        except (OSError, StateWriteError, CPUsLostError) as error:
            self._undo(store, ongoing)
            raise self._failed(ongoing, error_text(error)) from None
        except asyncio.CancelledError:
            self._undo(store, ongoing)
            raise
        self._owner.placing.withheld.pop(unit, None)
        if self.active(unit) is not None:
            self._settle(store, ongoing)

    async def _count_bound_threads(self, ongoing: ResizeInProgress) -> None:
        """Count threads that are bound to released CPUs only, before the CPUs are taken away.

        The number is only reported; no thread's affinity is set.
        """
        for record in self.records(ongoing.unit) if self._threads is not None else ():
            if record.started and record.applied.cpus & ongoing.gives:
                masks = (await self._run_in_thread(self._threads, record)).masks
                ongoing.bound += sum(1 for mask in masks if mask and not mask & ~ongoing.gives)

    async def _evacuate_others(self, store: ResizeStore, ongoing: ResizeInProgress) -> None:
        """Take all other containers off the pod's new CPUs, again where the machine changed meanwhile.

        Raises `OSError`, and `CPUsLostError` where CPUs that the pod was to get went offline.
        """
        # Each evacuation awaits, and the machine may change meanwhile; then the new set has to be cleared as well.
        machine, due = None, ongoing.changed
        while machine is not self._owner.machine:
            machine = self._owner.machine
            await self._evacuator.evacuate(due, self._owner.containers.values())
            if gone := ongoing.takes & store.node.state.cpu.offline:
                raise CPUsLostError(f"CPUs {format_bits(gone)} went offline meanwhile")
            due = ongoing.changed | store.node.state.of_pod(ongoing.unit).cpus

    async def _wait_until_written(self, ongoing: ResizeInProgress) -> None:
        """Wait until the runtime has applied our answer: its write sets the CPUs of the answer, and may be late."""
        if ongoing.hook:
            await self.until(ongoing.applied, LONGEST_CALL)

    async def until(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for the event, at most `seconds` measured by this actuator's `sleep`."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._sleep(seconds))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _announce(self, ongoing: ResizeInProgress) -> None:
        """Announce the coming CPUs to containers that release some, and wait for the delay."""
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
            await self.until(ongoing.skip_delay, seconds)
        finally:
            ongoing.waiting = False
            for record in self.records(ongoing.unit):
                if self._owner.placing.upcoming.pop(record.id, None):
                    self._events.pinning_changed(record)

    def delay_of(self, pod: Pod, intent: Intent) -> float:
        """Return the longest delay, in seconds, among the containers that release CPUs."""
        delays = requested_resize(self._owner.admitting.policy, pod).delays
        before, after = intent.before.assignments, intent.after.assignments
        running = {record.member for record in self.records(pod.metadata.uid)}
        giving = [name for name, cpus in before.items() if cpus & ~after.get(name, 0) and name in running]
        rule = self.policy.shrink_delay_seconds
        whole = rule if intent.before.pod_cpus & ~intent.after.pod_cpus else 0.0
        return max((delays.get(name, rule) for name in giving), default=whole)

    def _commit(self, store: ResizeStore, ongoing: ResizeInProgress) -> None:
        """Write the resized pod into the state. Raises `OSError`, `StateWriteError`."""
        self._owner.placing.withheld[ongoing.unit] = ongoing.changed
        state = store.node.state
        before = state.of_pod(ongoing.unit)
        ongoing.memory_stays = ongoing.memory_stays or self.reason_memory_stays(ongoing.unit, ongoing.intent)
        decision = store.resize(ongoing.desired, memory_stays=bool(ongoing.memory_stays))
        if ongoing.memory_stays:
            self._owner.admitting.journal.record_changes()
        else:
            self._owner.admitting.journal.record_resize(state, ongoing.desired, decision)
        if decision.outcome not in ("Allocated", "Unchanged"):
            raise StateWriteError(f"there is no room any more: {decision.message}")
        ongoing.committed = True
        ongoing.plan(ongoing.intent._replace(before=before, after=store.node.state.of_pod(ongoing.unit)))
        self._owner.placing.withheld[ongoing.unit] = ongoing.changed
        if not ongoing.gives:
            self._owner.admitting.files.replace(ongoing.desired)

    def _settle(self, store: ResizeStore, ongoing: ResizeInProgress) -> None:
        """Give the pod's containers their CPUs and all others what is left, then report the resize."""
        active = self.active(ongoing.unit)
        for record in self.records(ongoing.unit):
            if active is not None:
                self._allow(record, active)
                self._owner.carried_out(record)
            # The container of the call gets its growth with the answer, which the runtime writes.
            if record.id != ongoing.hook or ongoing.gives:
                self._owner.updates.write_started(record, self._cgroups.write)
            self._events.change_finished(record)
        self._owner.updates.unit_changed(ongoing.unit)
        self._owner.updates.pool_changed()
        if ongoing.hook and not ongoing.gives:
            # After the answer is on its way: the write to disk must not delay it.
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
        """Remove the resize intent from disk. No call waits for it: until it is written, a restart finds the resize
        done."""
        # By the time this runs another resize of the pod may have begun, whose intent has to stay.
        ongoing = self.in_progress.get(unit)
        if ongoing is not None and not ongoing.committed:
            return
        try:
            store.end_resize(unit)
        except StateWriteError as error:
            self._owner.reporter.trouble("stateWrite", str(error))

    def _allow(self, record: ContainerRecord, active: AdmissionPod) -> None:
        """Set limit and weight of a resized container; the runtime's own call repeats them sooner or later."""
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
        """Restore the state and pod file of before; cgroups follow with the next updates."""
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
        """Report the failed resize and return its error."""
        self._owner.reporter.resize_answered(ongoing.identity, ResizeReport(ongoing.operation, "failed", text))
        return ResizeRefusedError("failed", text)

    def reason_memory_stays(self, unit: str, intent: Intent) -> str:
        """Return why a pod's memory has to stay on nodes that the resize would leave; empty where it may move."""
        return "" if self._memory is None else self._memory.reason_to_stay(intent, self.records(unit))

    def records(self, unit: str) -> list[ContainerRecord]:
        """Return the containers of a unit."""
        return [record for record in self._owner.containers.values() if record.unit == unit]

    @property
    def store(self) -> ResizeStore:
        """The node's state. Raises `ResizeRefusedError` in safe mode."""
        return self._requests.store

    @property
    def policy(self) -> ExclusiveResize:
        """The resize rules of the policy in force."""
        return self._requests.policy

    def active(self, unit: str) -> AdmissionPod | None:
        """Return the pod admitted under this unit, None where it has gone."""
        return self._requests.active(unit)


def error_text(error: Exception) -> str:
    """Return an error as one line that names the file, where there is one."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error} (errno {error.errno})"
    return str(error)
