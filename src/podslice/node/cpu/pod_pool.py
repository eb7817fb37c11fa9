"""Explain an empty pod shared pool: which resource the exclusive containers use up, and which containers take it.

The managers refuse such a pod with a fixed sentence, or return an empty list of hints; neither names the resource.
"""

from __future__ import annotations

from typing import NamedTuple

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.node.cpu import pod_level
from podslice.node.memory import pod_level as memory_pod
from podslice.values.errors import AdmissionError
from podslice.values.quantity import BINARY_SI, Quantity
from podslice.values.quirks import Quirks


class EmptyPool(NamedTuple):
    """A resource of a pod that its exclusive containers use up: the pod's `budget` (CPUs or bytes), the amount of each
    of the `owners`, and the `sharers` for which nothing is left."""

    resource: str
    budget: int
    owners: tuple[tuple[str, int], ...]
    sharers: tuple[str, ...]

    def shown(self, amount: int) -> str:
        """Format an amount of the resource: `4 CPUs`, `4Gi memory`."""
        if self.resource == "cpu":
            return f"{amount} CPU{'s' if amount != 1 else ''}"
        return f"{Quantity.of(amount, BINARY_SI)} {self.resource}"

    def __str__(self) -> str:
        taken = " + ".join(f"{name} {self.shown(amount)}" for name, amount in self.owners)
        return (
            f"the pod's budget is {self.shown(self.budget)}, its exclusive containers take all of it ({taken}) and "
            f"leave nothing for {', '.join(self.sharers)}"
        )


def find_empty_pool(pod: AdmissionPod, quirks: Quirks, *, cpus: bool, memory: bool) -> EmptyPool | None:
    """Return the resource that a pod's exclusive containers use up, of those that a manager allocates to the pod as a
    whole; None where there is none."""
    pool = empty_cpu_pool(pod, quirks) if cpus and pod.cpus else None
    if pool is None and memory and pod.guaranteed:
        pool = empty_memory_pool(pod, quirks)
    return pool


def empty_cpu_pool(pod: AdmissionPod, quirks: Quirks) -> EmptyPool | None:
    """Return the pod's CPUs, if its exclusive containers use them up. Only a budget of whole CPUs is divided: with any
    other all containers run in the node's shared pool."""
    if not pod.cpus:
        return None
    starving = pod_level.starving_init(pod, quirks)
    if starving is not None:
        before = pod.containers[: pod.containers.index(starving)]
        owners = tuple((c.name, c.exclusive_cpus) for c in before if c.restartable and c.exclusive_cpus)
        sharers = tuple(c.name for c in before if c.restartable and c.shares)
        return EmptyPool("cpu", pod.cpus, (*owners, (starving.name, starving.exclusive_cpus)), sharers)
    try:
        pod_level.check_shared_pool(pod, quirks)
    except AdmissionError:
        owners = tuple((c.name, c.exclusive_cpus) for c in pod.containers if c.exclusive_cpus and not c.plain_init)
        sharers = tuple(c.name for c in pod.containers if c.shares)
        return EmptyPool("cpu", pod.cpus, owners, sharers)
    return None


def empty_memory_pool(pod: AdmissionPod, quirks: Quirks | None = None) -> EmptyPool | None:
    """Return the pod's memory or huge pages, if its exclusive containers use them up; `quirks` as for
    `container_memory`."""

    def own(container: AdmissionContainer) -> Amounts:
        return container_memory(pod, container, quirks)

    try:
        request = pod_memory(pod, quirks)
        amounts = {container.name: own(container) for container in pod.containers}
    except AdmissionError:
        return None
    try:
        memory_pod.check_shared_pool(pod, request, own)
    except AdmissionError:
        running = [container.name for container in pod.containers if not container.plain_init]
        taken = {name: sum(amounts[one].get(name, 0) for one in running) for name in request}
        # The manager's check stops at the first resource by name; so does this.
        name = next(name for name in sorted(request) if taken[name] >= request[name])
        owners = tuple((one, amounts[one][name]) for one in running if amounts[one].get(name))
        return EmptyPool(name, request[name], owners, tuple(one for one in amounts if not amounts[one]))
    return None
