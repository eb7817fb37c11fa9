"""Scheduling policies by name: kube-scheduler's own scores, and the published policies that FGD was compared with
(docs/development/fleet-engine.md has their formulas).

A policy scores nodes that a pod fits on, of which the highest is taken, and chooses the GPUs on which the pod is
booked. Whole GPUs are always the lowest free ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Protocol

import numpy as np

from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.shapes import WHOLE_GPU
from podslice.fleet.engine.streams import IndexedStream
from podslice.fleet.scheduler.fragmentation import GPUFragmentation
from podslice.fleet.scheduler.loads import Ints, LoadMemo, LoadTable, gpu_kind
from podslice.fleet.scheduler.scores import KubePolicy

_CPU = 1
"""Column of millicores in the ledgers."""
_MOST_CPU, _MOST_GPU = 128_000, 8_000
"""Millicores and milli-GPUs of the largest node, by which the published policies divide."""


class FleetPolicy(Protocol):
    """Anything that scores loads (by number) on which a shape (by position) fits; more is better, none is negative.
    Nodes with the same load have the same score."""

    def score(self, shape: int, rows: Ints) -> Ints: ...
    def choose_gpus(self, shape: int, load: int, place: tuple[int, int]) -> Sequence[int]:
        """Return the GPUs of a node with this load on which a pod is booked; `place`: the pod and the node, by
        number."""
        ...


class _LoadPolicy:
    """Common part of the policies: the ledgers, and the choice of the GPUs with least room."""

    def __init__(self, loads: LoadTable) -> None:
        self.loads = loads

    def choose_gpus(self, shape: int, load: int, place: tuple[int, int]) -> Sequence[int]:
        """Return the lowest free GPUs; a share of one is booked on the GPU with least room for it."""
        demand = self.loads.shapes[shape]
        if not demand.gpus:
            return ()
        left = self.loads.gpus[load].tolist()
        fitting = [gpu for gpu, milli in enumerate(left) if milli >= demand.gpu_milli]
        # A share goes where it just fits, which keeps whole GPUs free; of equal GPUs the lowest is taken.
        if demand.gpu_milli < WHOLE_GPU:
            fitting.sort(key=lambda gpu: (left[gpu], gpu))
        return fitting[: demand.gpus]

    def cpu_left(self, rows: Ints) -> Ints:
        """Return free millicores by load."""
        return self.loads.room[rows, _CPU] - self.loads.used[rows, _CPU]


class KubeScores(_LoadPolicy):
    """The score of kube-scheduler's default profile, or of its other allocation strategies."""

    def __init__(self, loads: LoadTable, name: str, *, balanced: bool, curve: tuple[tuple[int, int], ...] = ()) -> None:
        super().__init__(loads)
        self.score = KubePolicy(loads, name, balanced=balanced, curve=curve).score


class AllEqual(_LoadPolicy):
    """First fit and random: the tie rule decides. With `draws`, a share of a GPU is booked on a random GPU with
    room."""

    def __init__(self, loads: LoadTable, draws: IndexedStream | None = None) -> None:
        super().__init__(loads)
        self._draws = draws

    def score(self, shape: int, rows: Ints) -> Ints:
        """Return 0 for each load."""
        return np.zeros(len(rows), dtype=np.int64)

    def choose_gpus(self, shape: int, load: int, place: tuple[int, int]) -> Sequence[int]:
        """Return the lowest free GPUs, or a random one for a share."""
        demand = self.loads.shapes[shape]
        if self._draws is None or demand.gpus != 1 or demand.gpu_milli == WHOLE_GPU:
            return super().choose_gpus(shape, load, place)
        fitting = np.flatnonzero(self.loads.gpus[load] >= demand.gpu_milli).tolist()
        return [fitting[self._draws.draw_below(len(fitting), *place)]]


class BestFit(_LoadPolicy):
    """Least room left, CPUs and GPUs weighted alike. Stretching the scores to 0 to 100 does not change the order and is
    left out."""

    def score(self, shape: int, rows: Ints) -> Ints:
        """Return 0 to 100 by load."""
        demand = self.loads.shapes[shape]
        cpu = self.cpu_left(rows) - demand.cpu_request
        gpu = self.loads.gpus[rows].sum(axis=1) - demand.gpu_request
        return _to_percent(1 - cpu / _MOST_CPU / 2 - gpu / _MOST_GPU / 2)


class DotProduct(_LoadPolicy):
    """Least dot product of what is left and what is requested."""

    def score(self, shape: int, rows: Ints) -> Ints:
        """Return 0 to 100 by load."""
        demand = self.loads.shapes[shape]
        cpu = self.cpu_left(rows) / _MOST_CPU * (demand.cpu_request / _MOST_CPU)
        gpu = self.loads.gpus[rows].sum(axis=1) / _MOST_GPU * (demand.gpu_request / _MOST_GPU)
        return _to_percent(1 - (cpu + gpu) / 2)


class GPUPacking(_LoadPolicy):
    """GPUs that are partly taken first, then partly taken nodes, then empty nodes."""

    def score(self, shape: int, rows: Ints) -> Ints:
        """Return 0 to 100 by load; 0 for pods without GPU."""
        demand = self.loads.shapes[shape]
        if not demand.gpus:
            return np.zeros(len(rows), dtype=np.int64)
        gpus, count = self.loads.gpus[rows], self.loads.gpu_count[rows]
        whole = (gpus == WHOLE_GPU).sum(axis=1)
        parts = np.where((gpus < WHOLE_GPU) & (gpus >= demand.gpu_milli), gpus, _MOST_GPU)
        fitting = (parts < _MOST_GPU).sum(axis=1)
        needs_whole = fitting < demand.gpus
        least = np.sort(parts, axis=1)[:, : demand.gpus]
        used_parts = np.where(least < _MOST_GPU, least, 0).sum(axis=1) // 10
        score = np.where(
            needs_whole, np.maximum(50 - (demand.gpus - fitting), 33), np.maximum(100 - used_parts // 10, 50)
        )
        # The bands of the published policy: partly taken GPUs above 50, partly taken nodes above 33, then empty nodes.
        return np.where(whole == count, np.maximum(33 - count, count), score)


class GPUClustering(_LoadPolicy):
    """Pods with the same number of GPUs are kept together."""

    def score(self, shape: int, rows: Ints) -> Ints:
        """Return 0 to 100 by load; 0 for pods without GPU."""
        demand = self.loads.shapes[shape]
        if not demand.gpus:
            return np.zeros(len(rows), dtype=np.int64)
        kinds = self.loads.kinds[rows]
        mine = kinds[:, gpu_kind(demand)] > 0
        others = (kinds > 0).sum(axis=1) > mine
        group = np.where(mine, np.where(others, 50, 75), np.where(others, 0, 25))
        return 25 * (_MOST_GPU - self.loads.gpus[rows].sum(axis=1)) // _MOST_GPU + group


class FGD(_LoadPolicy):
    """Fragmentation gradient descent: the node where fragmentation grows least."""

    def __init__(self, loads: LoadTable, fragmentation: GPUFragmentation, models: Ints) -> None:
        super().__init__(loads)
        self._fragmentation = fragmentation
        self._models = models
        self._now = LoadMemo(loads, self._amounts).lookup
        """Fragmentation of nodes with these loads as they are."""
        per_gpu = fragmentation.weight * WHOLE_GPU
        # The score is floor(100 * sigmoid(gain)). Inverting it once into 99 integer thresholds keeps scores exact and
        # equal on every machine.
        steps = [log(score / (100 - score)) * per_gpu for score in range(1, 100)]
        self._steps: Ints = np.array([-int(-step // 1) for step in steps], dtype=np.int64)

    def score(self, shape: int, rows: Ints) -> Ints:
        """Return 0 to 100 by load: 50 where fragmentation does not change."""
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        demand = self.loads.shapes[shape]
        gpus, models = self.loads.gpus[rows], self._models_of(rows)
        before = self._now(rows)
        cpus = self.cpu_left(rows) - demand.cpu_request
        # Only for a single share the policy chooses the GPU itself, so only then each GPU has a score of its own.
        if not demand.gpus or demand.gpu_milli == WHOLE_GPU or demand.gpus > 1:
            return self._scores(before - self._fragmentation.amounts(cpus, self._gpus_without(gpus, shape), models))
        return self._scores_by_gpu(demand.gpu_milli, cpus, gpus, models, before).max(axis=1)

    def choose_gpus(self, shape: int, load: int, place: tuple[int, int]) -> Sequence[int]:
        """Return the GPU with the best score for a share, the first of several."""
        demand = self.loads.shapes[shape]
        if demand.gpus != 1 or demand.gpu_milli == WHOLE_GPU:
            return super().choose_gpus(shape, load, place)
        row = np.array([load], dtype=np.int64)
        cpus = self.cpu_left(row) - demand.cpu_request
        gpus, models = self.loads.gpus[row], self._models_of(row)
        scores = self._scores_by_gpu(demand.gpu_milli, cpus, gpus, models, self._now(row))
        return [int(scores[0].argmax())]

    def _models_of(self, rows: Ints) -> Ints:
        return self._models[self.loads.kind[rows]]

    def _amounts(self, rows: Ints) -> Ints:
        return self._fragmentation.amounts(self.cpu_left(rows), self.loads.gpus[rows], self._models_of(rows))

    def _scores(self, gained: Ints) -> Ints:
        return np.searchsorted(self._steps, gained, side="right")

    def _gpus_without(self, gpus: Ints, shape: int) -> Ints:
        """Return the free milli of each GPU after the pod took the lowest fitting ones."""
        demand = self.loads.shapes[shape]
        if not demand.gpus:
            return gpus
        fitting = gpus >= demand.gpu_milli
        # The first fitting GPUs of each node, all nodes at once.
        taken = fitting & (fitting.cumsum(axis=1) <= demand.gpus)
        return gpus - taken * demand.gpu_milli

    def _scores_by_gpu(self, milli: int, cpus: Ints, gpus: Ints, models: Ints, before: Ints) -> Ints:
        """Return the score of each GPU of each node, -1 where there is no room. GPUs of a node with the same room are
        scored once."""
        node, gpu = np.nonzero((gpus >= milli) & _is_first_of_equals(gpus))
        after = gpus[node]
        after[np.arange(len(node)), gpu] -= milli
        scores = np.full(gpus.shape, -1, dtype=np.int64)
        scores[node, gpu] = self._scores(before[node] - self._fragmentation.amounts(cpus[node], after, models[node]))
        return scores


def _is_first_of_equals(gpus: Ints) -> np.ndarray:
    """Return a mask of the GPUs that no earlier GPU of the node equals."""
    equal = gpus[:, :, None] == gpus[:, None, :]
    return equal.argmax(axis=2) == np.arange(gpus.shape[1])


def _to_percent(share: np.ndarray) -> Ints:
    """Return shares as whole percent, truncated."""
    # astype truncates towards zero, as a conversion in Go does.
    return (share * 100).astype(np.int64)


def make_policy(
    options: CellOptions, loads: LoadTable, *, fragmentation: GPUFragmentation, models: Ints, draws: IndexedStream
) -> FleetPolicy:
    """Return the policy of a cell; `models`: number of the GPU model by class."""
    name = options.policy
    if name in ("first-fit", "random"):
        # Random draws the GPU of a share as well.
        return AllEqual(loads, draws if name == "random" else None)
    if name == "fgd":
        return FGD(loads, fragmentation, models)
    published: dict[str, Callable[[LoadTable], FleetPolicy]] = {
        "best-fit": BestFit,
        "dot-product": DotProduct,
        "gpu-packing": GPUPacking,
        "gpu-clustering": GPUClustering,
    }
    if name in published:
        return published[name](loads)
    return KubeScores(loads, name, balanced=options.balanced, curve=options.curve)
