"""The agent as an NRI plugin: passes the runtime's calls to the owner and turns its decisions into answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from podslice.agent.contract import Listed, PodFailure, RefusedError
from podslice.agent.guards.guardsfirst import RequiredGuards, check_guards, run_guards_first
from podslice.agent.kubelet.sources import Sources
from podslice.agent.owner import Found, Owner
from podslice.agent.records import ContainerRecord, ReportedRefusal, SandboxRecord
from podslice.agent.resize.resize_in_progress import ResizeRefusedError
from podslice.agent.resize.resizing import Resizing
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.nri import CreateAnswer
from podslice.agent.runtime.runtimes import known_bugs_of
from podslice.agent.runtime.translate import add_claimed, add_options
from podslice.agent.runtime.ttrpc import FAILED_PRECONDITION, INVALID_ARGUMENT, RPCError
from podslice.agent.seam import failure_of
from podslice.agent.updates import Write
from podslice.service.identity import Identity, check_container, identity_of
from podslice.service.proto import nri_pb2 as nri
from podslice.values.errors import AdmissionError, InputError
from podslice.values.reasons import INVALID_POD, UNEXPECTED_ADMISSION

_FILES_PER_TURN = 4
_LONGEST_REFUSAL = 2000


T = TypeVar("T")


def _found(tried: Found | PodFailure) -> Found:
    return ReportedRefusal(UNEXPECTED_ADMISSION, str(tried)) if isinstance(tried, PodFailure) else tried


class Timer(Protocol):
    """Receives the duration of a hook, in seconds."""

    def hook(self, name: str, seconds: float) -> None: ...


class AgentPlugin:
    """Implements `runtime.nri.Plugin`.

    `settle`: writes the cgroup of an admitted pod, given its UID. `write`: writes that of a container. `ended`: returns
    whether a listed sandbox without containers has ended. `observe`: decide and report, but refuse and change nothing.
    """

    def __init__(
        self,
        owner: Owner,
        sources: Sources,
        files: ContainerFiles,
        timer: Timer,
        *,
        settle: Callable[[str], None],
        write: Write,
        ended: Callable[[Identity], bool],
        resizing: Resizing | None,
        guards: RequiredGuards | None = None,
        observe: bool = False,
    ) -> None:
        self._owner = owner
        self._sources = sources
        self._files = files
        self._timer = timer
        self._settle = settle
        self._write_cgroup = write
        self._ended = ended
        self._resizing = resizing
        self._guards = guards
        self._observe = observe
        self.runtime = ""
        self.warnings: list[str] = []
        self._outdated_files: dict[str, ContainerRecord] = {}
        self._unwritten_files: dict[str, ContainerRecord] = {}

    def configure(self, request: nri.ConfigureRequest) -> None:
        self.runtime = f"{request.runtime_name} {request.runtime_version}".strip()
        self.warnings = known_bugs_of(request.runtime_name, request.runtime_version)

    def synchronize(self, pods: list[nri.PodSandbox], containers: list[nri.Container]) -> Iterable[nri.ContainerUpdate]:
        started = time.perf_counter()
        sandboxes, valid = [], []
        for container in containers:
            try:
                check_container(container)
                valid.append(container)
            except InputError as error:
                self._owner.reporter.trouble("invalid", str(error))
        # A sandbox with a running container runs as well, whatever its own cgroup looks like.
        inhabited = {one.pod_sandbox_id for one in valid if one.state != nri.CONTAINER_STOPPED}
        for pod in pods:
            try:
                identity = identity_of(pod)
                stopped = pod.id not in inhabited and self._ended(identity)
                sandboxes.append(SandboxRecord(pod.id, identity, stopped))
            except InputError as error:
                self._owner.reporter.trouble("invalid", str(error))
        # Files of containers that are gone can be removed only now: before, the owner knew none of this list.
        updates = self._owner.synchronize(Listed(sandboxes, valid))
        self._files.keep_only(set(self._owner.containers))
        for record in self._owner.containers.values():
            self.queue_file(record)
        if self._resizing is not None:
            self._resizing.resume()
        self._timer.hook("Synchronize", time.perf_counter() - started)
        return [] if self._observe else updates

    def run_pod(self, pod: nri.PodSandbox) -> Awaitable[None] | None:
        """Admit the pod of a new sandbox; never refuses it, see `Owner.run_pod`."""
        started = time.perf_counter()
        try:
            identity = identity_of(pod)
        except InputError as error:
            self._owner.reporter.trouble("invalid", str(error))
            return None
        found = self._look_up(identity)
        if found is None and self._sources.must_know(identity):
            return self._run_pod_later(pod.id, identity, started)
        self._run_pod(pod.id, identity, found, started)
        return None

    async def _run_pod_later(self, sandbox: str, identity: Identity, started: float) -> None:
        self._run_pod(sandbox, identity, await self._wait_for(identity), started)

    def _run_pod(self, sandbox: str, identity: Identity, found: Found, started: float) -> None:
        self._owner.run_pod(sandbox, identity, found)
        self._owner.seam.attempt("settle", identity, lambda: self._settle(identity.uid))
        self._timer.hook("RunPodSandbox", time.perf_counter() - started)

    def _look_up(self, identity: Identity) -> Found:
        """Return what the sources know now."""
        return _found(self._owner.seam.attempt("specification", identity, lambda: self._find(identity)))

    def _find(self, identity: Identity) -> Found:
        try:
            return self._sources.find(identity)
        except InputError as error:
            return ReportedRefusal(INVALID_POD, str(error))

    async def _wait_for(self, identity: Identity) -> Found:
        """Wait for the sources; None if no source is responsible for the pod."""
        try:
            spec = await self._sources.wait_for(identity)
        except InputError as error:
            return ReportedRefusal(INVALID_POD, str(error))
        except Exception as error:
            failure = failure_of("specification", error)
            self._owner.reporter.failed(identity, failure)
            return ReportedRefusal(UNEXPECTED_ADMISSION, str(failure))
        if spec is not None or not self._sources.must_know(identity):
            return spec
        return ReportedRefusal("PodUnknown", self._sources.explain_unknown(identity))

    @contextlib.contextmanager
    def _timed(self, hook: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._timer.hook(hook, time.perf_counter() - started)

    def _run_hook(self, hook: str, pod: nri.PodSandbox, work: Callable[[], T]) -> T | None:
        """Run a hook that must not fail: an error is recorded as the pod's failure."""
        with self._timed(hook):
            identity = Identity(pod.uid, pod.namespace, pod.name, {})
            done = self._owner.seam.attempt(hook, identity, work)
        return None if isinstance(done, PodFailure) else done

    def stop_pod(self, pod: nri.PodSandbox) -> None:
        self._run_hook("StopPodSandbox", pod, lambda: self._owner.stop_pod(pod.id))

    def remove_pod(self, pod: nri.PodSandbox) -> None:
        self._run_hook("RemovePodSandbox", pod, lambda: self._owner.remove_pod(pod.id))

    def create_container(self, pod: nri.PodSandbox, container: nri.Container) -> CreateAnswer | Awaitable[CreateAnswer]:
        started = time.perf_counter()
        identity = self._identity(pod)
        undecided = self._owner.undecided(identity.uid)
        found = self._look_up(identity) if undecided else None
        waits = undecided and found is None and self._sources.must_know(identity)
        if self._guards is not None and self._guards.required:
            return self._create_guarded(pod.id, identity, container, found, started, waits=waits)
        if waits:
            return self._create_later(pod.id, identity, container, started)
        if self._concerns_resizing(identity, container):
            return self._create_resized(pod.id, identity, container, started)
        return self._create(pod.id, identity, container, found, started)

    def _concerns_resizing(self, identity: Identity, container: nri.Container) -> bool:
        resizing = self._resizing
        if resizing is None or self._observe or self._owner.undecided(identity.uid):
            return False
        concerns = self._owner.seam.attempt("resize", identity, lambda: resizing.concerns_new(identity, container))
        return concerns is True

    async def _create_resized(
        self, sandbox: str, identity: Identity, container: nri.Container, started: float
    ) -> CreateAnswer:
        """Resize the pod of a container that restarts with other resources, then create the container."""
        assert self._resizing is not None
        try:
            await self._resizing.new(identity, container)
        except Exception as error:
            self._owner.reporter.failed(identity, failure_of("resize", error))
        return self._create(sandbox, identity, container, None, started)

    async def _create_guarded(
        self, sandbox: str, identity: Identity, container: nri.Container, found: Found, started: float, *, waits: bool
    ) -> CreateAnswer:
        """Create a container after its CPUs are guarded; whether they need to be is known once it is placed."""
        assert self._guards is not None
        found = await self._wait_for(identity) if waits else found
        now = self._owner.undecided(identity.uid)
        try:
            await run_guards_first(self._guards, self._owner, sandbox, identity, container, found)
        except RefusedError as error:
            self._timer.hook("CreateContainer", time.perf_counter() - started)
            raise RPCError(FAILED_PRECONDITION, f"podslice: {error.refusal}"[:_LONGEST_REFUSAL]) from None
        if self._concerns_resizing(identity, container):
            return await self._create_resized(sandbox, identity, container, started)
        return self._create(sandbox, identity, container, found, started, decided_now=now)

    async def _create_later(
        self, sandbox: str, identity: Identity, container: nri.Container, started: float
    ) -> CreateAnswer:
        return self._create(sandbox, identity, container, await self._wait_for(identity), started)

    def _create(
        self,
        sandbox: str,
        identity: Identity,
        container: nri.Container,
        found: Found,
        started: float,
        *,
        decided_now: bool = False,
    ) -> CreateAnswer:
        """Answer the creation of a container. Raises `RPCError` with the reason where pod or container are refused; a
        dry run refuses nothing."""
        try:
            answer = self._owner.seam.attempt(
                "create",
                identity,
                lambda: self._place(sandbox, identity, container, found, decided_now=decided_now),
            )
            if isinstance(answer, PodFailure):
                raise RefusedError(ReportedRefusal(UNEXPECTED_ADMISSION, str(answer)))
            return answer
        except RefusedError as error:
            if self._observe:
                return CreateAnswer(nri.ContainerAdjustment())
            text = f"podslice: {error.refusal}"[:_LONGEST_REFUSAL]
            raise RPCError(FAILED_PRECONDITION, text) from None
        finally:
            self._timer.hook("CreateContainer", time.perf_counter() - started)

    def _place(
        self, sandbox: str, identity: Identity, container: nri.Container, found: Found, *, decided_now: bool
    ) -> CreateAnswer:
        """Place a container and return its adjustments. Raises `RefusedError`."""
        # Asked before `create_container`, which decides: a pod that was admitted only now has its cgroup yet to be set.
        waited = decided_now or self._owner.undecided(identity.uid)
        try:
            check_container(container)
            record = self._owner.create_container(sandbox, identity, container, found)
            options = self._owner.placing.run_options(record)
            if self._guards is not None:
                check_guards(self._guards, self._owner, identity)
        except (InputError, AdmissionError) as error:
            refusal = ReportedRefusal("InvalidContainer", str(error))
            self._owner.reporter.refused(identity, refusal)
            raise RefusedError(refusal) from None
        if waited or record.claims or record.unit not in ("", identity.uid):
            self._settle(identity.uid)
        updates = self._owner.updates.take(but=record.id)
        adjust = nri.ContainerAdjustment()
        if self._observe:
            return CreateAnswer(adjust)
        self.write_file(record)
        record.applied.write(adjust.linux.resources)
        shares = container.linux.resources.cpu.shares.value
        add_claimed(self._owner.placing.claimed_limits(record), shares, adjust.linux.resources)
        self._files.adjust(record, record.applied, adjust, self._owner.admitting.policy.mixed)
        add_options(options, adjust)
        return CreateAnswer(adjust, updates)

    def start_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self._run_hook("StartContainer", pod, lambda: self._start(container.id))

    def _start(self, container_id: str) -> None:
        record = self._owner.start_container(container_id)
        if record is not None and not self._observe:
            self._owner.updates.write_started(record, self._write_cgroup)

    def update_pod(self, pod: nri.PodSandbox, resources: nri.LinuxResources) -> Awaitable[None] | None:
        record, resizing = self._owner.pods.get(pod.uid), self._resizing
        if record is None or resizing is None:
            return None
        concerns = self._run_hook("UpdatePodSandbox", pod, lambda: resizing.concerns_pod(record, resources))
        return self._resize(record.identity, "UpdatePodSandbox", resizing.pod(record, resources)) if concerns else None

    async def _resize(self, identity: Identity, hook: str, work: Awaitable[T]) -> T | None:
        """Run a resize that a call waits for. Raises `RPCError` where it is refused."""
        with self._timed(hook):
            try:
                return await work
            except ResizeRefusedError as error:
                if self._observe:
                    return None
                raise RPCError(FAILED_PRECONDITION, f"podslice: {error}"[:_LONGEST_REFUSAL]) from None
            except Exception as error:
                self._owner.reporter.failed(identity, failure_of(hook, error))
                return None

    async def _resize_container(
        self, pod: nri.PodSandbox, record: ContainerRecord, resources: nri.LinuxResources, resizing: Resizing
    ) -> Iterable[nri.ContainerUpdate]:
        identity = Identity(pod.uid, pod.namespace, pod.name, {})
        updates = await self._resize(identity, "UpdateContainer", resizing.container(record, resources))
        return [] if self._observe else updates or []

    def update_container(
        self, pod: nri.PodSandbox, container: nri.Container, resources: nri.LinuxResources
    ) -> Iterable[nri.ContainerUpdate] | Awaitable[Iterable[nri.ContainerUpdate]]:
        record, resizing = self._owner.containers.get(container.id), self._resizing
        if record is not None and resizing is not None and resizing.concerns(record, resources):
            return self._resize_container(pod, record, resources, resizing)
        updates = self._run_hook("UpdateContainer", pod, lambda: self._owner.update_container(container.id, resources))
        return [] if self._observe else updates or []

    def post_update_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        if self._resizing is not None:
            self._resizing.applied(container.id)

    def stop_container(self, pod: nri.PodSandbox, container: nri.Container) -> Iterable[nri.ContainerUpdate]:
        updates = self._run_hook("StopContainer", pod, lambda: self._stop(container.id))
        return [] if self._observe else updates or []

    def _stop(self, container_id: str) -> list[nri.ContainerUpdate]:
        self._owner.stop_container(container_id)
        self._files.remove(container_id)
        return self._owner.updates.take()

    def remove_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self._run_hook("RemoveContainer", pod, lambda: self._remove(container.id))

    def _remove(self, container_id: str) -> None:
        self._owner.stop_container(container_id)
        self._files.remove(container_id)

    def on_crash(self, error: Exception) -> None:
        # The last frame is where the error was raised; frames above it are the dispatch of every call.
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        self._owner.reporter.trouble("crash", f"{type(error).__name__} at {where}: {str(error)[:500]}")

    def _identity(self, pod: nri.PodSandbox) -> Identity:
        try:
            return identity_of(pod)
        except InputError as error:
            raise RPCError(INVALID_ARGUMENT, f"podslice: {error}") from None

    # Container files are written after the answer, a few at a time, so that no call waits for them

    def queue_file(self, record: ContainerRecord) -> None:
        if self._observe:
            return
        if not self._outdated_files:
            asyncio.get_running_loop().call_soon(self._write_next_files)
        self._outdated_files[record.id] = record

    def write_again(self) -> None:
        """Queue the files that could not be written."""
        while self._unwritten_files:
            self.queue_file(self._unwritten_files.popitem()[1])

    def _write_next_files(self) -> None:
        for container_id in list(self._outdated_files)[:_FILES_PER_TURN]:
            record = self._outdated_files.pop(container_id)
            if container_id in self._owner.containers:
                self._owner.attempt("file", record, partial(self.write_file, record))
        if self._outdated_files:
            asyncio.get_running_loop().call_soon(self._write_next_files)

    def write_file(self, record: ContainerRecord) -> None:
        self._outdated_files.pop(record.id, None)
        try:
            placing = self._owner.placing
            self._files.write(record, placing.describe_container(record))
        except OSError as error:
            self._unwritten_files[record.id] = record
            self._owner.reporter.trouble("containerFile", f"{record.id}: {error.strerror or error}")
