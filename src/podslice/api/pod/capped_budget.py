"""Pod-level budgets of which the containers' own limits leave a part that no container can use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.api.pod.demand import aggregate, containers_in_order, is_pod_level_resources_set, limits_of, requests_of
from podslice.api.pod.spec import Container, Pod, ResourceList
from podslice.values.quantity import ZERO, Quantity

_RESOURCES = ("cpu", "memory")


class CappedBudget(NamedTuple):
    """A resource of which a pod reserves `budget`, and its containers can use `usable` at most."""

    resource: str
    budget: Quantity
    usable: Quantity

    @property
    def sentence(self) -> str:
        """Say how much the pod reserves and how much its containers can use, without a full stop."""
        unit = "CPU" if self.resource == "cpu" else "of memory"
        return (
            f"the pod reserves {self.budget} {unit}, and the {self.resource} limits of its containers add up to "
            f"{self.usable}: no container can use the rest"
        )


def capped_budgets(pod: Pod, gates: Mapping[str, bool]) -> tuple[CappedBudget, ...]:
    """Return the resources of which a defaulted pod with pod-level resources reserves more than the limits of its
    containers allow. A resource is left out if some container has no limit for it."""
    resources = pod.spec.resources
    if resources is None or not gates["PodLevelResources"] or not is_pod_level_resources_set(pod):
        return ()
    containers = containers_in_order(pod)
    usable, budgets = aggregate(pod, _limits), requests_of(resources)
    return tuple(
        CappedBudget(name, budgets[name], usable[name])
        for name in _RESOURCES
        # A pod without containers, which the API server refuses, has no sum.
        if name in budgets
        and name in usable
        and all(not _limits(one).get(name, ZERO).is_zero() for one in containers)
        and usable[name] < budgets[name]
    )


def _limits(container: Container) -> ResourceList:
    return limits_of(container.resources)
