"""The scheduler's ledgers: a load for each node (`loads`), and as columns what of a node is not in its load.

Every change of a node is appended to a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from podslice.fleet.engine.domains import PodDomains, matches_node_affinity, tolerates
from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.loads import Bools, Ints, LoadTable
from podslice.scheduling.taints import CORDON

Rows: TypeAlias = "Ints | slice"
"""Nodes by number; a slice for consecutive ones."""
ALL = slice(None)


class Columns:
    """The scheduler's view of every node.

    - `load`: number of its load; `kind`: its class; `state`: number of its state.
    - `allowed`: by shape, mask of the nodes that labels, taints and GPU models allow, None where all are; `disliked`:
      number of PreferNoSchedule taints that the shape does not tolerate.
    - `closed`: mask of cordoned and absent nodes.

    `used`, `room` and `gpus` are computed from all loads with every access.
    """

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
        """Allocatable amounts by node and resource."""
        return self.loads.room[self.load]

    @property
    def used(self) -> Ints:
        """Booked amounts by node and resource."""
        return self.loads.used[self.load]

    @property
    def gpus(self) -> Ints:
        """Free milli of each GPU of each node."""
        return self.loads.gpus[self.load]

    def free(self, node: int) -> Ints:
        """Return the free amounts of a node by resource."""
        load = self.load[node]
        free: Ints = self.loads.room[load] - self.loads.used[load]
        return free

    def open_nodes(self, shape: int, rows: Rows) -> Bools | None:
        """Return the mask of nodes that a pod may go to, apart from what is booked; None for all of them."""
        demand, allowed = self.shapes[shape], self.allowed[shape]
        found = None if allowed is None else allowed[rows]
        if self.any_closed:
            found = ~self.closed[rows] if found is None else found & ~self.closed[rows]
        if demand.max_per_node >= 0:
            below = self._groups[demand.group][rows] < demand.max_per_node
            found = below if found is None else found & below
        passes = self.domains.filter_nodes(shape, rows)
        if passes is not None:
            found = passes if found is None else found & passes
        return found

    def set_closed(self, node: int, *, closed: bool) -> None:
        """Cordon or uncordon a node."""
        self.closed[node] = closed
        self.any_closed = bool(self.closed.any())
        self.log.add(node)

    def set_class(self, node: int, kind: int) -> None:
        """Move a node to another class."""
        self.kind[node] = kind
        self.load[node] = self.loads.load_in_class(int(self.load[node]), kind)
        self.log.add(node)

    def shapes_with_room(self, node: int) -> list[int]:
        """Return the shapes for which a node has enough of everything but GPUs; the filter may still reject the
        node."""
        return self.loads.shapes_with_room(int(self.load[node]))

    def filter_request(self, shape: int) -> Ints:
        """Return the amounts that the filter compares; hugely negative for resources that the pod does not request."""
        return self.loads.asked[shape]

    def footprint(self, shape: int) -> Ints:
        """Return the amounts that a pod takes from its node."""
        return self.loads.taken[shape]

    def book(self, node: int, shape: int, gpus: Sequence[int], sign: int = 1) -> None:
        """Add a pod with these GPUs on a node, or remove it (`sign` -1)."""
        loads = self.loads
        self.load[node] = loads.load_after(int(self.load[node]), shape, gpus, sign)
        if self._groups:
            group = self.shapes[shape].group
            if group in self._groups:
                self._groups[group][node] += sign
        self.domains.book(node, shape, sign)
        self.log.add(node)
        # Compaction renumbers all loads; memos notice it by the generation.
        if loads.is_full:
            self.load = loads.compact(self.load)


class ChangeLog:
    """Nodes that changed, in order; only the last ones are kept, as many as there are nodes."""

    def __init__(self, nodes: int) -> None:
        self._most = max(64, nodes)
        self._log: Ints = np.zeros(4 * self._most, dtype=np.int64)
        self._first = 0
        self._length = 0

    @property
    def position(self) -> int:
        """Number of entries ever appended."""
        return self._first + self._length

    def reset(self, position: int) -> None:
        """Drop all entries, and continue at a position."""
        self._first, self._length = position, 0

    def add(self, node: int) -> None:
        """Append a node that changed."""
        if self._length == len(self._log):
            self._log[: self._most] = self._log[-self._most :]
            self._first += self._length - self._most
            self._length = self._most
        self._log[self._length] = node
        self._length += 1

    def since(self, position: int) -> Rows:
        """Return the nodes that changed after a position, all nodes where that is too long ago; a node may occur
        twice."""
        behind = self.position - position
        if position < self._first or 2 * behind > self._most:
            return ALL
        return self._log[self._length - behind : self._length]


def _constraints(fleet: Fleet, shapes: Sequence[FleetShape]) -> tuple[list[Bools | None], list[Ints | None]]:
    """Return for each shape the mask of nodes that labels, taints and models allow, and the number of PreferNoSchedule
    taints by node that it does not tolerate; None where no node is excluded or disliked."""
    kinds: dict[tuple[object, ...], int] = {}
    first: list[int] = []
    of_node = np.zeros(len(fleet.nodes), dtype=np.int64)
    keys, by_name = _selector_labels(shapes)
    # Nodes with the same labels and taints are checked once.
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
        answers = [_count_disliked(fleet, number, shape) for number in first]
        bars = any(answer < 0 for answer in answers)
        allowed.append(np.array([answer >= 0 for answer in answers], dtype=np.bool_)[of_node] if bars else None)
        some = any(answer > 0 for answer in answers)
        disliked.append(np.array(answers, dtype=np.int64)[of_node] if some else None)
    return allowed, disliked


def _selector_labels(shapes: Sequence[FleetShape]) -> tuple[list[str], bool]:
    """Return the node labels that any pod selects by, and whether one selects by node name."""
    terms = [term for shape in shapes for term in shape.placement.node_terms or ()]
    keys = {key for shape in shapes for key in shape.pod.spec.node_selector or {}}
    keys |= {one.key for term in terms for one in term.match_expressions}
    return sorted(keys), any(term.match_fields for term in terms)


def _count_disliked(fleet: Fleet, number: int, shape: FleetShape) -> int:
    """Return -1 where the node excludes the shape, else the number of PreferNoSchedule taints that it does not
    tolerate."""
    node = fleet.nodes[number]
    if not matches_node_affinity(shape, node.labels, node.name):
        return -1
    if shape.gpu_models and fleet.classes[node.kind].gpu_model not in shape.gpu_models:
        return -1
    # An unschedulable node counts as tainted, so that a toleration of that taint admits pods, as in NodeUnschedulable.
    taints = (*node.taints, CORDON) if node.unschedulable else node.taints
    if not all(tolerates(shape, taint) for taint in taints):
        return -1
    return sum(not shape.placement.tolerations.tolerate(taint) for taint in taints)
