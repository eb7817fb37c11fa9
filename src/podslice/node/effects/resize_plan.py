"""The order in which a resize is written (KEP-5419; pod-level-resources 15.6), as a plan to read, test and carry out.

A pod's limit must cover its containers' at every moment. So for memory, then for CPU: the pod's values rise first,
containers follow (those that shrink before those that grow), and the pod's values fall last. Each write to the pod's
cgroup is announced to the runtime before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec

from podslice.node.effects.cpu_weight import shares_to_weight
from podslice.node.effects.sandbox import Sandbox
from podslice.values.quirks import PODSLICE, Quirks

replace = msgspec.structs.replace

Resource: TypeAlias = Literal["memory", "cpu"]
UNLIMITED = -1


class LinuxValues(msgspec.Struct, frozen=True):
    """cgroup values of a pod or container. None: not known, or as a target, not changed. `memory` in bytes, `cpu_quota`
    and `cpu_period` in microseconds; −1 is no limit."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    memory: int | None = None


class ContainerResize(msgspec.Struct, frozen=True):
    """A container whose resources change. `restart`: its resize policy requires a restart, so it is stopped and starts
    with the target values. `memory_usage`: bytes in use, None when unknown. `cpu_limit`, `memory_request`: the
    direction of the change (1, -1 or 0), as no value shows a request of memory, nor a limit of CPUs where quota is
    disabled."""

    name: str
    current: LinuxValues
    target: LinuxValues
    restart: bool = False
    memory_usage: int | None = None
    cpu_limit: int = 0
    memory_request: int = 0


class PodResize(msgspec.Struct, frozen=True):
    """All of one resize. `current` are the values of the pod's cgroup, `target` those to reach; `memory_usage` as in
    `ContainerResize`."""

    pod: str
    current: LinuxValues
    target: LinuxValues
    containers: tuple[ContainerResize, ...] = ()
    memory_usage: int | None = None


class RestartContainer(msgspec.Struct, frozen=True, tag=True):
    """Stop the container; it starts again with the new values after the last step."""

    container: str

    @property
    def message(self) -> str:
        """The kubelet's message about the restart."""
        return f"Container {self.container} resize requires restart"


class NotifyRuntime(msgspec.Struct, frozen=True, tag=True):
    """UpdatePodSandboxResources with the pod's future values. If it fails the resize is rejected."""

    resource: Resource
    sandbox: Sandbox

    def failure(self, error: str) -> str:
        """Return the message of the pod's condition when the runtime refuses."""
        return (
            f"failed to notify runtime for UpdatePodSandboxResources (resource={self.resource}); "
            f"resize rejected: {error}"
        )


class WritePodCgroup(msgspec.Struct, frozen=True, tag=True):
    """Write one file of the pod's cgroup (cgroup v2). `values` are the numbers in it, `undo` is the message to the
    runtime if the write fails."""

    resource: Resource
    file: str
    content: str
    values: LinuxValues
    undo: NotifyRuntime


class UpdateContainer(msgspec.Struct, frozen=True, tag=True):
    """UpdateContainerResources with the values of one resource."""

    resource: Resource
    container: str
    values: LinuxValues


class RecordPodLevel(msgspec.Struct, frozen=True, tag=True):
    """Record the pod's values of one resource as actuated: they are written."""

    resource: Resource


Step: TypeAlias = RestartContainer | NotifyRuntime | WritePodCgroup | UpdateContainer | RecordPodLevel


class ResizePlan(msgspec.Struct, frozen=True):
    """The steps of a resize in order, or upstream's message in `error` why it must not begin."""

    steps: tuple[Step, ...] = ()
    error: str = ""

    def rollback(self, failed: int) -> tuple[NotifyRuntime, ...]:
        """Return the steps to take when step number `failed` fails. Steps before it stay; the next attempt plans from
        there."""
        step = self.steps[failed]
        return (step.undo,) if isinstance(step, WritePodCgroup) else ()


def plan_resize(resize: PodResize, announce: Callable[[LinuxValues], Sandbox], quirks: Quirks = PODSLICE) -> ResizePlan:
    """Return the plan of one resize. It has no steps when a memory limit would fall below what is in use.

    `announce` makes the runtime's message from the values of the pod's cgroup.
    """
    # Nothing is written when any limit cannot fall: a part of a resize would stay otherwise.
    error = memory_check(resize, quirks)
    if error:
        return ResizePlan(error=error)
    steps: list[Step] = [RestartContainer(one.name) for one in resize.containers if one.restart]
    running = tuple(one for one in resize.containers if not one.restart)
    state = resize.current
    for resource in ("memory", "cpu"):
        planner = _ResourcePlanner(resize, running, resource, state, announce, quirks)
        steps.extend(planner.steps())
        state = planner.state
    return ResizePlan(tuple(steps))


def tolerates(code: str, text: str) -> bool:
    """Whether this is the gRPC error of a runtime that does not know UpdatePodSandboxResources, which is not a
    failure."""
    return code == "Unimplemented" or (code == "Unknown" and "not implemented" in text)


# One resource


class _ResourcePlanner:
    """The steps of one resource. `state` are the pod's values as far as the plan has got."""

    def __init__(
        self,
        resize: PodResize,
        containers: tuple[ContainerResize, ...],
        resource: Resource,
        state: LinuxValues,
        announce: Callable[[LinuxValues], Sandbox],
        quirks: Quirks,
    ) -> None:
        self.announce = announce
        self.resize = resize
        self.containers = containers
        self.resource: Resource = resource
        self.state = state
        self.quirks = quirks
        self.start = state

    def steps(self) -> Iterator[Step]:
        """Yield the steps: the pod's values that rise, the containers, the pod's values that fall, the record."""
        limit, request = self._limit_change(), self._request_change()
        yield from self._write_limit(due=limit > 0)
        yield from self._write_request(due=request > 0)
        yield from self._containers()
        yield from self._write_request(due=request < 0)
        yield from self._write_limit(due=limit < 0)
        if self.state != self.start:
            yield RecordPodLevel(self.resource)

    def _limit_change(self) -> int:
        return _compare(limit_of(self.resize.target, self.resource), limit_of(self.state, self.resource), self.quirks)

    def _request_change(self) -> int:
        if self.resource == "memory":
            return 0
        return _compare(self.resize.target.cpu_shares, self.state.cpu_shares, self.quirks)

    def _write_limit(self, *, due: bool) -> Iterator[Step]:
        """Yield the write of the pod's limit, if it is `due`."""
        if not due:
            return
        target = self.resize.target
        if self.resource == "memory":
            yield from self._write("memory.max", _text(target.memory), memory=target.memory)
        else:
            period = self.state.cpu_period if target.cpu_period is None else target.cpu_period
            content = f"{_text(target.cpu_quota)} {period or 100_000}"
            yield from self._write("cpu.max", content, cpu_quota=target.cpu_quota, cpu_period=period)

    def _write_request(self, *, due: bool) -> Iterator[Step]:
        shares = self.resize.target.cpu_shares
        if due and shares is not None:
            yield from self._write("cpu.weight", str(shares_to_weight(shares)), cpu_shares=shares)

    def _write(self, file: str, content: str, **values: int | None) -> Iterator[Step]:
        """Yield the announcement of new values to the runtime and their write to one file."""
        # Made before the values change: a failed write takes the announcement back with the old values.
        undo = NotifyRuntime(self.resource, self.announce(self.state))
        self.state = replace(self.state, **values)
        yield NotifyRuntime(self.resource, self.announce(self.state))
        yield WritePodCgroup(self.resource, file, content, LinuxValues(**values), undo)

    def _containers(self) -> Iterator[Step]:
        """Yield updates of this resource: shrinking containers first, in reverse order; then growing ones."""
        changes = [(self._container_change(one), one) for one in self.containers]
        # As upstream: decreases in reverse order of the specification, increases in order (pod-level-resources 15.6).
        shrinking = [one for change, one in reversed(changes) if change < 0]
        for one in (*shrinking, *(one for change, one in changes if change > 0)):
            yield UpdateContainer(self.resource, one.name, self._update_of(one.target))

    def _container_change(self, container: ContainerResize) -> int:
        """Return the direction of a change: of the limit where it changes, else of the request."""
        now, then = container.current, container.target
        change = _compare(limit_of(then, self.resource), limit_of(now, self.resource), self.quirks)
        if self.resource == "memory":
            return change or container.memory_request
        return change or container.cpu_limit or _compare(then.cpu_shares, now.cpu_shares, self.quirks)

    def _update_of(self, target: LinuxValues) -> LinuxValues:
        if self.resource == "memory":
            return LinuxValues(memory=target.memory)
        return replace(target, memory=None)


def limit_of(values: LinuxValues, resource: Resource) -> int | None:
    """Return the limit of a resource: bytes, or microseconds per period."""
    return values.memory if resource == "memory" else values.cpu_quota


def _compare(target: int | None, current: int | None, quirks: Quirks) -> int:
    """Return 1 for an increase, −1 for a decrease, 0 for no change. Without a target nothing changes; an unknown
    current value counts as no limit."""
    if target is None:
        return 0
    before = UNLIMITED if current is None else current
    if not quirks.unlimited_is_least:
        target, before = (float("inf") if one == UNLIMITED else one for one in (target, before))  # type: ignore[assignment]
    return (target > before) - (target < before)


def _text(limit: int | None) -> str:
    return "max" if limit is None or limit == UNLIMITED else str(limit)


# Before anything is written


def memory_check(resize: PodResize, quirks: Quirks) -> str:
    """Return why the memory limits cannot be lowered now, empty where they can."""
    involved = any(one.restart or _compare(one.target.memory, one.current.memory, quirks) for one in resize.containers)
    gaps = quirks.resize_memory_check_gaps
    if not involved and gaps:
        return ""
    problems = list(_find_too_low(resize, quirks, names_pod_usage=gaps))
    if not problems:
        return ""
    listed = problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
    return f"cannot decrease memory limits: {listed}"


def _find_too_low(resize: PodResize, quirks: Quirks, *, names_pod_usage: bool) -> Iterator[str]:
    """Yield why memory limits cannot fall: usage that is unknown, or above the new limit."""
    used = resize.memory_usage
    if resize.target.memory is not None and _compare(resize.target.memory, resize.current.memory, quirks) < 0:
        if used is None:
            yield "missing pod memory usage"
        elif resize.target.memory <= used:
            yield f"attempting to set pod memory limit ({resize.target.memory}) below current usage ({used})"
    for one in resize.containers:
        if one.target.memory is None or _compare(one.target.memory, one.current.memory, quirks) >= 0:
            continue
        if one.memory_usage is None:
            yield f'missing container "{one.name}" memory usage'
        elif one.target.memory <= one.memory_usage:
            shown = used if names_pod_usage and used is not None else one.memory_usage
            yield (
                f'attempting to set container "{one.name}" memory limit ({one.target.memory}) '
                f"below current usage ({shown})"
            )
