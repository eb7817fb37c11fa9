"""How many pods of an application may be gone at once: PodDisruptionBudgets, as preemption counts them.

A budget holds for pods of one namespace that its selector matches. Percentages are of the pods that should be there,
and are rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.placement import PlacementRules, Selector


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """One of `min_available` and `max_unavailable`: pods, or percent of them ("50%")."""

    selector: Selector
    namespace: str = "default"
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    def holds_for(self, pod: PlacementRules) -> bool:
        """True for a pod that it counts."""
        return pod.namespace == self.namespace and self.selector.matches(pod.labels)

    def allowed(self, expected: int, running: int) -> int:
        """How many of the running pods may go, where so many should be there."""
        if self.min_available is not None:
            wanted = _of(self.min_available, expected)
        else:
            wanted = expected - _of(self.max_unavailable or 0, expected)
        return max(0, running - max(0, wanted))


def _of(amount: int | str, pods: int) -> int:
    if isinstance(amount, int):
        return amount
    return -(-pods * int(amount.removesuffix("%")) // 100)


class BudgetBook:
    """Which shapes each budget counts."""

    def __init__(self, budgets: Sequence[DisruptionBudget], shapes: Sequence[FleetShape]) -> None:
        self.budgets = tuple(budgets)
        self._of_shape = [
            [number for number, budget in enumerate(self.budgets) if budget.holds_for(shape.placement)]
            for shape in shapes
        ]

    def allowed(self, expected: Sequence[int], running: Sequence[int]) -> list[int]:
        """How many pods of each budget may go, with so many of each shape."""
        sums = [[0, 0] for _ in self.budgets]
        for shape, numbers in enumerate(self._of_shape):
            for number in numbers:
                sums[number][0] += expected[shape]
                sums[number][1] += running[shape]
        return [budget.allowed(*both) for budget, both in zip(self.budgets, sums, strict=True)]

    def broken(self, allowed: Sequence[int], shapes: Sequence[int]) -> list[bool]:
        """Pods of these shapes go, one after the other: which of them a budget does not allow."""
        left, found = list(allowed), []
        for shape in shapes:
            for number in self._of_shape[shape]:
                left[number] -= 1
            found.append(any(left[number] < 0 for number in self._of_shape[shape]))
        return found
