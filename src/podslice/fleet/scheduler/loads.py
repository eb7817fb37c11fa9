"""Loads: what is booked on a node, as a number. Nodes with the same class and the same ledgers have the same load.

A scheduler's filter and scores depend on nothing else of a node, so both are computed once for each load, and a pod
that comes or goes moves a node from one load to another by a look-up. Amounts are 64-bit integers: millicores, bytes,
whole units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.shapes import WHOLE_GPU, FleetShape
from podslice.scheduling.predicates import CPU, MEMORY, PODS

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
# Half of the range of 64 bits, so that adding booked amounts cannot wrap.
_NOTHING = -(1 << 62)
"""Request of a resource that a pod does not request: any free amount is enough."""
GPU_KINDS = 5
"""Number of kinds of pods by GPUs: a share of one, 1, 2, up to 4, more."""
_LEAST_ROOM = 1 << 16
_UNKNOWN = -(1 << 62)


def gpu_kind(shape: FleetShape) -> int:
    """Return the kind of a shape by its GPUs; meaningless for pods without GPU."""
    if shape.gpu_milli < WHOLE_GPU:
        return 0
    return min(shape.gpus.bit_length() if shape.gpus.bit_count() == 1 else shape.gpus.bit_length() + 1, GPU_KINDS - 1)


class LoadTable:
    """Loads by number.

    - `room`, `used`: amounts of the resources in the order of `names`, shape (loads, resources).
    - `non_zero`: CPU and memory with defaults for requests that are missing.
    - `gpus`: free milli of each GPU, 0 for GPUs that the class does not have; `kinds`: number of pods by kind of GPU
      request.
    - `kind`: the class.
    - `generation`: counts how often loads got other numbers.
    """

    def __init__(self, fleet: Fleet, shapes: Sequence[FleetShape]) -> None:
        self.shapes = tuple(shapes)
        self.names = _names(shapes)
        self.class_room: Ints = np.array(
            [[one.allocatable.get(name, 0) for name in self.names] for one in fleet.classes], dtype=np.int64
        ).reshape(len(fleet.classes), -1)
        self.class_gpus: Ints = np.array([one.gpus for one in fleet.classes], dtype=np.int64)
        self.most_gpus = max((one.gpus for one in fleet.classes), default=0)
        self.asked = [self._row(shape.requests.asked, missing=_NOTHING) for shape in shapes]
        self.all_asked: Ints = np.array(self.asked, dtype=np.int64).reshape(len(shapes), len(self.names))
        self.taken = [self._row(shape.requests.taken, missing=0) for shape in shapes]
        self._gpu_number: Ints = np.array([shape.gpus for shape in shapes], dtype=np.int64)
        self._gpu_milli: Ints = np.array([shape.gpu_milli for shape in shapes], dtype=np.int64)
        self._non_zero = [_pair(shape.requests.non_zero) for shape in shapes]
        self.generation = 0
        self._most = max(_LEAST_ROOM, 2 * len(fleet.nodes))
        self._allocate(256)
        self.starts = [self._empty_load(kind) for kind in range(len(fleet.classes))]
        """The load of a node without pods, by class."""

    def _row(self, amounts: Any, *, missing: int) -> Ints:
        asked = [amounts.get(name, 0) if name != PODS else 1 for name in self.names]
        return np.array([amount if amount > 0 else missing for amount in asked], dtype=np.int64)

    def _allocate(self, size: int) -> None:
        """Make empty tables for `size` loads."""
        width = len(self.names)
        self.count = 0
        self.kind: Ints = np.zeros(size, dtype=np.int64)
        self.room: Ints = np.zeros((size, width), dtype=np.int64)
        self.used: Ints = np.zeros((size, width), dtype=np.int64)
        self.non_zero: Ints = np.zeros((size, 2), dtype=np.int64)
        self.gpus: Ints = np.zeros((size, self.most_gpus), dtype=np.int64)
        self.gpu_count: Ints = np.zeros(size, dtype=np.int64)
        self.kinds: Ints = np.zeros((size, GPU_KINDS), dtype=np.int64)
        self._numbers: dict[tuple[int, bytes, bytes, bytes, bytes], int] = {}
        self._after: dict[tuple[int, int, tuple[int, ...], int], int] = {}
        self._might_fit: dict[int, list[int]] = {}

    def _columns(self) -> tuple[Ints, ...]:
        return self.kind, self.room, self.used, self.non_zero, self.gpus, self.gpu_count, self.kinds

    def _empty_load(self, kind: int) -> int:
        """Return the load of a node of this class without pods."""
        gpus = np.zeros(self.most_gpus, dtype=np.int64)
        gpus[: self.class_gpus[kind]] = WHOLE_GPU
        width = len(self.names)
        none = [np.zeros(size, dtype=np.int64) for size in (width, 2, GPU_KINDS)]
        return self._intern(kind, none[0], none[1], gpus, none[2])

    def _intern(self, kind: int, used: Ints, non_zero: Ints, gpus: Ints, kinds: Ints) -> int:
        """Return the number of a load, adding it when it is new."""
        key = kind, used.tobytes(), non_zero.tobytes(), gpus.tobytes(), kinds.tobytes()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self.count
            if number == len(self.kind):
                self._grow()
            row = kind, self.class_room[kind], used, non_zero, gpus, self.class_gpus[kind], kinds
            for column, value in zip(self._columns(), row, strict=True):
                column[number] = value
            self.count += 1
        return number

    def _grow(self) -> None:
        grown = [np.concatenate([column, np.zeros_like(column)]) for column in self._columns()]
        self.kind, self.room, self.used, self.non_zero, self.gpus, self.gpu_count, self.kinds = grown

    def load_after(self, load: int, shape: int, gpus: Sequence[int], sign: int) -> int:
        """Return the load after a pod was added with these GPUs, or removed (`sign` -1)."""
        key = load, shape, tuple(gpus), sign
        found = self._after.get(key)
        if found is None:
            left, kinds = self.gpus[load], self.kinds[load]
            if gpus:
                demand = self.shapes[shape]
                # The row belongs to the old load, which other nodes still have.
                left, kinds = left.copy(), kinds.copy()
                left[list(gpus)] -= sign * demand.gpu_milli
                kinds[gpu_kind(demand)] += sign
            used = self.used[load] + sign * self.taken[shape]
            non_zero = self.non_zero[load] + sign * self._non_zero[shape]
            found = self._after[key] = self._intern(int(self.kind[load]), used, non_zero, left, kinds)
        return found

    def load_in_class(self, load: int, kind: int) -> int:
        """Return the load with the same ledgers and GPUs on a node of another class."""
        return self._intern(kind, self.used[load], self.non_zero[load], self.gpus[load], self.kinds[load])

    def shapes_with_room(self, load: int) -> list[int]:
        """Return the shapes for which there is enough of everything but GPUs."""
        found = self._might_fit.get(load)
        if found is None:
            free = self.room[load] - self.used[load]
            found = self._might_fit[load] = np.flatnonzero((self.all_asked <= free).all(axis=1)).tolist()
        return found

    def fits_by_shape(self, load: int) -> list[bool]:
        """Return for each shape whether there is enough of everything, GPUs included."""
        fits = (self.all_asked <= self.room[load] - self.used[load]).all(axis=1)
        if self.most_gpus:
            fits &= (self.gpus[load] >= self._gpu_milli[:, None]).sum(axis=1) >= self._gpu_number
        return fits.tolist()  # type: ignore[no-any-return]

    def fits(self, shape: int, loads: Ints) -> Bools:
        """Return the mask of loads with enough of everything, GPUs included."""
        demand = self.shapes[shape]
        fits: Bools = np.logical_and.reduce(self.used[loads] + self.asked[shape] <= self.room[loads], axis=1)
        if demand.gpus:
            fits &= (self.gpus[loads] >= demand.gpu_milli).sum(axis=1) >= demand.gpus
        return fits

    @property
    def is_full(self) -> bool:
        """Whether loads that no node has should be dropped."""
        return self.count > self._most

    def compact(self, loads: Ints) -> Ints:
        """Drop all loads but these; return their new numbers."""
        kept, numbers = np.unique(loads, return_inverse=True)
        rows = [column[kept] for column in self._columns()]
        self._allocate(max(256, len(kept)))
        self.generation += 1
        new = [
            self._intern(int(kind), used, non_zero, gpus, kinds)
            for kind, _, used, non_zero, gpus, _, kinds in zip(*rows, strict=True)
        ]
        self.starts = [self._empty_load(kind) for kind in range(len(self.class_gpus))]
        return np.array(new, dtype=np.int64)[numbers]


class LoadMemo:
    """Remembers an integer that depends on the load only, computed at its first look-up."""

    def __init__(self, loads: LoadTable, compute: Callable[[Ints], Ints]) -> None:
        self._loads = loads
        self._compute = compute
        self._known: Ints = np.zeros(0, dtype=np.int64)
        self._generation = -1

    def lookup(self, rows: Ints) -> Ints:
        """Return the numbers of some loads."""
        loads = self._loads
        if self._generation != loads.generation:
            self._generation, self._known = loads.generation, np.zeros(0, dtype=np.int64)
        # Loads are appended: a longer table keeps the known entries, only a new generation renumbers them.
        if len(self._known) < len(loads.kind):
            more = np.full(len(loads.kind) - len(self._known), _UNKNOWN, dtype=np.int64)
            self._known = np.concatenate([self._known, more])
        found = self._known[rows]
        if len(found) and found.min() == _UNKNOWN:
            new = rows[found == _UNKNOWN]
            self._known[new] = self._compute(new)
            found = self._known[rows]
        return found


def _names(shapes: Sequence[FleetShape]) -> tuple[str, ...]:
    """Return the resources that any pod requests, in byte order after those that always count."""
    asked = {name for shape in shapes for amounts in shape.requests[:2] for name, amount in amounts.items() if amount}
    return (PODS, CPU, MEMORY, *sorted(asked - {PODS, CPU, MEMORY}))


def _pair(amounts: Any) -> Ints:
    return np.array([amounts.get(CPU, 0), amounts.get(MEMORY, 0)], dtype=np.int64)
