"""The scheduler's books: one integer for each resource of each node, as columns.

Who changes a node writes it into a log. Each shape's scores remember how far they have read, so that only nodes that
changed since are looked at again (`ScoreTable`). Amounts are 64-bit integers: milli CPUs, bytes, whole units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from podslice.core.fleet.nodes import Fleet
from podslice.core.fleet.shapes import WHOLE_GPU, FleetShape, NodeTaint
from podslice.core.scheduling.fit import CPU, MEMORY, PODS

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Rows: TypeAlias = "Ints | slice"
"""Nodes by number; a slice for all of them."""
ALL = slice(None)
_UNSCHEDULABLE = NodeTaint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_NOTHING = -(1 << 62)
"""Asked of a resource that a pod does not ask for: always there."""
GPU_KINDS = 5
"""Pods by GPUs: a share of one, 1, 2, up to 4, more."""


def gpu_kind(shape: FleetShape) -> int:
    """The position of a shape's kind; of no use for pods without GPU."""
    if shape.gpu_milli < WHOLE_GPU:
        return 0
    return min(shape.gpus.bit_length() if shape.gpus.bit_count() == 1 else shape.gpus.bit_length() + 1, GPU_KINDS - 1)


class Columns:
    """What the scheduler knows of every node. `room` and `used`: resources in the order of `names`. `non_zero`: CPU and
    memory with defaults for what is not requested. `gpus`: milli left of each GPU, 0 for GPUs that are not there.
    `kinds`: pods by GPUs. `allowed` by shape: labels, taints, models; `closed`: no new pods."""

    def __init__(self, fleet: Fleet, shapes: Sequence[FleetShape]) -> None:
        kinds = np.array([node.kind for node in fleet.nodes], dtype=np.int64)
        self.count = len(fleet.nodes)
        self.kind = kinds
        self.names = _names(fleet, shapes)
        room = [[one.allocatable.get(name, 0) for name in self.names] for one in fleet.classes]
        self._class_room: Ints = np.array(room, dtype=np.int64).reshape(len(fleet.classes), -1)
        self.room: Ints = self._class_room[kinds]
        self.used: Ints = np.zeros_like(self.room)
        self.non_zero: Ints = np.zeros((self.count, 2), dtype=np.int64)
        most = max((one.gpus for one in fleet.classes), default=0)
        gpus = [[WHOLE_GPU] * one.gpus + [0] * (most - one.gpus) for one in fleet.classes]
        self.gpus: Ints = np.array(gpus, dtype=np.int64).reshape(len(fleet.classes), most)[kinds]
        self.gpu_count: Ints = np.array([one.gpus for one in fleet.classes], dtype=np.int64)[kinds]
        self.kinds: Ints = np.zeros((self.count, GPU_KINDS), dtype=np.int64)
        self.closed: Bools = np.array([node.absent for node in fleet.nodes], dtype=np.bool_)
        self.any_closed = bool(self.closed.any())
        self.state: Ints = np.zeros(self.count, dtype=np.int64)
        self.shapes = tuple(shapes)
        self.allowed, self.disliked = _constraints(fleet, shapes)
        self._groups: dict[str, Ints] = {}
        for shape in shapes:
            if shape.max_per_node >= 0:
                self._groups.setdefault(shape.group, np.zeros(self.count, dtype=np.int64))
        self._asked = [self._row(shape.requests.asked, pods=1, missing=_NOTHING) for shape in shapes]
        self._all_asked: Ints = np.array(self._asked, dtype=np.int64).reshape(len(shapes), len(self.names))
        self._taken = [self._row(shape.requests.taken, pods=1, missing=0) for shape in shapes]
        self._non_zero = [_pair(shape.requests.non_zero) for shape in shapes]
        self.log = ChangeLog(self.count)

    def _row(self, amounts: Any, *, pods: int, missing: int) -> Ints:
        asked = [amounts.get(name, 0) if name != PODS else pods for name in self.names]
        return np.array([amount if amount > 0 else missing for amount in asked], dtype=np.int64)

    def fits(self, shape: int, rows: Rows) -> Bools:
        """Which nodes the filter lets pass."""
        wanted = self.shapes[shape]
        fits: Bools = np.all(self.used[rows] + self._asked[shape] <= self.room[rows], axis=1)
        fits &= self.allowed[shape][rows]
        if self.any_closed:
            fits &= ~self.closed[rows]
        if wanted.gpus:
            fits &= (self.gpus[rows] >= wanted.gpu_milli).sum(axis=1) >= wanted.gpus
        if wanted.max_per_node >= 0:
            fits &= self._groups[wanted.group][rows] < wanted.max_per_node
        return fits

    def close(self, node: int, *, closed: bool) -> None:
        """A node takes no new pods, or does again."""
        self.closed[node] = closed
        self.any_closed = bool(self.closed.any())
        self.log.add(node)

    def become(self, node: int, kind: int) -> None:
        """A node is of another class."""
        self.kind[node] = kind
        self.room[node] = self._class_room[kind]
        self.log.add(node)

    def might_fit(self, node: int) -> list[int]:
        """Shapes for which a node has enough of everything but GPUs; the filter may still not let them pass."""
        free = self.room[node] - self.used[node]
        return np.flatnonzero((self._all_asked <= free).all(axis=1)).tolist()

    def asked(self, shape: int) -> Ints:
        """What the filter counts of a pod, with very little for what it does not ask for."""
        return self._asked[shape]

    def taken(self, shape: int) -> Ints:
        """What a pod takes away from others."""
        return self._taken[shape]

    def book(self, node: int, shape: int, gpus: Sequence[int], sign: int = 1) -> None:
        """A pod comes to a node and takes these GPUs, or leaves it (`sign` -1)."""
        wanted = self.shapes[shape]
        self.used[node] += sign * self._taken[shape]
        self.non_zero[node] += sign * self._non_zero[shape]
        if gpus:
            self.gpus[node, gpus] -= sign * wanted.gpu_milli
            self.kinds[node, gpu_kind(wanted)] += sign
        if wanted.group in self._groups:
            self._groups[wanted.group][node] += sign
        self.log.add(node)


class ChangeLog:
    """Nodes that changed, in order; only the last ones are kept, as many as there are nodes."""

    def __init__(self, nodes: int) -> None:
        self._most = max(64, nodes)
        self._log: Ints = np.zeros(4 * self._most, dtype=np.int64)
        self._first = 0
        self._length = 0

    @property
    def position(self) -> int:
        """How much was ever written."""
        return self._first + self._length

    def restart(self, position: int) -> None:
        """So much was ever written, and nobody knows any more what."""
        self._first, self._length = position, 0

    def add(self, node: int) -> None:
        """A node changed."""
        if self._length == len(self._log):
            self._log[: self._most] = self._log[-self._most :]
            self._first += self._length - self._most
            self._length = self._most
        self._log[self._length] = node
        self._length += 1

    def since(self, position: int) -> Rows:
        """Nodes that changed after a position, all of them where it is too long ago; a node may come twice."""
        behind = self.position - position
        if position < self._first or 2 * behind > self._most:
            return ALL
        return self._log[self._length - behind : self._length]


def _names(fleet: Fleet, shapes: Sequence[FleetShape]) -> tuple[str, ...]:
    """Resources that anybody asks for, in byte order after the ones that always count."""
    asked = {name for shape in shapes for amounts in shape.requests[:2] for name, amount in amounts.items() if amount}
    return (PODS, CPU, MEMORY, *sorted(asked - {PODS, CPU, MEMORY}))


def _pair(amounts: Any) -> Ints:
    return np.array([amounts.get(CPU, 0), amounts.get(MEMORY, 0)], dtype=np.int64)


def _constraints(fleet: Fleet, shapes: Sequence[FleetShape]) -> tuple[list[Bools], list[Ints | None]]:
    """For each shape which nodes labels, taints and models allow, and how many taints of each the pod would rather not
    have, None where there are none. Nodes with the same labels and taints are looked at once."""
    kinds: dict[tuple[object, ...], int] = {}
    first: list[int] = []
    of_node = np.zeros(len(fleet.nodes), dtype=np.int64)
    for number, node in enumerate(fleet.nodes):
        model = fleet.classes[node.kind].gpu_model
        key = (tuple(sorted(node.labels.items())), node.taints, node.unschedulable, model)
        if key not in kinds:
            kinds[key] = len(first)
            first.append(number)
        of_node[number] = kinds[key]
    allowed: list[Bools] = []
    disliked: list[Ints | None] = []
    for shape in shapes:
        answers = [_allows(fleet, number, shape) for number in first]
        allowed.append(np.array([answer >= 0 for answer in answers], dtype=np.bool_)[of_node])
        some = any(answer > 0 for answer in answers)
        disliked.append(np.array(answers, dtype=np.int64)[of_node] if some else None)
    return allowed, disliked


def _allows(fleet: Fleet, number: int, shape: FleetShape) -> int:
    """-1 where a pod may not be, else how many taints it would rather not have."""
    node = fleet.nodes[number]
    selector = shape.pod.spec.node_selector or {}
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return -1
    if shape.gpu_models and fleet.classes[node.kind].gpu_model not in shape.gpu_models:
        return -1
    taints = (*node.taints, _UNSCHEDULABLE) if node.unschedulable else node.taints
    against = [taint for taint in taints if not any(one.tolerates(taint) for one in shape.tolerations)]
    if any(taint.effect != "PreferNoSchedule" for taint in against):
        return -1
    return len(against)
