"""In-place resizes of exclusive CPUs that the kubelet beside the agent asks for (docs/resize.md): decisions and
retries.

The kubelet has granted the resize from its own accounting before it calls the runtime; here the node's CPUs decide. A
growth is completed within the runtime's call, which may be refused; a shrink is answered at once and carried out
afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from podslice.agent.contract import NodeEvents, ResizeReport
from podslice.agent.owner import Owner
from podslice.agent.records import ContainerRecord, PodRecord
from podslice.agent.resize.actuator import Actuator
from podslice.agent.resize.resize_in_progress import ResizeInProgress, ResizeRefusedError
from podslice.agent.resize.resize_requests import ResizeRequests, restarts
from podslice.agent.resize.update_calls import requests_same
from podslice.agent.runtime.translate import update_of
from podslice.agent.seam import failure_of
from podslice.api.pod.spec import Pod
from podslice.service.identity import Identity
from podslice.service.pacing import wait_at_most
from podslice.service.proto import nri_pb2 as nri
from podslice.values.errors import PodsliceError
from podslice.values.quantity import ZERO

REMEMBERED = 5.0
"""Seconds for which a refusal is repeated without a new decision."""
ASKED_LATELY = 300.0
"""Seconds after which a waiting resize that the kubelet has not repeated is dropped."""
LONGEST_OTHER = 0.3
"""Seconds that a call waits for another resize of its pod. With the waits for a specification and for the evacuation of
shared containers, a call stays below the two seconds that a runtime gives it."""


class _Refused(NamedTuple):
    desired: Pod
    error: ResizeRefusedError
    until: float


class _Wanted(NamedTuple):
    """A resize that waits for room; `at` is the time of the latest request."""

    desired: Pod
    at: float


class Resizing:
    """Decides about the resizes of one node, which `actuator` carries out; `clock` returns seconds."""

    def __init__(
        self,
        owner: Owner,
        events: NodeEvents,
        requests: ResizeRequests,
        actuator: Actuator,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self.actuator = actuator
        self._events = events
        self._requests = requests
        self._clock = clock
        self._refused: dict[str, _Refused] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._room = asyncio.Event()

    @property
    def pending(self) -> int:
        """Number of resizes that wait for room, wait for their delay or run."""
        return len(self._wanted) + len(self.actuator.in_progress)

    def waits(self, unit: str) -> bool:
        """Return whether a resize of the pod waits or runs."""
        return unit in self._wanted or unit in self.actuator.in_progress

    # The runtime's calls

    def resume(self) -> None:
        """Finish resizes that an earlier process began, and queue those that waited.

        The state holds each of them as done or as never begun, so only the containers' files are rewritten.
        """
        store = self._owner.store
        if store is None:
            return
        for unit in store.open_resizes:
            if unit not in self.actuator.in_progress:
                for record in self.actuator.records(unit):
                    self._events.change_finished(record)
                self.actuator.end(store, unit)
        for unit, desired in store.take_waiting().items():
            self._want(unit, desired)
        self._queue_unapplied()

    def concerns_new(self, identity: Identity, message: nri.Container) -> bool:
        """Return whether a container that is being created asks for other resources than it had.

        Either its resize policy restarts it, or it ended while its resize waited.
        """
        record = self._requests.new_container(identity, message)
        if record is None or self._requests.of_container(record, message.linux.resources) is None:
            return False
        if record.unit != identity.uid:
            return True
        found = self._requests.find(identity)
        if found is None:
            return False
        return self._requests.agrees(found, record, message.linux.resources) or restarts(found, record)

    async def new(self, identity: Identity, message: nri.Container) -> None:
        """Resize the pod before its container is created; where that fails, the container starts as it was and the
        resize waits."""
        record, resources = self._requests.new_container(identity, message), message.linux.resources
        if record is None:
            return
        try:
            await self._wait_for_other(record.unit)
            if (requested := self._requests.of_container(record, resources)) is None:
                return
            pod = self._owner.pods[identity.uid]
            desired = await self._requests.container(pod, requested, record, resources)
            await self.resize(pod, desired)
            if (ongoing := self.actuator.in_progress.get(record.unit)) is not None:
                await ongoing.done.wait()
        except ResizeRefusedError:
            return

    def concerns(self, record: ContainerRecord, resources: nri.LinuxResources) -> bool:
        """Return whether `container` has to decide about a call."""
        return self._requests.of_container(record, resources) is not None or record.unit in self.actuator.in_progress

    async def container(self, record: ContainerRecord, resources: nri.LinuxResources) -> list[nri.ContainerUpdate]:
        """Answer an update of a container. Raises `ResizeRefusedError`."""
        pod = self._owner.pods[record.pod_uid]
        await self._wait_for_other(record.unit)
        if (requested := self._requests.of_container(record, resources)) is not None:
            desired = await self._requests.container(pod, requested, record, resources)
            await self.resize(pod, desired, hook=record.id)
        return self._answer(record, resources)

    def applied(self, container: str) -> None:
        """Note that the runtime has applied the answer for a container (PostUpdateContainer)."""
        for ongoing in self.actuator.in_progress.values():
            if ongoing.hook == container:
                ongoing.applied.set()

    async def pod(self, pod: PodRecord, resources: nri.LinuxResources) -> None:
        """Handle an update of the pod cgroup. Raises `ResizeRefusedError`."""
        uid = pod.identity.uid
        await self._wait_for_other(uid)
        if (requested := self._requests.of_pod(pod, resources)) is not None:
            await self.resize(pod, await self._requests.pod(pod, requested, resources))

    def concerns_pod(self, pod: PodRecord, resources: nri.LinuxResources) -> bool:
        """Return whether `pod` has to decide about a call."""
        return self._requests.of_pod(pod, resources) is not None

    def _answer(self, record: ContainerRecord, resources: nri.LinuxResources) -> list[nri.ContainerUpdate]:
        """Return the container's own sets and some updates that are due for others.

        CPUs that it loses stay in the answer's set until its cgroup has been narrowed.
        """
        if self._owner.containers.get(record.id) is not record:
            return []
        if record.limits is not None:
            asked = record.limits.updated(resources)
            # While a resize runs the quota is ours to set, when it is committed: an undone resize keeps the old one.
            changing = record.unit in self.actuator.in_progress
            record.limits = (
                replace(asked, quota=record.limits.quota, period=record.limits.period) if changing else asked
            )
        record.applied = self._owner.placing.wanted(record)
        updates = self._owner.updates
        others = updates.take(but=record.id) or updates.late(but=record.id)
        updates.answered()
        return [*others, update_of(record, record.applied)]

    # Decisions

    async def resize(self, pod: PodRecord, desired: Pod, *, hook: str = "") -> None:
        """Decide about a resize and carry it out: at once where the pod only gains CPUs, in a task where it releases
        some. `hook` is the id of the container whose call asks. Raises `ResizeRefusedError`."""
        unit, gates = desired.metadata.uid, self.actuator.store.node.rules.gates
        active, ongoing = self.actuator.active(unit), self.actuator.in_progress.get(unit)
        if active is None:
            return
        if ongoing is not None:
            if requests_same(ongoing.desired, desired, gates):
                return
            await self._cancel(ongoing)
        known = self._refused.get(unit)
        if known is not None and self._clock() < known.until and requests_same(known.desired, desired, gates):
            self._want(unit, known.desired)
            raise known.error
        self._refused.pop(unit, None)
        if unit in self._owner.placing.running_move:
            raise self._refuse(pod, desired, "deferred", "the pod is being moved")
        ongoing = self._plan(pod, active.spec, desired)
        if ongoing is None:
            return
        # Entered before any await: a second call for the pod has to see that this one runs.
        ongoing.hook = hook
        self.actuator.in_progress[unit] = ongoing
        if not ongoing.gives:
            await self.actuator.carry_out(ongoing)
        else:
            pod.resize = f"resize in progress: {ongoing.text()}"
            ongoing.task = asyncio.ensure_future(self._follow(pod, ongoing))

    def _plan(self, pod: PodRecord, before: Pod, desired: Pod) -> ResizeInProgress | None:
        """Plan a resize; None where nothing changes. Raises `ResizeRefusedError`."""
        stays = ""
        try:
            plan = self.actuator.store.plan_resize(desired)
            if plan.decision.outcome == "Allocated" and (
                stays := self.actuator.reason_memory_stays(desired.metadata.uid, plan.intent)
            ):
                plan = self.actuator.store.plan_resize(desired, memory_stays=True)
        except PodsliceError as error:
            raise self._refuse(pod, desired, "infeasible", str(error)) from None
        decision = plan.decision
        if decision.outcome in ("Deferred", "Infeasible"):
            raise self._refuse(pod, desired, decision.outcome.lower(), decision.message)
        self._forget(pod, desired.metadata.uid)
        if decision.outcome != "Allocated":
            return None
        lost = self.actuator.store.node.state.cpu.offline
        ongoing = ResizeInProgress(pod.identity, before, plan.spec, plan.intent, since=self._clock(), lost=lost)
        ongoing.memory_stays = stays
        return ongoing

    def _refuse(self, pod: PodRecord, desired: Pod, result: str, message: str) -> ResizeRefusedError:
        """Remember and report a refusal, and queue the resize unless it is infeasible; return the error."""
        unit, error = desired.metadata.uid, ResizeRefusedError(result, message)
        self._refused[unit] = _Refused(desired, error, self._clock() + REMEMBERED)
        if result == "infeasible":
            self._wanted.pop(unit, None)
        else:
            self._want(unit, desired)
        repeated = str(error) == pod.resize
        pod.resize = str(error)
        active = self.actuator.active(unit)
        operation = "grow" if active is None else _direction(active.spec, desired)
        self._owner.reporter.resize_answered(pod.identity, ResizeReport(operation, result, message, repeated=repeated))
        return error

    def _want(self, unit: str, desired: Pod) -> None:
        self._wanted[unit] = _Wanted(desired, self._clock())

    def _forget(self, pod: PodRecord, unit: str) -> None:
        self._refused.pop(unit, None)
        self._wanted.pop(unit, None)
        pod.resize = ""

    # Execution

    async def _wait_for_other(self, unit: str) -> None:
        """Wait for another running resize of the pod. Raises `ResizeRefusedError` when it takes too long."""
        ongoing = self.actuator.in_progress.get(unit)
        if ongoing is None or ongoing.waiting:
            return
        try:
            async with asyncio.timeout(LONGEST_OTHER):
                await ongoing.done.wait()
        except TimeoutError:
            raise ResizeRefusedError("deferred", "another resize of the pod is being carried out") from None

    async def _follow(self, pod: PodRecord, ongoing: ResizeInProgress) -> None:
        """Carry out a resize in a task; queue it again when it fails."""
        try:
            await self.actuator.carry_out(ongoing)
            pod.resize = ""
        except ResizeRefusedError as error:
            self._want(ongoing.unit, ongoing.desired)
            pod.resize = str(error)
        except Exception as error:
            self._owner.reporter.failed(pod.identity, failure_of("resize", error))
            pod.resize = f"resize failed: {type(error).__name__}"

    async def _cancel(self, ongoing: ResizeInProgress) -> None:
        """End a running resize: one in its delay is cancelled, one that already writes is waited for."""
        if ongoing.waiting and ongoing.task is not None:
            ongoing.task.cancel()
        await ongoing.done.wait()

    # Retries

    async def run(self) -> None:
        """Retry waiting resizes for ever: when CPUs become free, and every minute."""
        while True:
            await wait_at_most(self._room, 60)
            self._room.clear()
            await self.retry()

    def room_freed(self) -> None:
        """Retry waiting resizes soon, because CPUs may be free."""
        self._room.set()

    def _queue_unapplied(self) -> None:
        """Queue resizes that the runtime applied and the agent did not."""
        for record in self._owner.containers.values():
            if (found := self._requests.unapplied(record)) is not None:
                self._want(record.unit, found)
        if self._wanted:
            self._room.set()

    def policy_changed(self) -> None:
        """Forget refusals of the old policy, and queue resizes that it did not allow."""
        self._refused.clear()
        self._queue_unapplied()

    async def retry(self) -> None:
        """Try each waiting resize once; drop those that are no longer asked for."""
        for unit, wanted in list(self._wanted.items()):
            pod = self._owner.pods.get(unit.partition("/")[0])
            if pod is None or unit not in pod.units or not self._is_asked(unit, wanted):
                self._wanted.pop(unit, None)
                self._refused.pop(unit, None)
                continue
            if self._outdated(pod, unit, wanted.desired) or unit in self.actuator.in_progress:
                continue
            self._refused.pop(unit, None)
            # A retry is not a request of the kubelet, so a new refusal keeps the old time.
            at = wanted.at
            try:
                await self.resize(pod, wanted.desired)
            except ResizeRefusedError:
                if unit in self._wanted:
                    self._wanted[unit] = self._wanted[unit]._replace(at=at)

    def _is_asked(self, unit: str, wanted: _Wanted) -> bool:
        """Return whether the kubelet asked recently, or takes the resize for done."""
        if self._clock() - wanted.at <= ASKED_LATELY:
            return True
        return any(self._requests.unapplied(record) is not None for record in self.actuator.records(unit))

    def _outdated(self, pod: PodRecord, unit: str, desired: Pod) -> bool:
        """Return whether the pod's specification asks for something else by now."""
        found = self._requests.find(pod.identity) if unit == pod.identity.uid else None
        return found is not None and not requests_same(found, desired, self.actuator.store.node.rules.gates)

    async def close(self) -> None:
        """Cut delays short and wait for running resizes to end."""
        tasks: list[asyncio.Task[None]] = []
        for ongoing in self.actuator.in_progress.values():
            ongoing.skip_delay.set()
            tasks += [ongoing.task] if ongoing.task is not None else []
        if tasks:
            await asyncio.wait(tasks, timeout=LONGEST_OTHER)


def _direction(before: Pod, desired: Pod) -> str:
    """Return `grow` or `shrink`, by the CPU limits."""
    return "shrink" if _milli(desired) < _milli(before) else "grow"


def _milli(pod: Pod) -> int:
    spec = pod.spec
    stanzas = [one.resources for one in (*spec.init_containers, *spec.containers)]
    stanzas += [] if spec.resources is None else [spec.resources]
    return sum((one.limits or {}).get("cpu", ZERO).milli_value() for one in stanzas)
