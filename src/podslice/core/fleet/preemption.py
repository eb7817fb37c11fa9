"""Room for a pod of higher priority: which pods leave which node.

As kube-scheduler does it: on each node all pods of lower priority are taken away in thought, and as many as fit are put
back, those of the highest priority and the longest run first. Of the nodes where that helps the one is taken whose
victims have the lowest highest priority, then the lowest sum of priorities, then are the fewest, then began latest.
Budgets of disruption are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from podslice.core.fleet.columns import ALL, Columns
from podslice.core.fleet.shapes import FleetShape


class RunningPod(NamedTuple):
    """A pod on a node that might leave it."""

    pod: int
    shape: int
    since: int
    gpus: Sequence[int]


class Victims(NamedTuple):
    """Pods that leave a node, by number."""

    node: int
    pods: tuple[int, ...]


def find_room(
    columns: Columns,
    shape: int,
    running: Callable[[int], Iterable[RunningPod]],
    admits: Callable[[int, Sequence[RunningPod]], bool],
) -> Victims | None:
    """The node and the pods that leave it; None where no victims would help. `running`: the pods of a node; `admits`:
    whether a node that they have left would admit the pod."""
    shapes = columns.shapes
    priority = shapes[shape].priority
    found: list[tuple[tuple[int, ...], Victims]] = []
    allowed = columns.open(shape, ALL)
    for node in range(columns.count) if allowed is None else np.flatnonzero(allowed).tolist():
        lower = [one for one in running(node) if shapes[one.shape].priority < priority]
        if not lower or not _fits(columns, shape, node, lower) or not admits(node, lower):
            continue
        leaving = lower
        for one in sorted(lower, key=lambda one: (-shapes[one.shape].priority, one.since, one.pod)):
            fewer = [other for other in leaving if other is not one]
            if _fits(columns, shape, node, fewer) and admits(node, fewer):
                leaving = fewer
        if leaving:
            found.append((_cost(shapes, node, leaving), Victims(node, tuple(one.pod for one in leaving))))
    return min(found)[1] if found else None


def _cost(shapes: Sequence[FleetShape], node: int, leaving: Sequence[RunningPod]) -> tuple[int, ...]:
    priorities = [shapes[one.shape].priority for one in leaving]
    first = min(one.since for one, priority in zip(leaving, priorities, strict=True) if priority == max(priorities))
    return max(priorities), sum(priorities), len(leaving), -first, node


def _fits(columns: Columns, shape: int, node: int, leaving: Iterable[RunningPod]) -> bool:
    """By sums and GPUs, without the pods that leave."""
    free = columns.free(node)
    gpus = columns.loads.gpus[columns.load[node]].copy()
    wanted = columns.shapes[shape]
    for one in leaving:
        free = free + columns.taken(one.shape)
        gpus[list(one.gpus)] += columns.shapes[one.shape].gpu_milli
    if not (columns.asked(shape) <= free).all():
        return False
    return not wanted.gpus or int((gpus >= wanted.gpu_milli).sum()) >= wanted.gpus
