"""The verdicts of all nodes on one signature, and the cost of placing such a pod on each.

A verdict is `OPEN` (by the counted conditions the node could take such a pod), `PROVEN` (the exact model says that it
does) or the number of a cause, `UNKNOWN` for an unconfirmed node. A row is judged again when its node was written; a
proof is forgotten then. The best node is the one that wastes least: no free devices that the pod does not
want, then the fewest CPUs left over beside it where a kubelet would put it, then the fewest on the whole node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from podslice.cluster.model import needs as words
from podslice.cluster.model.classes import NodeKind
from podslice.cluster.model.columns import NO_KIND, Ints, NodeTable, distinct
from podslice.cluster.model.needs import PodNeeds
from podslice.replica.signature import Signature

OPEN, PROVEN, UNKNOWN = 0, 1, 2
NOT_CONFIRMED = "node state not confirmed by its agent"
FAR = 1 << 60
"""Cost of a node that does not take such a pod."""
SHARED = 1 << 58
"""Cost of a node where such a pod gets no exclusive resources."""
_DEVICE, _LEFT = 1 << 40, 1 << 20


class Cause(NamedTuple):
    """A reason to refuse a signature. `by_sums`: the scheduler sees it too, so its own preemption could help."""

    text: str
    by_sums: bool = False


class SignatureColumn:
    """Verdicts and costs of one signature, by row of the table."""

    def __init__(self, signature: Signature, table: NodeTable, kinds: Sequence[NodeKind | None]) -> None:
        self.signature = signature
        self.causes: list[Cause] = [Cause(""), Cause(""), Cause(NOT_CONFIRMED)]
        """Causes by verdict; those of `OPEN` and `PROVEN` are empty."""
        self._number: dict[Cause, int] = {self.causes[UNKNOWN]: UNKNOWN}
        self._table = table
        self._kinds = kinds
        self._seen = -1
        self.verdict: Ints = np.zeros(0, dtype=np.int64)
        self.cost: Ints = np.zeros(0, dtype=np.int64)

    def refresh(self) -> None:
        """Judge the rows that were written since the last call."""
        table = self._table
        if self._seen == table.clock:
            return
        size = len(table.kind)
        if len(self.verdict) < size:
            more = size - len(self.verdict)
            self.verdict = np.concatenate([self.verdict, np.zeros(more, dtype=np.int64)])
            self.cost = np.concatenate([self.cost, np.full(more, FAR, dtype=np.int64)])
        rows = np.flatnonzero(table.stamp[: table.count] > self._seen)
        self._seen = table.clock
        kinds = table.kind[rows]
        for number in distinct(kinds):
            self._judge(number, rows[kinds == number])

    def _judge(self, number: int, rows: Ints) -> None:
        kind = None if number == NO_KIND else self._kinds[number]
        if kind is None:
            self._refuse(rows, NOT_CONFIRMED)
            return
        needs = kind.needs(self.signature)
        # Before any look at the state: such a pod passes on unconfirmed nodes too.
        if not needs.exclusive:
            self.verdict[rows], self.cost[rows] = PROVEN, SHARED
            return
        unconfirmed = self._table.confirmed[rows] == 0
        if unconfirmed.any():
            self._refuse(rows[unconfirmed], NOT_CONFIRMED)
            rows = rows[~unconfirmed]
        if needs.refusal:
            self._refuse(rows, needs.refusal)
            return
        for lacks, causes in _conditions(self._table, needs):
            lacking = lacks(rows)
            if lacking.any():
                self._refuse_by_cause(rows[lacking], causes)
                rows = rows[~lacking]
        self.verdict[rows] = OPEN
        self.cost[rows] = _costs(self._table, needs, rows)

    def best_first(self, rows: Ints, count: int, most: int) -> Iterator[int]:
        """Yield the rows that could take such a pod and cost less than `most`, the cheapest first. `count` is how many
        the caller expects to read; more are possible, but slower."""
        costs = self.cost[rows]
        could = costs < most
        rows, costs = rows[could], costs[could]
        some = 4 * count
        # Sorting a few of many rows: a partition is linear, a sort of 100 000 costs is what takes long.
        if len(rows) > some:
            first = np.argpartition(costs, some)[:some]
            first = first[np.argsort(costs[first], kind="stable")]
            yield from rows[first].tolist()
            rest = np.ones(len(rows), dtype=np.bool_)
            rest[first] = False
            rows, costs = rows[rest], costs[rest]
        yield from rows[np.argsort(costs, kind="stable")].tolist()

    def record_answer(self, row: int, cause: str) -> None:
        """Record the answer of the exact model for a row; `cause` is empty where the node takes such a pod."""
        if cause:
            self.verdict[row], self.cost[row] = self.verdict_of(Cause(cause)), FAR
        else:
            self.verdict[row] = PROVEN

    def _refuse_by_cause(self, rows: Ints, causes: Causes) -> None:
        """Refuse rows, each with the first cause that is true of it."""
        for cause, lacks in causes:
            lacking = lacks(rows)
            self._refuse(rows[lacking], cause.text, by_sums=cause.by_sums)
            rows = rows[~lacking]

    def _refuse(self, rows: Ints, text: str, *, by_sums: bool = False) -> None:
        self.verdict[rows] = self.verdict_of(Cause(text, by_sums))
        self.cost[rows] = FAR

    def verdict_of(self, cause: Cause) -> int:
        """Return the verdict that stands for a cause."""
        known = self._number.get(cause)
        if known is None:
            known = self._number[cause] = len(self.causes)
            self.causes.append(cause)
        return known


Lacks: TypeAlias = Callable[[Ints], Any]
"""Returns a mask of the rows that have too little."""
Causes: TypeAlias = "tuple[tuple[Cause, Lacks], ...]"
"""Causes for rows that have too little; the last one is true of all rows that are left."""


def _conditions(table: NodeTable, needs: PodNeeds) -> Iterator[tuple[Lacks, Causes]]:
    """Yield the conditions in the order in which they are reported. A sum that one unit asks for alone is left out: the
    condition of the unit is stricter."""
    for cpus, memory in needs.units:
        yield _on_one_node(table, cpus, memory)
    if needs.cpus > max((cpus for cpus, _ in needs.units), default=0):
        yield _single_cause(words.few_cpus(needs), lambda rows: table.cpus.take(rows, axis=1).sum(axis=0) < needs.cpus)
    if needs.aligned_cpus:
        yield _single_cause(
            words.scattered_cpus(),
            lambda rows: _best_sum(table.cpus.take(rows, axis=1), needs.width) < needs.aligned_cpus,
        )
    if needs.memory > max((memory for _, memory in needs.units), default=0):
        yield _single_cause(
            words.few_memory(needs), lambda rows: table.memory.take(rows, axis=1).sum(axis=0) < needs.memory
        )
    for resource, count in needs.devices.items():
        line = table.device_names.get(resource, -1)
        if 0 <= line < len(table.devices):
            yield _single_cause(words.few_devices(resource, count), partial(_fewer, table.devices[line], count))
    for resource, amount in needs.asked.items():
        line = table.sum_names.get(resource, -1)
        yield _single_cause(words.lacking_sum(resource), partial(_exceeds, table, line, amount), by_sums=True)


def _single_cause(text: str, lacks: Lacks, *, by_sums: bool = False) -> tuple[Lacks, Causes]:
    return lacks, ((Cause(text, by_sums), _all),)


def _all(rows: Ints) -> Any:
    return np.ones(len(rows), dtype=np.bool_)


def _on_one_node(table: NodeTable, cpus: int, memory: int) -> tuple[Lacks, Causes]:
    """Return the condition for CPUs and bytes on one NUMA node; a shortage of one alone is reported first."""

    def few_cpus(rows: Ints) -> Any:
        return table.cpus.take(rows, axis=1).max(axis=0) < cpus

    def few_memory(rows: Ints) -> Any:
        return table.memory.take(rows, axis=1).max(axis=0) < memory

    if not memory:
        return few_cpus, ((Cause(words.short_on_every_numa_node(cpus, 0)), _all),)
    if not cpus:
        return few_memory, ((Cause(words.short_on_every_numa_node(0, memory)), _all),)
    return (
        lambda rows: ~_fitting(table, cpus, memory, rows).any(axis=0),
        (
            (Cause(words.short_on_every_numa_node(cpus, 0)), few_cpus),
            (Cause(words.short_on_every_numa_node(0, memory)), few_memory),
            (Cause(words.short_on_every_numa_node(cpus, memory)), _all),
        ),
    )


def _fitting(table: NodeTable, cpus: int, memory: int, rows: Ints) -> Any:
    """Return a mask of the NUMA nodes, by row, that have both."""
    fits = table.cpus.take(rows, axis=1) >= cpus
    if not memory:
        return fits
    return fits & (table.memory.take(rows, axis=1) >= memory)


def _best_sum(free: Ints, width: int) -> Ints:
    """Return the sum of the `width` best NUMA nodes of each row."""
    if width == 1 or len(free) == 1:
        return free.max(axis=0)
    return np.sort(free, axis=0)[-width:].sum(axis=0)


def _fewer(devices: Ints, count: int, rows: Ints) -> Any:
    return devices.take(rows) < count


def _exceeds(table: NodeTable, line: int, amount: int, rows: Ints) -> Any:
    room = table.room[line].take(rows) if 0 <= line < len(table.room) else 0
    used = table.used[line].take(rows) if 0 <= line < len(table.used) else 0
    return np.full(len(rows), amount, dtype=np.int64) + used > room


def _costs(table: NodeTable, needs: PodNeeds, rows: Ints) -> Ints:
    free = table.cpus.take(rows, axis=1)
    total = free.sum(axis=0)
    if needs.units:
        cpus, memory = max(needs.units)
        first = _fitting(table, cpus, memory, rows).argmax(
            axis=0
        )  # of several NUMA nodes that fit a kubelet takes the lowest
        least = free[first, np.arange(len(rows))] - cpus
    else:
        least = total - needs.cpus
    # One number that sorts by unwanted devices, then CPUs left on the NUMA node, then free CPUs of the node.
    cost: Ints = np.minimum(np.maximum(least, 0), _LEFT - 1) * _LEFT + total
    for name, line in table.device_names.items():
        if name not in needs.devices and line < len(table.devices):
            cost += table.devices[line, rows] * _DEVICE
    return cost
