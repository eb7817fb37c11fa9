"""Carrying out in-place resizes of exclusive CPUs, asked for by the kubelet beside the agent (docs/resize.md).

The kubelet has granted the resize by its own books before it calls the runtime; here the node's CPUs decide. At every
moment a CPU is effective for one owner's containers at most, or for the shared ones: whoever loses CPUs leaves them,
and the kernel says so, before they are anybody else's. What is about to change is on disk before it changes, so a
process killed anywhere starts with the old CPUs or with the new ones. A growth is done within the runtime's call, which
may be refused; a shrink is answered at once and follows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from podslice.agent.actuating import Cgroups, Leaving
from podslice.agent.contract import ResizeNews
from podslice.agent.derived import unit_uid
from podslice.agent.flights import CPUsLostError, Flight, ResizeRefusedError
from podslice.agent.identity import RESOURCES_ANNOTATION, Identity
from podslice.agent.leavingmemory import LeavingMemory
from podslice.agent.moverules import Threads
from podslice.agent.movingmemory import Aside
from podslice.agent.owner import Owner
from podslice.agent.records import ContainerRecord, Limits, PodRecord
from podslice.agent.resizes import asked_milli
from podslice.agent.seam import failure_of
from podslice.agent.translate import limits_of, update_of
from podslice.agent.waiting import or_after
from podslice.agent.wishes import container_wish, is_step, pod_wish, same_resources
from podslice.core.config.annotations import resize_wishes
from podslice.core.config.policy import ExclusiveResize
from podslice.core.errors import InputError, PodsliceError
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.pod.spec import Pod
from podslice.core.state.model import Intent
from podslice.core.values.cpuset import format_bits
from podslice.core.values.quantity import ZERO
from podslice.host.resize_store import ResizeStore
from podslice.host.store import StateWriteError
from podslice.wire.proto import nri_pb2 as nri

REMEMBERED = 5.0
"""Seconds for which a refusal is repeated without another look."""
ASKED_LATELY = 300.0
"""Seconds after which nobody is known to want a resize that the kubelet has not asked for again."""
LONGEST_CALL = 2.0
"""Seconds after which a runtime that does not say so has written what it was answered."""
LONGEST_LANDING = 0.3
"""Seconds that a call waits for another resize of its pod. With those for a specification, and for shared containers
to leave, a call takes less than the two that a runtime gives it."""


class Specifications(Protocol):
    """Who knows pods' specifications."""

    def find(self, identity: Identity) -> Pod | None: ...
    async def wait_for_news(self, identity: Identity, holds: Callable[[], bool]) -> None:
        """Give them time to tell about a pod, until this holds."""


class _Refused(NamedTuple):
    desired: Pod
    error: ResizeRefusedError
    until: float


class _Wanted(NamedTuple):
    """A resize that waits for room; `at` is when it was asked for last."""

    desired: Pod
    at: float


class Resizing:
    """Of one node. `clock` counts seconds, `sleep` waits for them. `tell` brings a container's file up to date."""

    def __init__(
        self,
        owner: Owner,
        specifications: Specifications,
        cgroups: Cgroups,
        *,
        memory: LeavingMemory | None = None,
        threads: Threads | None = None,
        aside: Aside = asyncio.to_thread,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._owner = owner
        self._memory = memory
        self._threads = threads
        self._aside = aside
        self._specifications = specifications
        self._cgroups = cgroups
        self._leaving = Leaving(owner, cgroups)
        self._clock = clock
        self._sleep = sleep
        self._flights: dict[str, Flight] = {}
        self._refused: dict[str, _Refused] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._room = asyncio.Event()
        self.tell: Callable[[ContainerRecord], None] = lambda record: None
        self.is_moving: Callable[[str], bool] = lambda unit: False
        owner.on_room = self._room.set
        owner.on_policy = self._policy_changed
        owner.pending_resizes = lambda: self.pending
        owner.will_resize = lambda record: self._missed(record) is not None

    @property
    def _policy(self) -> ExclusiveResize:
        return self._owner.admitting.policy.resize

    @property
    def pending(self) -> int:
        """Resizes that wait for room or for their delay."""
        return len(self._wanted) + len(self._flights)

    def waits(self, unit: str) -> bool:
        """True when a resize of a pod waits or is on its way."""
        return unit in self._wanted or unit in self._flights

    # The runtime's calls

    def resume(self) -> None:
        """What an earlier process was writing is in the books, as done or as never begun; the containers are told."""
        store = self._owner.store
        if store is None:
            return
        for unit in store.unfinished:
            if unit not in self._flights:
                for record in self._records(unit):
                    self.tell(record)
                self._end(store, unit)
        for unit, desired in store.take_waiting().items():
            self._want(unit, desired)
        self._look_again()

    def _missed(self, record: ContainerRecord) -> Pod | None:
        """A resize that the runtime carried out and we did not, because nobody was asked or there was no room: as the
        specification says it."""
        pod, nothing = self._owner.pods.get(record.pod_uid), nri.LinuxResources()
        if pod is None or record.unit != record.pod_uid or record.limits is None or record.limits.quota is None:
            return None
        found = None if self._container_wish(record, nothing) is None else self._find(pod.identity)
        return found if found is not None and self._says(found, record, nothing) else None

    def concerns_new(self, identity: Identity, message: nri.Container) -> bool:
        """True when a container that is about to be created asks for other resources than it had: its resize policy
        wants it restarted, or it ended while its resize waited."""
        record = self._newcomer(identity, message)
        if record is None or self._container_wish(record, message.linux.resources) is None:
            return False
        if record.unit != identity.uid:
            return True
        found = self._find(identity)
        return found is not None and (self._says(found, record, message.linux.resources) or _restarts(found, record))

    async def new(self, identity: Identity, message: nri.Container) -> None:
        """The container gets what it asks for as it is created; where it cannot, it begins with what it had, and the
        resize waits."""
        record, resources = self._newcomer(identity, message), message.linux.resources
        if record is None:
            return
        try:
            await self._landed(record.unit)
            if (wish := self._container_wish(record, resources)) is None:
                return
            pod = self._owner.pods[identity.uid]
            desired = await self._said(pod, record.unit, wish, lambda spec: self._says(spec, record, resources))
            await self.resize(pod, desired)
            if (flight := self._flights.get(record.unit)) is not None:
                await flight.done.wait()
        except ResizeRefusedError:
            return

    def _newcomer(self, identity: Identity, message: nri.Container) -> ContainerRecord | None:
        """A container that is about to be created in a pod that was admitted with it, None for others."""
        pod, own = self._owner.pods.get(identity.uid), unit_uid(identity.uid, message.name)
        if pod is None or pod.rejected or RESOURCES_ANNOTATION in identity.annotations:
            return None
        unit = identity.uid if identity.uid in pod.units else own if own in pod.units else ""
        active = self._active(unit)
        if active is None or message.name not in {one.name for one in active.containers}:
            return None
        limits = limits_of(message)
        return ContainerRecord(
            message.id, message.name, identity.uid, "", unit=unit, member=message.name, limits=limits
        )

    def concerns(self, record: ContainerRecord, resources: nri.LinuxResources) -> bool:
        """True when a call asks for something that `container` has to decide."""
        return self._container_wish(record, resources) is not None or record.unit in self._flights

    async def container(self, record: ContainerRecord, resources: nri.LinuxResources) -> list[nri.ContainerUpdate]:
        """The answer to an update of a container. Raises `ResizeRefusedError`."""
        pod = self._owner.pods[record.pod_uid]
        await self._landed(record.unit)
        if (wish := self._container_wish(record, resources)) is not None:
            desired = await self._said(pod, record.unit, wish, lambda spec: self._says(spec, record, resources))
            await self.resize(pod, desired, hook=record.id)
        return self._answer(record, resources)

    def applied(self, container: str) -> None:
        """The runtime has written what it was answered for a container."""
        for flight in self._flights.values():
            if flight.hook == container:
                flight.applied.set()

    async def pod(self, pod: PodRecord, resources: nri.LinuxResources) -> None:
        """An update of what a pod may use as a whole. Raises `ResizeRefusedError`."""
        uid = pod.identity.uid
        await self._landed(uid)
        if (wish := self._pod_wish(pod, resources)) is not None:
            milli = asked_milli(Limits().updated(resources)) or 0
            await self.resize(pod, await self._said(pod, uid, wish, lambda spec: pod_wish(spec, milli) is None))

    def _pod_wish(self, pod: PodRecord, resources: nri.LinuxResources) -> Pod | None:
        target = self._target(pod.identity.uid)
        milli = asked_milli(Limits().updated(resources))
        if target is None or milli is None or not self._owner.placing.has_bubble(pod.identity.uid):
            return None
        return pod_wish(target, milli)

    def concerns_pod(self, pod: PodRecord, resources: nri.LinuxResources) -> bool:
        """True when a call asks for something that `pod` has to decide."""
        return self._pod_wish(pod, resources) is not None

    def _container_wish(self, record: ContainerRecord, resources: nri.LinuxResources) -> Pod | None:
        target = self._target(record.unit)
        if target is None or not record.member or record.limits is None:
            return None
        return container_wish(target, record.member, record.limits.updated(resources), resources.cpu.shares.value)

    def _says(self, spec: Pod, record: ContainerRecord, resources: nri.LinuxResources) -> bool:
        """True when a specification asks for a container what the call does."""
        asked = (record.limits or Limits()).updated(resources)
        return container_wish(spec, record.member, asked, resources.cpu.shares.value) is None

    def _active(self, unit: str) -> AdmissionPod | None:
        node = self._owner.node
        return None if node is None else node.view.pods.get(unit)

    def _target(self, unit: str) -> Pod | None:
        """What a pod has or is about to have; None for one that has no CPUs to resize."""
        active = self._active(unit)
        if not self._policy.exclusive or active is None or not active.guaranteed:
            return None
        flight = self._flights.get(unit)
        return active.spec if flight is None else flight.desired

    async def _said(self, pod: PodRecord, unit: str, wish: Pod, says: Callable[[Pod], bool]) -> Pod:
        """What the pod is to have: its specification, if that is new enough, else what the call says."""
        target = self._target(unit)
        found = self._find(pod.identity) if unit == pod.identity.uid else None
        if found is None or target is None:
            return wish
        gates = self._store.node.rules.gates
        if says(found):
            return found
        if is_step(wish, found, target, gates):
            return wish
        await self._specifications.wait_for_news(pod.identity, lambda: self._holds(pod.identity, says))
        found = self._find(pod.identity)
        return found if found is not None and says(found) else wish

    def _holds(self, identity: Identity, says: Callable[[Pod], bool]) -> bool:
        found = self._find(identity)
        return found is not None and says(found)

    def _find(self, identity: Identity) -> Pod | None:
        try:
            found = self._specifications.find(identity)
        except InputError:
            return None
        return None if found is None else default_pod(found, self._store.node.rules.gates)

    def _answer(self, record: ContainerRecord, resources: nri.LinuxResources) -> list[nri.ContainerUpdate]:
        """Its own sets, then some of the others'; the set it loses stays until it has left it by its cgroup."""
        if self._owner.containers.get(record.id) is not record:
            return []
        if record.limits is not None:
            asked = record.limits.updated(resources)
            flying = record.unit in self._flights
            record.limits = replace(asked, quota=record.limits.quota, period=record.limits.period) if flying else asked
        record.applied = self._owner.placing.wanted(record)
        updates = self._owner.updates
        others = updates.take(but=record.id) or updates.late(but=record.id)
        updates.answered()
        return [*others, update_of(record, record.applied)]

    # Deciding

    @property
    def _store(self) -> ResizeStore:
        store = self._owner.store
        if store is None:
            raise ResizeRefusedError("deferred", f"the state cannot be trusted: {self._owner.safe_mode}")
        return store

    async def resize(self, pod: PodRecord, desired: Pod, *, hook: str = "") -> None:
        """Decide, and carry it out: at once where CPUs only come, beside everything else where some go. Raises
        `ResizeRefusedError`."""
        unit, gates = desired.metadata.uid, self._store.node.rules.gates
        active, flight = self._active(unit), self._flights.get(unit)
        if active is None:
            return
        if flight is not None:
            if same_resources(flight.desired, desired, gates):
                return
            await self._cancel(flight)
        known = self._refused.get(unit)
        if known is not None and self._clock() < known.until and same_resources(known.desired, desired, gates):
            self._want(unit, known.desired)
            raise known.error
        self._refused.pop(unit, None)
        if self.is_moving(unit):
            raise self._refuse(pod, desired, "deferred", "the pod is being moved")
        flight = self._decided(pod, active.spec, desired)
        if flight is None:
            return
        flight.hook = hook
        self._flights[unit] = flight
        if not flight.gives:
            await self._fly(flight)
        else:
            pod.resize = f"resize in progress: {flight.text()}"
            flight.task = asyncio.ensure_future(self._follow(pod, flight))

    def _decided(self, pod: PodRecord, before: Pod, desired: Pod) -> Flight | None:
        """What to do; None where nothing is. Raises `ResizeRefusedError`."""
        stays = ""
        try:
            plan = self._store.plan_resize(desired)
            if plan.decision.outcome == "Allocated" and (
                stays := self._memory_stays(desired.metadata.uid, plan.intent)
            ):
                plan = self._store.plan_resize(desired, memory_stays=True)
        except PodsliceError as error:
            raise self._refuse(pod, desired, "infeasible", str(error)) from None
        decision = plan.decision
        if decision.outcome in ("Deferred", "Infeasible"):
            raise self._refuse(pod, desired, decision.outcome.lower(), decision.message)
        self._forget(pod, desired.metadata.uid)
        if decision.outcome != "Allocated":
            return None
        lost = self._store.node.state.cpu.offline
        flight = Flight(pod.identity, before, plan.spec, plan.intent, since=self._clock(), lost=lost)
        flight.stays = stays
        return flight

    def _memory_stays(self, unit: str, intent: Intent) -> str:
        return "" if self._memory is None else self._memory.stays(intent, self._records(unit))

    def _refuse(self, pod: PodRecord, desired: Pod, result: str, message: str) -> ResizeRefusedError:
        """Remember, tell, and wait for room."""
        unit, error = desired.metadata.uid, ResizeRefusedError(result, message)
        self._refused[unit] = _Refused(desired, error, self._clock() + REMEMBERED)
        if result == "infeasible":
            self._wanted.pop(unit, None)
        else:
            self._want(unit, desired)
        news = str(error) != pod.resize
        pod.resize = str(error)
        active = self._active(unit)
        operation = "grow" if active is None else _direction(active.spec, desired)
        self._owner.reporter.resize_answered(pod.identity, ResizeNews(operation, result, message, told=not news))
        return error

    def _want(self, unit: str, desired: Pod) -> None:
        self._wanted[unit] = _Wanted(desired, self._clock())

    def _forget(self, pod: PodRecord, unit: str) -> None:
        self._refused.pop(unit, None)
        self._wanted.pop(unit, None)
        pod.resize = ""

    # Carrying out

    async def _landed(self, unit: str) -> None:
        """Another resize of the pod that is being written is done. Raises `ResizeRefusedError`."""
        flight = self._flights.get(unit)
        if flight is None or flight.waiting:
            return
        try:
            async with asyncio.timeout(LONGEST_LANDING):
                await flight.done.wait()
        except TimeoutError:
            raise ResizeRefusedError("deferred", "another resize of the pod is being carried out") from None

    async def _follow(self, pod: PodRecord, flight: Flight) -> None:
        """A flight that nobody waits for; it comes again when it fails."""
        try:
            await self._fly(flight)
            pod.resize = ""
        except ResizeRefusedError as error:
            self._want(flight.unit, flight.desired)
            pod.resize = str(error)
        except Exception as error:
            self._owner.reporter.failed(pod.identity, failure_of("resize", error))
            pod.resize = f"resize failed: {type(error).__name__}"

    async def _fly(self, flight: Flight) -> None:
        """Raises `ResizeRefusedError`."""
        try:
            await self._carry_out(flight)
        finally:
            self._owner.placing.withheld.pop(flight.unit, None)
            if self._flights.get(flight.unit) is flight:
                del self._flights[flight.unit]
            flight.done.set()

    async def _carry_out(self, flight: Flight) -> None:
        """All steps but the answer to a container that waits in its call. Raises `ResizeRefusedError` where it was
        undone; a pod that is gone ends it."""
        store, unit = self._store, flight.unit
        try:
            if flight.operation != "keep":
                store.begin_resize(unit, flight.intent)
            if flight.gives:
                self._owner.admitting.files.replace(flight.desired)
                await self._answered(flight)
                await self._delay(flight)
                await self._count_bound(flight)
                self._owner.placing.withheld[unit] = flight.changed
                await self._leaving.leave(flight.gives, self._records(unit))
            if self._active(unit) is None:
                return
            self._commit(store, flight)
            await self._left(store, flight)
            if self._memory is not None and (flight.gives or not flight.hook):
                records = self._records(unit)
                await self._memory.leave([(record, self._owner.placing.wanted(record)) for record in records])
        except (OSError, StateWriteError, CPUsLostError) as error:
            self._undo(store, flight)
            raise self._failed(flight, error_text(error)) from None
        except asyncio.CancelledError:
            self._undo(store, flight)
            raise
        self._owner.placing.withheld.pop(unit, None)
        if self._active(unit) is not None:
            self._settle(store, flight)

    async def _count_bound(self, flight: Flight) -> None:
        """Look at the containers' threads while they still have what they are about to give back; only that they are
        there is told, nobody's affinity is set."""
        for record in self._records(flight.unit) if self._threads is not None else ():
            if record.started and record.applied.cpus & flight.gives:
                masks = (await self._aside(self._threads, record)).masks
                flight.bound += sum(1 for mask in masks if mask and not mask & ~flight.gives)

    async def _left(self, store: ResizeStore, flight: Flight) -> None:
        """Nobody else is on what the pod has now, also where the machine changed meanwhile. Raises `OSError`, and
        `CPUsLostError` where CPUs went that it was to get."""
        machine, due = None, flight.changed
        while machine is not self._owner.machine:
            machine = self._owner.machine
            await self._leaving.leave(due, self._owner.containers.values())
            if gone := flight.takes & store.node.state.cpu.offline:
                raise CPUsLostError(f"CPUs {format_bits(gone)} went offline meanwhile")
            due = flight.changed | store.node.state.of_pod(flight.unit).cpus

    async def _answered(self, flight: Flight) -> None:
        """The runtime has done with the call: it sets the CPUs that it was answered, and could do so late."""
        if flight.hook:
            await self.until(flight.applied, LONGEST_CALL)

    async def until(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for the event, but no longer than that by our own sleep."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._sleep(seconds))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _delay(self, flight: Flight) -> None:
        """Containers that give back CPUs are told, and left time."""
        seconds = self.delay_of(flight.before, flight.intent)
        if not seconds:
            return
        flight.waiting = True
        for record in self._records(flight.unit):
            after = flight.intent.after.assignments.get(record.member)
            if after is not None and after != flight.intent.before.assignments.get(record.member):
                self._owner.placing.upcoming[record.id] = after
                self._owner.updates.on_placed(record)
        try:
            await self.until(flight.hurry, seconds)
        finally:
            flight.waiting = False
            for record in self._records(flight.unit):
                if self._owner.placing.upcoming.pop(record.id, 0):
                    self._owner.updates.on_placed(record)

    def delay_of(self, pod: Pod, intent: Intent) -> float:
        """How long the slowest of the containers that give back CPUs is waited for."""
        delays = resize_wishes(self._owner.admitting.policy, pod).delays
        before, after = intent.before.assignments, intent.after.assignments
        running = {record.member for record in self._records(pod.metadata.uid)}
        giving = [name for name, cpus in before.items() if cpus & ~after.get(name, 0) and name in running]
        rule = self._policy.shrink_delay_seconds
        whole = rule if intent.before.bubble & ~intent.after.bubble else 0.0
        return max((delays.get(name, rule) for name in giving), default=whole)

    def _commit(self, store: ResizeStore, flight: Flight) -> None:
        """The state says what is to be. Raises `OSError`, `StateWriteError`."""
        self._owner.placing.withheld[flight.unit] = flight.changed
        state = store.node.state
        before = state.of_pod(flight.unit)
        flight.stays = flight.stays or self._memory_stays(flight.unit, flight.intent)
        decision = store.resize(flight.desired, memory_stays=bool(flight.stays))
        if flight.stays:
            self._owner.admitting.journal.settle()
        else:
            self._owner.admitting.journal.resized(state, flight.desired, decision)
        if decision.outcome not in ("Allocated", "Unchanged"):
            raise StateWriteError(f"there is no room any more: {decision.message}")
        flight.committed = True
        flight.plan(flight.intent._replace(before=before, after=store.node.state.of_pod(flight.unit)))
        self._owner.placing.withheld[flight.unit] = flight.changed
        if not flight.gives:
            self._owner.admitting.files.replace(flight.desired)

    def _settle(self, store: ResizeStore, flight: Flight) -> None:
        """Nobody is in the way: the pod's containers get what is theirs, everybody else what is left."""
        active = self._active(flight.unit)
        for record in self._records(flight.unit):
            if active is not None:
                self._allow(record, active)
                self._owner.carried_out(record)
            if record.id != flight.hook or flight.gives:
                self._owner.updates.write_started(record, self._cgroups.write)
            self.tell(record)
        self._owner.updates.unit_changed(flight.unit)
        self._owner.updates.pool_changed()
        if flight.hook and not flight.gives:
            asyncio.get_running_loop().call_soon(self._end, store, flight.unit)
        else:
            self._end(store, flight.unit)
        seconds = self._clock() - flight.since
        self._owner.reporter.resize_answered(
            flight.identity, ResizeNews(flight.operation, "applied", flight.text(), seconds=seconds)
        )
        if flight.gives:
            self._owner.made_room()

    def _end(self, store: ResizeStore, unit: str) -> None:
        """No call waits for this: until it is written, the next process finds the resize done."""
        flight = self._flights.get(unit)
        if flight is not None and not flight.committed:
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

    def _undo(self, store: ResizeStore, flight: Flight) -> None:
        """Everything is as it was: books, files, and, with the next writes, cgroups."""
        self._owner.placing.withheld.pop(flight.unit, None)
        try:
            if self._active(flight.unit) is not None:
                if flight.committed:
                    store.undo_resize(flight.before, flight.intent.before)
                self._owner.admitting.files.replace(flight.before)
            store.end_resize(flight.unit)
        except (OSError, StateWriteError) as error:
            self._owner.reporter.trouble("stateWrite", error_text(error))
        self._owner.updates.unit_changed(flight.unit)
        self._owner.updates.pool_changed()

    def _failed(self, flight: Flight, text: str) -> ResizeRefusedError:
        self._owner.reporter.resize_answered(flight.identity, ResizeNews(flight.operation, "failed", text))
        return ResizeRefusedError("failed", text)

    async def _cancel(self, flight: Flight) -> None:
        """A resize that waits is not wanted any more; one that is being written has to end first."""
        if flight.waiting and flight.task is not None:
            flight.task.cancel()
        await flight.done.wait()

    def _records(self, unit: str) -> list[ContainerRecord]:
        return [record for record in self._owner.containers.values() if record.unit == unit]

    # Trying again

    async def run(self) -> None:
        """Try the resizes that wait, for ever: when there is room, and every minute."""
        while True:
            await or_after(self._room, 60)
            self._room.clear()
            await self.retry()

    def _look_again(self) -> None:
        """Resizes that the kubelet thinks are done, and that are not, are wanted."""
        for record in self._owner.containers.values():
            if (found := self._missed(record)) is not None:
                self._want(record.unit, found)
        if self._wanted:
            self._room.set()

    def _policy_changed(self) -> None:
        """What was refused may be granted now, and what the policy did not let us carry out is carried out."""
        self._refused.clear()
        self._look_again()

    async def retry(self) -> None:
        """Try each resize that waits once, unless nobody wants it any more."""
        for unit, wanted in list(self._wanted.items()):
            pod = self._owner.pods.get(unit.partition("/")[0])
            if pod is None or unit not in pod.units or not self._is_asked(unit, wanted):
                self._wanted.pop(unit, None)
                self._refused.pop(unit, None)
                continue
            if self._outdated(pod, unit, wanted.desired) or unit in self._flights:
                continue
            self._refused.pop(unit, None)
            at = wanted.at
            try:
                await self.resize(pod, wanted.desired)
            except ResizeRefusedError:
                if unit in self._wanted:
                    self._wanted[unit] = self._wanted[unit]._replace(at=at)

    def _is_asked(self, unit: str, wanted: _Wanted) -> bool:
        """True when the kubelet asked lately, or thinks that it is done."""
        if self._clock() - wanted.at <= ASKED_LATELY:
            return True
        return any(self._missed(record) is not None for record in self._records(unit))

    def _outdated(self, pod: PodRecord, unit: str, desired: Pod) -> bool:
        """True when the pod's specification says something else by now."""
        found = self._find(pod.identity) if unit == pod.identity.uid else None
        return found is not None and not same_resources(found, desired, self._store.node.rules.gates)

    async def close(self) -> None:
        """End what is on its way: a delay is cut short."""
        flying: list[asyncio.Task[None]] = []
        for flight in self._flights.values():
            flight.hurry.set()
            flying += [flight.task] if flight.task is not None else []
        if flying:
            await asyncio.wait(flying, timeout=LONGEST_LANDING)


def _restarts(spec: Pod, record: ContainerRecord) -> bool:
    """True when the container wants to be restarted where one of its resources changes."""
    containers = (*spec.spec.init_containers, *spec.spec.containers)
    policies = next((one.resize_policy for one in containers if one.name == record.member), ())
    return any(one.restart_policy == "RestartContainer" for one in policies)


def _direction(before: Pod, desired: Pod) -> str:
    """`grow` or `shrink`, by the CPUs asked for."""
    return "shrink" if _milli(desired) < _milli(before) else "grow"


def _milli(pod: Pod) -> int:
    spec = pod.spec
    stanzas = [one.resources for one in (*spec.init_containers, *spec.containers)]
    stanzas += [] if spec.resources is None else [spec.resources]
    return sum((one.limits or {}).get("cpu", ZERO).milli_value() for one in stanzas)


def error_text(error: Exception) -> str:
    """One line with the file, where there is one."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error} (errno {error.errno})"
    return str(error)
