"""From a granted resize to what has to be written: which containers change, which restart, and the target values
(spec pod-level-resources 15.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from podslice.core.effects.cgroup import pod_resource_config
from podslice.core.effects.cpu_weight import DEFAULT_PERIOD_US, milli_cpu_to_quota, milli_cpu_to_shares
from podslice.core.effects.resize_plan import ContainerResize, LinuxValues, PodResize
from podslice.core.pod.resizable import Amounts, effective, resizable_containers, restarts_for
from podslice.core.pod.spec import Container, Pod
from podslice.core.quirks import PODSLICE, Quirks
from podslice.core.state.checkpoint_allocation import PodAllocation
from podslice.core.values.quantity import ZERO, Quantity


class Observed(msgspec.Struct, frozen=True):
    """The node's side of a running pod: the values its cgroup carries, bytes in use by the pod and by container, which
    containers run, and which of those own their CPUs and so have no quota."""

    cgroup: LinuxValues
    memory_usage: int | None = None
    container_usage: Mapping[str, int] = {}
    running: Collection[str] = ()
    exclusive: Collection[str] = ()


def pod_resize(
    allocated: Pod,
    actuated: PodAllocation,
    observed: Observed,
    gates: Mapping[str, bool],
    *,
    enforce_cpu_limits: bool = True,
    period: int = DEFAULT_PERIOD_US,
    quirks: Quirks = PODSLICE,
) -> PodResize:
    """All that is to be written for the granted resources; `actuated` is what was written last.

    `enforce_cpu_limits` is False without CFS quota and for a pod whose containers own their CPUs (spec 8.2)."""
    config = pod_resource_config(allocated, gates, enforce_cpu_limits=enforce_cpu_limits, period=period)
    target = LinuxValues(config["cpuShares"], config["cpuQuota"] or None, config["cpuPeriod"], config["memory"] or None)
    overhead = allocated.spec.overhead or {}
    cpu = overhead.get("cpu", ZERO).milli_value()
    return PodResize(
        pod=allocated.metadata.name,
        current=observed.cgroup,
        target=target,
        containers=tuple(_container_resizes(allocated, actuated, observed, gates, quirks)),
        overhead=LinuxValues(
            milli_cpu_to_shares(cpu) if cpu else 0,
            milli_cpu_to_quota(cpu, period),
            period,
            overhead.get("memory", ZERO).value(),
        ),
        memory_usage=observed.memory_usage,
    )


def _container_resizes(
    allocated: Pod, actuated: PodAllocation, observed: Observed, gates: Mapping[str, bool], quirks: Quirks
) -> Iterator[ContainerResize]:
    limits = (allocated.spec.resources.limits if allocated.spec.resources else None) or {}
    written_limits = (actuated.pod_level.limits if actuated.pod_level else None) or {}
    for container in resizable_containers(allocated, gates):
        written = actuated.containers.get(container.name)
        if container.name not in observed.running or written is None:
            continue
        then = effective(container, limits)
        now = effective(Container(container.name, resources=written), written_limits)
        if then == now:
            continue
        own_cpus = container.name in observed.exclusive
        yield ContainerResize(
            name=container.name,
            current=container_values(now, exclusive=own_cpus, quirks=PODSLICE),
            target=container_values(then, exclusive=own_cpus, quirks=quirks),
            restart=_wants_restart(container, now, then),
            memory_usage=observed.container_usage.get(container.name),
        )


def _wants_restart(container: Container, now: Amounts, then: Amounts) -> bool:
    return any(
        restarts_for(container, resource) and (now[index] != then[index] or now[index + 2] != then[index + 2])
        for index, resource in enumerate(("cpu", "memory"))
    )


def container_values(amounts: Amounts, *, exclusive: bool = False, quirks: Quirks = PODSLICE) -> LinuxValues:
    """The values a container's update asks for. A limit that is missing is not written: limits are not taken away."""
    cpu_request, _, cpu_limit, memory_limit = amounts
    if cpu_request is None and not quirks.resize_update_drops_shares:
        cpu_request = cpu_limit
    quota = -1 if exclusive else milli_cpu_to_quota(_milli(cpu_limit))
    return LinuxValues(
        cpu_shares=milli_cpu_to_shares(_milli(cpu_request)),
        cpu_quota=quota or None,
        cpu_period=DEFAULT_PERIOD_US if quota else None,
        memory=(memory_limit or ZERO).value() or None,
    )


def _milli(quantity: Quantity | None) -> int:
    return 0 if quantity is None else quantity.milli_value()
