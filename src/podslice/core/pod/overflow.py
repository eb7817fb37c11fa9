"""Amounts that 64 bits do not hold.

Kubernetes counts CPUs in thousandths and everything else in units, as 64-bit integers. An amount beyond that is
silently another amount: `8E` CPUs count as 0. Profile podslice refuses such pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.core.pod.demand import pod_limits, pod_requests
from podslice.core.pod.spec import Pod, ResourceRequirements
from podslice.core.values.golang import INT64_MAX
from podslice.core.values.quantity import Quantity

_LARGEST = {True: INT64_MAX * 10**6, False: INT64_MAX * 10**9}
"""In billionths, of CPUs and of everything else."""


def overflows(name: str, amount: Quantity) -> bool:
    """Whether what Kubernetes makes of an amount of a resource is another amount."""
    return abs(amount.nano) > _LARGEST[name == "cpu"]


def overflowing_amount(pod: Pod, gates: Mapping[str, bool]) -> str:
    """What of a pod, or of its sums, 64 bits do not hold, as a sentence; empty for nothing."""
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers)
    parts = [container.resources for container in containers]
    if spec.resources is not None:
        parts.append(spec.resources)
    if spec.overhead:
        parts.append(ResourceRequirements(requests=spec.overhead))
    # Sums are worked out only where they could overflow: no pod of a real cluster comes near.
    if _largest(parts) * (len(parts) + 1) <= _LARGEST[True]:
        return ""
    for container in containers:
        for name, amount in _amounts(container.resources):
            if overflows(name, amount):
                return _sentence(f"container {container.name}", name, amount)
    pod_level = gates["PodLevelResources"]
    for total in (pod_requests(pod, pod_level=pod_level), pod_limits(pod, pod_level=pod_level)):
        for name, amount in total.items():
            if overflows(name, amount):
                return _sentence("the pod", name, amount)
    return ""


def _largest(parts: Iterable[ResourceRequirements]) -> int:
    largest = 0
    for part in parts:
        for amounts in (part.requests, part.limits):
            if amounts:
                largest = max(largest, *[abs(amount.nano) for amount in amounts.values()])
    return largest


def _amounts(resources: ResourceRequirements) -> Iterable[tuple[str, Quantity]]:
    if resources.requests:
        yield from resources.requests.items()
    if resources.limits:
        yield from resources.limits.items()


def _sentence(owner: str, name: str, amount: Quantity) -> str:
    text = str(amount)
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    return f"{owner} asks for {shown} {name}, and Kubernetes counts {name} in 64 bits"
