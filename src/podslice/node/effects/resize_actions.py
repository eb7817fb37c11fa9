"""Derive the plan of a granted resize: the containers that change or restart, and the values to reach
(pod-level-resources 15.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from podslice.api.pod.resizable import (
    Amounts,
    are_equal_amounts,
    effective_amounts,
    needs_restart,
    resizable_containers,
)
from podslice.api.pod.spec import Container, Pod, PodAllocation
from podslice.node.effects.cgroup import PodCgroup, pod_cgroup
from podslice.node.effects.container_cgroup import linux_resources
from podslice.node.effects.resize_plan import (
    UNLIMITED,
    ContainerResize,
    LinuxValues,
    PodResize,
    ResizePlan,
    plan_resize,
)
from podslice.node.effects.sandbox import Sandbox, sandbox_update
from podslice.node.effects.settings import CgroupSettings
from podslice.values.quantity import ZERO, Quantity
from podslice.values.quirks import PODSLICE, Quirks

replace = msgspec.structs.replace


class Observed(msgspec.Struct, frozen=True):
    """A running pod as observed: the values of its cgroup, bytes in use by the pod and by container, and the containers
    that run. Those of them that own their CPUs (`exclusive`) have no quota."""

    cgroup: LinuxValues
    memory_usage: int | None = None
    container_usage: Mapping[str, int] = {}
    running: Collection[str] = ()
    exclusive: Collection[str] = ()


class Actuation(msgspec.Struct, frozen=True):
    """One pod between what was granted (`allocated`) and what was written last (`actuated`).

    `enforce_cpu_limits` is False without CFS quota and for a pod that owns its CPUs (pod-level-resources 8.2).
    """

    allocated: Pod
    actuated: PodAllocation
    observed: Observed
    gates: Mapping[str, bool]
    settings: CgroupSettings
    enforce_cpu_limits: bool = True
    quirks: Quirks = PODSLICE

    def plan(self) -> ResizePlan:
        """Return the steps that write what was granted."""
        return plan_resize(self.resize(), self.announce, self.quirks)

    def resize(self) -> PodResize:
        """Return the changes in numbers."""
        target = pod_cgroup(
            self.allocated,
            self.gates,
            enforce_cpu_limits=self.enforce_cpu_limits,
            period=self.settings.cfs_period_us,
        )
        return PodResize(
            pod=self.allocated.metadata.name,
            current=self.observed.cgroup,
            target=LinuxValues(target.cpu_shares, target.cpu_quota or None, target.cpu_period, target.memory or None),
            containers=tuple(self._containers()),
            memory_usage=self.observed.memory_usage,
        )

    def announce(self, values: LinuxValues) -> Sandbox:
        """Return the message to the runtime about a pod cgroup with these values, without overhead."""
        quota, memory = values.cpu_quota, values.memory
        if not self.quirks.negative_sandbox_limits:
            quota, memory = _drop_unlimited(quota), _drop_unlimited(memory)
        cgroup = PodCgroup(values.cpu_shares or 0, quota, values.cpu_period, memory, {})
        message = sandbox_update(self.allocated, cgroup, self.gates, self.settings)
        if quota is not None or values.cpu_quota is None:
            return message
        return replace(message, resources=replace(message.resources, cpu_quota=UNLIMITED))

    def _containers(self) -> Iterator[ContainerResize]:
        """Yield the resize of each running container whose written amounts differ from the granted ones."""
        stanza = self.allocated.spec.resources
        limits = (stanza.limits if stanza else None) or {}
        written_limits = (self.actuated.pod_level.limits if self.actuated.pod_level else None) or {}
        for container in resizable_containers(self.allocated, self.gates):
            written = self.actuated.containers.get(container.name)
            # A container that does not run gets the new values when it starts.
            if written is None or container.name not in self.observed.running:
                continue
            then = effective_amounts(container, limits)
            now = effective_amounts(Container(container.name, resources=written), written_limits)
            if not are_equal_amounts(then, now):
                yield ContainerResize(
                    name=container.name,
                    current=self._values(container, now),
                    target=self._values(container, then),
                    restart=_wants_restart(container, now, then),
                    memory_usage=self.observed.container_usage.get(container.name),
                    cpu_limit=_direction(now[2], then[2]),
                    memory_request=_direction(now[1], then[1]),
                )

    def _values(self, container: Container, amounts: Amounts) -> LinuxValues:
        """Return the values of a container with these amounts. A limit that is missing is not written: limits are never
        removed. Without a CPU request it has the least weight after any update, whatever it was created with."""
        cpu_request, _, cpu_limit, memory_limit = amounts
        values = linux_resources(
            cpu_request or ZERO,
            cpu_limit or ZERO,
            memory_limit or ZERO,
            self.settings,
            self.gates,
            quota_disabled=container.name in self.observed.exclusive,
        )
        period = values.cpu_period if values.cpu_quota else 0
        return LinuxValues(values.cpu_shares, values.cpu_quota or None, period or None, values.memory_limit or None)


def _drop_unlimited(value: int | None) -> int | None:
    return None if value == UNLIMITED else value


def _direction(now: Quantity | None, then: Quantity | None) -> int:
    """Return 1 for up, −1 for down, 0 for no change; a missing amount counts as zero."""
    before, after = now or ZERO, then or ZERO
    return (after > before) - (after < before)


def _wants_restart(container: Container, now: Amounts, then: Amounts) -> bool:
    changed = {"cpu": (0, 2), "memory": (1, 3)}
    return any(
        needs_restart(container, resource) and any(_direction(now[index], then[index]) for index in indices)
        for resource, indices in changed.items()
    )
