"""PodDisruptionBudgets, as preemption counts them: how many pods of an application may be disrupted at once.

A budget applies to the pods of one namespace that its selector matches. Percentages are of the expected pods and are
rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.placement import PlacementRules
from podslice.scheduling.selectors import LabelSelector


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget with either `min_available` or `max_unavailable`: a number of pods, or a percentage of the expected ones
    ("50%")."""

    selector: LabelSelector
    namespace: str = "default"
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    def covers(self, pod: PlacementRules) -> bool:
        """Whether the budget counts this pod."""
        return pod.namespace == self.namespace and self.selector.matches(pod.labels)

    def disruptions_allowed(self, expected: int, running: int) -> int:
        """Return how many of the `running` pods may be disrupted when `expected` pods should run (upstream's
        status.disruptionsAllowed)."""
        if self.min_available is not None:
            healthy = _resolve(self.min_available, expected)
        else:
            healthy = expected - _resolve(self.max_unavailable or 0, expected)
        return max(0, running - max(0, healthy))


def _resolve(amount: int | str, pods: int) -> int:
    """Return a number of pods for an amount that may be a percentage of `pods`, rounded up as upstream rounds both
    fields."""
    if isinstance(amount, int):
        return amount
    return -(-pods * int(amount.removesuffix("%")) // 100)


class BudgetIndex:
    """Budgets by the shapes they count."""

    def __init__(self, budgets: Sequence[DisruptionBudget], shapes: Sequence[FleetShape]) -> None:
        self.budgets = tuple(budgets)
        self._of_shape = [
            [number for number, budget in enumerate(self.budgets) if budget.covers(shape.placement)] for shape in shapes
        ]

    def disruptions_allowed(self, expected: Sequence[int], running: Sequence[int]) -> list[int]:
        """Return for each budget how many pods may be disrupted, from the expected and running pods of each shape."""
        sums = [[0, 0] for _ in self.budgets]
        for shape, numbers in enumerate(self._of_shape):
            for number in numbers:
                sums[number][0] += expected[shape]
                sums[number][1] += running[shape]
        return [budget.disruptions_allowed(*both) for budget, both in zip(self.budgets, sums, strict=True)]

    def find_violations(self, allowed: Sequence[int], shapes: Sequence[int]) -> list[bool]:
        """Return for each of these pods, disrupted one after the other, whether that violates a budget."""
        # Every pod uses up its budgets, also one that violates them: upstream's filterPodsWithPDBViolation decrements
        # first.
        left, found = list(allowed), []
        for shape in shapes:
            for number in self._of_shape[shape]:
                left[number] -= 1
            found.append(any(left[number] < 0 for number in self._of_shape[shape]))
        return found
