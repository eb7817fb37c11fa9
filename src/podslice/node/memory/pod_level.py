"""Divide a pod's memory among its containers (KEP-5526; memory-device 1.11).

A pod with pod-level resources is charged once, as a whole. Its containers' amounts are parts of that budget: Guaranteed
containers own their request, all others share the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import Amounts
from podslice.node.cpu.pod_level import POD_POOL_EMPTY
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.golang import U64
from podslice.values.reasons import EMPTY_POD_SHARED_POOL

_NOTHING_FOR_INIT = RefusalKind(
    POD_POOL_EMPTY,
    "pod rejected, pod has shared init containers but no {resource} available for them",
)
_NOTHING_SHARED = RefusalKind(
    POD_POOL_EMPTY,
    "pod rejected, sum of exclusive container {resource} requests equals pod budget, leaving no memory for shared "
    "containers",
)
_OVER_BUDGET = RefusalKind(
    "over-budget", "[memorymanager] the containers of the pod request more {resource} than the pod itself"
)
Own = Callable[[AdmissionContainer], Amounts]
"""Return the bytes a container requests on its own; empty for containers that share."""


def check_shared_pool(pod: AdmissionPod, request: Amounts, own: Own) -> None:
    """Refuse a pod whose exclusive containers leave no memory for the others (memory-device 1.11.2).

    Raises `AdmissionError` with reason `EmptyPodSharedPoolError`, whatever the check fails on.
    """
    try:
        _check_shared_pool(pod, request, own)
    except AdmissionError as error:
        kind, facts = error.refusal
        raise AdmissionError(kind._replace(reason=EMPTY_POD_SHARED_POOL), **facts) from None


def _check_shared_pool(pod: AdmissionPod, request: Amounts, own: Own) -> None:
    """As `check_shared_pool`, with the reasons of the single checks."""
    running: Amounts = {}
    shared = False

    def find_exhausted() -> str:
        return next((name for name in sorted(request) if running.get(name, 0) >= request[name]), "")

    for container in pod.containers:
        amounts = own(container)
        if amounts and not container.plain_init:
            _add(running, amounts)
        elif not amounts and not container.plain_init:
            shared = True
        elif not amounts and find_exhausted():
            raise AdmissionError(_NOTHING_FOR_INIT, resource=find_exhausted())
    if shared and find_exhausted():
        raise AdmissionError(_NOTHING_SHARED, resource=find_exhausted())


def check_budget(pod: AdmissionPod, request: Amounts, own: Own) -> None:
    """Refuse a pod whose containers request more at a time than the pod has (memory-device 4.9). Raises
    `AdmissionError`."""
    running: Amounts = {}
    for container in pod.containers:
        at_a_time = dict(running)
        _add(at_a_time, own(container))
        if not container.plain_init:
            running = at_a_time
        over = [name for name, size in sorted(at_a_time.items()) if size > request.get(name, 0)]
        if over:
            raise AdmissionError(_OVER_BUDGET, resource=over[0])


def partition(pod: AdmissionPod, request: Amounts, own: Own, on_slice: Callable[[str], None]) -> dict[str, Amounts]:
    """Return the bytes of every container (memory-device 1.11.1, steps 5 to 7); wraps at 64 bits as upstream does.

    `on_slice(event)` is called with `"request"` before a container's slice, and with `"exclusive"` or `"shared"` after
    it.
    """
    sidecars: Amounts = {}
    slices: dict[str, Amounts] = {}
    for container in pod.containers:
        if not container.init:
            continue
        on_slice("request")
        amounts = own(container)
        if amounts:
            slices[container.name] = amounts
            on_slice("exclusive")
            if container.restartable:
                _add(sidecars, amounts)
        elif not container.restartable:
            # Only sidecars before it count: app containers start after it has ended.
            slices[container.name] = _subtract_from_budget(request, sidecars)
            on_slice("shared")
    pool = _subtract_from_budget(request, sidecars)
    for container in pod.containers:
        amounts = {} if container.init else own(container)
        if amounts:
            on_slice("request")
            slices[container.name] = amounts
            on_slice("exclusive")
            pool = _subtract(pool, amounts)
    for container in pod.containers:
        if container.name not in slices:
            slices[container.name] = pool
            on_slice("shared")
    return slices


def _add(total: Amounts, amounts: Amounts) -> None:
    for name, size in amounts.items():
        total[name] = total.get(name, 0) + size


def _subtract_from_budget(request: Amounts, taken: Amounts) -> Amounts:
    """Return what is left of the pod's own resources; resources that only containers request are not in the budget."""
    return {name: (size - taken.get(name, 0)) & U64 for name, size in request.items()}


def _subtract(amounts: Amounts, taken: Amounts) -> Amounts:
    return {name: (amounts.get(name, 0) - taken.get(name, 0)) & U64 for name in {**amounts, **taken}}
