"""Columns of what happened to each pod, which a run fills."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from podslice.fleet.engine.result import PodColumns, RefusalCount
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.node.answers import PodHolding

RAN: Final = 0
PENDING: Final = 1
LOOPING: Final = 2
FAILED: Final = 3
PREEMPTED: Final = 4


class PodTable:
    """Columns by pod number; `holding` and `gpus` have the pods that run."""

    def __init__(self, workload: Workload) -> None:
        def column() -> array[int]:
            return array("q", [NEVER]) * len(workload)

        self.workload = workload
        self.first_try, self.bound, self.ended, self.node = column(), column(), column(), column()
        self.verdict, self.first_bound, self.end_due = column(), column(), column()
        self.attempts = array("q", bytes(8 * len(workload)))
        self.reason = array("q", bytes(8 * len(workload)))
        self.refused = array("q", bytes(8 * len(workload)))
        self.holding: dict[int, PodHolding] = {}
        self.gpus: dict[int, Sequence[int]] = {}
        self.reasons: list[str] = [""]
        self._refusals: dict[tuple[int, int, int], list[int]] = {}

    def is_running(self, pod: int) -> bool:
        """Whether the pod is on a node."""
        return pod in self.holding

    def count_refusal(self, pod: int, kind: int, reason: str, times: int = 1) -> None:
        """Count `times` refusals of the pod by nodes of class `kind`."""
        if reason not in self.reasons:
            self.reasons.append(reason)
        number = self.reasons.index(reason)
        self.reason[pod] = number
        self.refused[pod] += times
        found = self._refusals.setdefault((self.workload.shape[pod], kind, number), [0, pod])
        found[0] += times

    def refusals(self) -> tuple[RefusalCount, ...]:
        """Return the counted refusals by shape, class and reason, in ascending order."""
        return tuple(
            RefusalCount(shape, kind, self.reasons[number], attempts, example)
            for (shape, kind, number), (attempts, example) in sorted(self._refusals.items())
        )

    def columns(self, cpus: list[int], numa: list[int]) -> PodColumns:
        """Return the columns of the result; `cpus` and `numa` are masks by pod."""
        return PodColumns(
            self.first_try,
            self.first_bound,
            self.ended,
            self.node,
            self.attempts,
            self.verdict,
            self.reason,
            cpus,
            numa,
        )
