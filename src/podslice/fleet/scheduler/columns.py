"""The scheduler's ledgers: a load for each node (`loads`), and what of a node is not in its load, as columns.

Who changes a node writes it into a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from podslice.fleet.engine.domains import PodDomains, selects, tolerates
from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.shapes import FleetShape, NodeTaint
from podslice.fleet.scheduler.loads import Bools, Ints, LoadTable

Rows: TypeAlias = "Ints | slice"
"""Nodes by number; a slice for those that follow one another."""
ALL = slice(None)
_UNSCHEDULABLE = NodeTaint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class Columns:
    """What the scheduler knows of every node. `load`: by number. `kind`: its class. `allowed` by shape: labels, taints,
    models, None where all nodes are; `closed`: no new pods. `used`, `room` and `gpus` are worked out of all loads,
    whenever they are asked for."""

    def __init__(self, fleet: Fleet, shapes: Sequence[FleetShape]) -> None:
        kinds = np.array([node.kind for node in fleet.nodes], dtype=np.int64)
        self.count = len(fleet.nodes)
        self.kind: Ints = kinds
        self.loads = LoadTable(fleet, shapes)
        self.load: Ints = np.array(self.loads.starts, dtype=np.int64)[kinds]
        self.gpu_count: Ints = self.loads.class_gpus[kinds]
        self.closed: Bools = np.array([node.absent for node in fleet.nodes], dtype=np.bool_)
        self.any_closed = bool(self.closed.any())
        self.state: Ints = np.zeros(self.count, dtype=np.int64)
        self.shapes = tuple(shapes)
        self.allowed, self.disliked = _constraints(fleet, shapes)
        self._groups: dict[str, Ints] = {}
        for shape in shapes:
            if shape.max_per_node >= 0:
                self._groups.setdefault(shape.group, np.zeros(self.count, dtype=np.int64))
        self.domains = PodDomains(fleet, shapes)
        self.log = ChangeLog(self.count)

    @property
    def room(self) -> Ints:
        """Of each node, by resource."""
        return self.loads.room[self.load]

    @property
    def used(self) -> Ints:
        """On each node, by resource."""
        return self.loads.used[self.load]

    @property
    def gpus(self) -> Ints:
        """Milli left of each GPU of each node."""
        return self.loads.gpus[self.load]

    def free(self, node: int) -> Ints:
        """What is left of a node, by resource."""
        load = self.load[node]
        free: Ints = self.loads.room[load] - self.loads.used[load]
        return free

    def open(self, shape: int, rows: Rows) -> Bools | None:
        """Which nodes a pod may go to, apart from what is booked; None for all of them."""
        wanted, allowed = self.shapes[shape], self.allowed[shape]
        found = None if allowed is None else allowed[rows]
        if self.any_closed:
            found = ~self.closed[rows] if found is None else found & ~self.closed[rows]
        if wanted.max_per_node >= 0:
            below = self._groups[wanted.group][rows] < wanted.max_per_node
            found = below if found is None else found & below
        passes = self.domains.passes(shape, rows)
        if passes is not None:
            found = passes if found is None else found & passes
        return found

    def close(self, node: int, *, closed: bool) -> None:
        """A node takes no new pods, or does again."""
        self.closed[node] = closed
        self.any_closed = bool(self.closed.any())
        self.log.add(node)

    def become(self, node: int, kind: int) -> None:
        """A node is of another class."""
        self.kind[node] = kind
        self.load[node] = self.loads.as_class(int(self.load[node]), kind)
        self.log.add(node)

    def might_fit(self, node: int) -> list[int]:
        """Shapes for which a node has enough of everything but GPUs; the filter may still not let them pass."""
        return self.loads.might_fit(int(self.load[node]))

    def asked(self, shape: int) -> Ints:
        """What the filter counts of a pod, with very little for what it does not ask for."""
        return self.loads.asked[shape]

    def taken(self, shape: int) -> Ints:
        """What a pod takes away from others."""
        return self.loads.taken[shape]

    def book(self, node: int, shape: int, gpus: Sequence[int], sign: int = 1) -> None:
        """A pod comes to a node and takes these GPUs, or leaves it (`sign` -1)."""
        loads = self.loads
        self.load[node] = loads.after(int(self.load[node]), shape, gpus, sign)
        if self._groups:
            group = self.shapes[shape].group
            if group in self._groups:
                self._groups[group][node] += sign
        self.domains.book(node, shape, sign)
        self.log.add(node)
        if loads.is_full:
            self.load = loads.keep(self.load)


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


def _constraints(fleet: Fleet, shapes: Sequence[FleetShape]) -> tuple[list[Bools | None], list[Ints | None]]:
    """For each shape which nodes labels, taints and models allow, and how many taints of each the pod would rather not
    have; None where no node is barred or disliked. Nodes with the same labels and taints are looked at once."""
    kinds: dict[tuple[object, ...], int] = {}
    first: list[int] = []
    of_node = np.zeros(len(fleet.nodes), dtype=np.int64)
    keys, by_name = _asked_labels(shapes)
    for number, node in enumerate(fleet.nodes):
        model = fleet.classes[node.kind].gpu_model
        labels = tuple(node.labels.get(key) for key in keys)
        key = (labels, node.taints, node.unschedulable, model, node.name if by_name else "")
        if key not in kinds:
            kinds[key] = len(first)
            first.append(number)
        of_node[number] = kinds[key]
    allowed: list[Bools | None] = []
    disliked: list[Ints | None] = []
    for shape in shapes:
        answers = [_allows(fleet, number, shape) for number in first]
        bars = any(answer < 0 for answer in answers)
        allowed.append(np.array([answer >= 0 for answer in answers], dtype=np.bool_)[of_node] if bars else None)
        some = any(answer > 0 for answer in answers)
        disliked.append(np.array(answers, dtype=np.int64)[of_node] if some else None)
    return allowed, disliked


def _asked_labels(shapes: Sequence[FleetShape]) -> tuple[list[str], bool]:
    """Labels of nodes that any pod asks for, and whether one asks for names."""
    terms = [term for shape in shapes for term in shape.placement.node_terms or ()]
    keys = {key for shape in shapes for key in shape.pod.spec.node_selector or {}}
    keys |= {one.key for term in terms for one in term.match_expressions}
    return sorted(keys), any(term.match_fields for term in terms)


def _allows(fleet: Fleet, number: int, shape: FleetShape) -> int:
    """-1 where a pod may not be, else how many taints it would rather not have."""
    node = fleet.nodes[number]
    if not selects(shape, node.labels, node.name):
        return -1
    if shape.gpu_models and fleet.classes[node.kind].gpu_model not in shape.gpu_models:
        return -1
    taints = (*node.taints, _UNSCHEDULABLE) if node.unschedulable else node.taints
    if not all(tolerates(shape, taint) for taint in taints):
        return -1
    return sum(not any(one.tolerates(taint) for one in shape.tolerations) for taint in taints)
