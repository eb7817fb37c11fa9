"""Dividing a pod's memory among its containers (KEP-5526; memory-device 1.11).

A pod with pod-level resources is booked once, as a whole. What its containers get is a statement about that budget:
Guaranteed containers own their request, everybody else shares the rest.
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
"""The bytes a container asks for on its own; empty for containers that share."""


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
    running: Amounts = {}
    shared = False

    def exhausted() -> str:
        return next((name for name in sorted(request) if running.get(name, 0) >= request[name]), "")

    for container in pod.containers:
        amounts = own(container)
        if amounts and not container.plain_init:
            _add(running, amounts)
        elif not amounts and not container.plain_init:
            shared = True
        elif not amounts and exhausted():
            raise AdmissionError(_NOTHING_FOR_INIT, resource=exhausted())
    if shared and exhausted():
        raise AdmissionError(_NOTHING_SHARED, resource=exhausted())


def check_budget(pod: AdmissionPod, request: Amounts, own: Own) -> None:
    """Refuse a pod whose containers ask for more at a time than the pod has (memory-device 4.9). Raises
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
    """Bytes for every container (memory-device 1.11.1, steps 5 to 7); wraps at 64 bits as upstream does.

    `on_slice(event)` is told `"request"` before a container is looked at, and `"exclusive"` or `"shared"` after.
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
            slices[container.name] = _budget_less(request, sidecars)
            on_slice("shared")
    pool = _budget_less(request, sidecars)
    for container in pod.containers:
        amounts = {} if container.init else own(container)
        if amounts:
            on_slice("request")
            slices[container.name] = amounts
            on_slice("exclusive")
            pool = _minus(pool, amounts)
    for container in pod.containers:
        if container.name not in slices:
            slices[container.name] = pool
            on_slice("shared")
    return slices


def _add(total: Amounts, amounts: Amounts) -> None:
    for name, size in amounts.items():
        total[name] = total.get(name, 0) + size


def _budget_less(request: Amounts, taken: Amounts) -> Amounts:
    """What is left of the pod's own resources; others, which only containers ask for, are none of the budget."""
    return {name: (size - taken.get(name, 0)) & U64 for name, size in request.items()}


def _minus(amounts: Amounts, taken: Amounts) -> Amounts:
    return {name: (amounts.get(name, 0) - taken.get(name, 0)) & U64 for name in {**amounts, **taken}}
