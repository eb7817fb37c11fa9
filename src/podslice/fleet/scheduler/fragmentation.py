"""Fragmentation of GPUs as FGD counts it: idle GPU capacity of a node that the usual pods cannot use.

For each usual shape, all idle capacity counts if the shape needs no GPU or does not fit; otherwise what is left of GPUs
with too little for it. Amounts are integers, milli-GPUs times pods; `weight` is the divisor. Memory does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.loads import Bools, Ints

_NEVER = 1 << 62


def popular_shapes(shapes: Sequence[FleetShape], counts: Sequence[int], share: int) -> list[tuple[int, int]]:
    """Return the most frequent shapes (positions) with their pods, as many as it takes for `share` thousandths of all
    pods.

    Shapes that differ in memory only are one. Among equally frequent ones the larger comes first: CPU, milli of a GPU,
    GPUs, models as written.
    """
    kinds: dict[tuple[int, int, int, str], list[int]] = {}
    for number, shape in enumerate(shapes):
        size = shape.cpu_request, shape.gpu_milli, shape.gpus, "|".join(shape.gpu_models)
        kinds.setdefault(size, [0, number])[0] += counts[number]
    ordered = sorted(((pods, size, number) for size, (pods, number) in kinds.items() if pods), reverse=True)
    found: list[tuple[int, int]] = []
    left = share * sum(counts)
    for pods, _, number in ordered:
        if left <= 0:
            break
        left -= 1000 * pods
        found.append((number, pods))
    return found


class GPUFragmentation:
    """Fragmentation of nodes described by free millicores, free milli of each GPU, and GPU model (by number)."""

    def __init__(self, shapes: Sequence[FleetShape], popular: Sequence[tuple[int, int]], models: Sequence[str]) -> None:
        usual = [(shapes[number], pods) for number, pods in popular]
        self.weight = sum(pods for _, pods in usual)
        millis = sorted({shape.gpu_milli for shape, _ in usual if shape.gpus}) or [1]
        self._millis: Ints = np.array(millis, dtype=np.int64)[:, None]
        self._pods: Ints = np.array([pods for _, pods in usual], dtype=np.int64)
        # A shape without GPUs never fits, so that all idle GPUs count for it.
        self._cpus: Ints = np.array([shape.cpu_request if shape.gpus else _NEVER for shape, _ in usual], dtype=np.int64)
        self._numbers: Ints = np.array([shape.gpus for shape, _ in usual], dtype=np.int64)
        self._which: Ints = np.array(
            [millis.index(shape.gpu_milli) if shape.gpus else 0 for shape, _ in usual], dtype=np.int64
        )
        fits = [[not shape.gpu_models or model in shape.gpu_models for shape, _ in usual] for model in models]
        self._models: Bools = np.array(fits, dtype=np.bool_)

    def amounts(self, cpus: Ints, gpus: Ints, models: Ints) -> Ints:
        """Return milli-GPUs times pods for each node. Shapes: `cpus` and `models` (nodes), `gpus` (nodes, GPUs)."""
        each = gpus[:, None, :]
        small = each < self._millis
        rests = (each * small).sum(axis=2)
        enough = gpus.shape[1] - small.sum(axis=2)
        fits = (cpus[:, None] >= self._cpus) & self._models[models] & (enough[:, self._which] >= self._numbers)
        idle = gpus.sum(axis=1)[:, None]
        return (np.where(fits, rests[:, self._which], idle) * self._pods).sum(axis=1)
