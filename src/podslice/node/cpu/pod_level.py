"""Divide a pod's CPUs among its containers (KEP-5526; cpu-topology 6.4).

A pod with pod-level resources gets one set of pod CPUs. Containers with exclusive CPUs own slices of it, all others
share the rest. Pure functions: the pod CPUs come in, a set for every container goes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.quirks import Quirks
from podslice.values.reasons import EMPTY_POD_SHARED_POOL

POD_POOL_EMPTY = "pod-pool-empty"
_NOTHING_FOR_INIT = RefusalKind(
    POD_POOL_EMPTY,
    "pod rejected, pod has shared init containers but no cpus available for them",
    EMPTY_POD_SHARED_POOL,
)
_NOTHING_SHARED = RefusalKind(
    POD_POOL_EMPTY,
    "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers",
    EMPTY_POD_SHARED_POOL,
)
_NOTHING_BESIDE_INIT = RefusalKind(
    POD_POOL_EMPTY,
    "pod rejected, init container {container} owns all cpus of the pod while it runs, leaving none for the shared "
    "sidecars that run beside it",
    EMPTY_POD_SHARED_POOL,
)


def check_shared_pool(pod: AdmissionPod, quirks: Quirks) -> None:
    """Refuse a pod whose exclusive containers leave nothing for the others (cpu-topology 6.4.1).

    Raises `AdmissionError` with reason `EmptyPodSharedPoolError`.
    """
    starving = starving_init(pod, quirks)
    if starving is not None:
        raise AdmissionError(_NOTHING_BESIDE_INIT, container=starving.name)
    running = 0
    shared = False
    for container in pod.containers:
        if not container.plain_init:
            running += container.exclusive_cpus
            shared = shared or container.shares
        elif container.shares and running + container.exclusive_cpus >= pod.cpus:
            raise AdmissionError(_NOTHING_FOR_INIT)
    if shared and running >= pod.cpus:
        raise AdmissionError(_NOTHING_SHARED)


def starving_init(pod: AdmissionPod, quirks: Quirks) -> AdmissionContainer | None:
    """Return the init container that, with the sidecars before it, owns all CPUs of its pod while a sidecar on the
    shared pool runs; None where there is none. Upstream lets both run on the same CPUs (quirk
    `init_overlaps_sidecars`)."""
    if quirks.init_overlaps_sidecars:
        return None
    sidecars = 0
    shared = False
    for container in pod.containers:
        if container.restartable:
            sidecars += container.exclusive_cpus
            shared = shared or container.shares
        elif container.init and container.exclusive_cpus and shared and sidecars + container.exclusive_cpus >= pod.cpus:
            return container
    return None


class Slice(NamedTuple):
    """A container's part of the pod CPUs; `exclusive`: no other container of the pod runs on it."""

    container: str
    cpus: Bits
    exclusive: bool


def partition(
    pod: AdmissionPod, pod_cpus: Bits, pick: Callable[[Bits, int], Bits], on_pick: Callable[[str], None]
) -> list[Slice]:
    """Return a set of CPUs for every container, in init, then app order (cpu-topology 6.4, steps 7 to 9).

    `pick(available, count)` takes CPUs and may raise; `on_pick(event)` is called with `"request"` before and
    `"exclusive"` after each pick, and with `"shared"` for each container that shares, in upstream's order.
    """
    slices: dict[str, Slice] = {}
    sidecars = 0
    shared = pod_cpus
    for container in pod.containers:
        if not container.init:
            break
        if container.exclusive_cpus:
            on_pick("request")
            cpus = pick(pod_cpus & ~sidecars, container.exclusive_cpus)
            on_pick("exclusive")
            slices[container.name] = Slice(container.name, cpus, True)
            if container.restartable:
                sidecars |= cpus
        # A plain init container that shares gets the pool as it is at its place in the order: sidecars after it take
        # their slices later (cpu-topology 6.4, step 7).
        elif not container.restartable:
            on_pick("shared")
            slices[container.name] = Slice(container.name, pod_cpus & ~sidecars, False)
    shared = pod_cpus & ~sidecars
    for container in pod.containers:
        if not container.init and container.exclusive_cpus:
            on_pick("request")
            cpus = pick(shared, container.exclusive_cpus)
            on_pick("exclusive")
            slices[container.name] = Slice(container.name, cpus, True)
            shared &= ~cpus
    result = []
    for container in pod.containers:
        part = slices.get(container.name)
        if part is None:
            on_pick("shared")
            part = Slice(container.name, shared, False)
        result.append(part)
    return result
