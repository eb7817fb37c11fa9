"""Choose the pods that kube-scheduler preempts for a pod of higher priority. A kubelet's rule is in `preemption`.

On each node all pods of lower priority leave hypothetically, and as many as fit are reprieved: first those whose
disruption would violate a budget, then those of the highest priority and the longest run. Of the nodes where that helps
the one is chosen whose victims violate the fewest budgets, have the lowest highest priority, then the lowest sum of
priorities, then are the fewest, then started latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar


class Preemptible(Protocol):
    """A pod on a node; `since`: when it began to run."""

    @property
    def uid(self) -> Any: ...
    @property
    def priority(self) -> int: ...
    @property
    def since(self) -> float: ...


P = TypeVar("P", bound=Preemptible)


def order_by_importance(pods: Iterable[P]) -> list[P]:
    """Return the pods, the most important first."""
    return sorted(pods, key=lambda one: (-one.priority, one.since, one.uid))


def reprieve(
    lower: Sequence[P], fits_beside: Callable[[P, Sequence[P]], bool], violates: Sequence[bool] = ()
) -> tuple[Sequence[P], int]:
    """Return those of `lower`, the most important first, that must leave, and how many budgets that violates.

    - `fits_beside(one, leaving)`: whether the new pod fits beside `one`, too, when only `leaving` leave.
    - `violates`: for each pod, whether its disruption violates a budget.
    """
    leaving, violations = lower, 0
    both = zip(violates or (False,) * len(lower), lower, strict=True)
    # Stable: within both groups by importance.
    for breaks, one in sorted(both, key=lambda pair: not pair[0]):
        fewer = [other for other in leaving if other is not one]
        if fits_beside(one, fewer):
            leaving = fewer
        else:
            violations += breaks
    return leaving, violations


def cost_of(victims: Sequence[Preemptible]) -> tuple[int, int, int, float]:
    """Return the criteria after budget violations by which nodes are compared; less is better."""
    most = max((one.priority for one in victims), default=0)
    since = min((one.since for one in victims if one.priority == most), default=0.0)
    return most, sum(one.priority for one in victims), len(victims), -since
