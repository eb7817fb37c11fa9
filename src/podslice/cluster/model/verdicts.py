"""Which nodes take a pod: verdicts of all nodes by signature, and questions to those that could.

Conditions say which nodes could take such a pod (`verdicts`). The best of them are asked, in thought, and what they
said is known until they change. Nothing here changes a node or holds a pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from podslice.cluster.model.classes import StateClasses
from podslice.cluster.model.columns import NO_ROW, Ints, NodeTable, distinct
from podslice.cluster.model.holds import HeldNode
from podslice.cluster.model.signature_column import FAR, NOT_CONFIRMED, OPEN, PROVEN, SHARED, UNKNOWN, SignatureColumn
from podslice.replica.signature import Signature

QUARANTINED = "answered such a pod otherwise than expected a moment ago"
_NONE: Mapping[str, str] = MappingProxyType({})


class ModelLimits(NamedTuple):
    """`best`: nodes that a filter names at most. `budget`: how many nodes are asked for a filter, of which nothing is
    remembered, before it is content with those it has. `memory`: bytes of remembered answers. `signatures`, `columns`:
    how many kinds of pods are known, and of how many there is a verdict on every node. `groups`: how many are known.
    Seconds: `hold` and `group_hold` until a hold falls, `undone` where a
    member of the group found no node, `quarantine` until a node that did otherwise is trusted with
    such pods again, `deleted` until a pod that was deleted before its node knew of it is forgotten, `eviction_hold`
    until victims have left. `evictions`: nodes that are looked at for victims."""

    best: int = 16
    budget: int = 8
    memory: int = 64 << 20
    signatures: int = 4096
    columns: int = 64
    groups: int = 4096
    hold: float = 15.0
    group_hold: float = 310.0
    undone: float = 0.5
    quarantine: float = 60.0
    deleted: float = 30.0
    eviction_hold: float = 90.0
    evictions: int = 16


class Filtered(NamedTuple):
    """`nodes` are proven to take the pod, best first. Of those that do not, the cause: `failed` where pods that leave
    could help as the scheduler sees it, `unresolvable` where only the node's topology is in the way or nobody stands
    for its state. Nodes beyond the best ones that were asked for are in none of them."""

    nodes: list[str]
    failed: Mapping[str, str] = _NONE
    unresolvable: Mapping[str, str] = _NONE


class Verdicts:
    """All `nodes` by name, and what is known of them for each signature."""

    def __init__(self, classes: StateClasses, limits: ModelLimits) -> None:
        self.table = NodeTable()
        self.nodes: dict[str, HeldNode] = {}
        self._classes = classes
        self._limits = limits
        self._by_row: dict[int, HeldNode] = {}
        self._columns: OrderedDict[int, SignatureColumn] = OrderedDict()
        self._distrusted: dict[tuple[int, str], float] = {}
        self.trusted = 0
        """How often a node was trusted again."""
        self._latest: tuple[Sequence[str], int, Ints] = (), -1, np.zeros(0, dtype=np.int64)
        """The rows of some names, and when that was."""

    # Nodes

    def write(self, node: HeldNode, told: Mapping[str, int] | None = None) -> None:
        """A node has changed. `told`: what all its pods ask for, where it has said so anew."""
        table = self.table
        row = node.row = table.add(node.name, node.kind.number, node.kind.room)
        self._by_row[row] = node
        table.confirmed[row] = node.confirmed
        if told is not None:
            table.write_reported(row, told)
        table.write_sums(row, node.requested_sums())
        table.write(row, node.kind.counts(node.state))

    def remove(self, node: HeldNode) -> None:
        """A node is gone."""
        del self.nodes[node.name], self._by_row[node.row]
        self.table.remove(node.name)

    def distrust(self, signature: Signature, node: HeldNode, now: float) -> None:
        """The node answered such a pod otherwise than expected: such pods do not go there for a while."""
        self._distrusted[signature.number, node.name] = now + self._limits.quarantine

    def trust(self, now: float) -> None:
        """Nodes whose time is over are trusted again, which may be room."""
        for key in [key for key, until in self._distrusted.items() if until <= now]:
            del self._distrusted[key]
            node = self.nodes.get(key[1])
            if node is not None:
                self.table.touch(node.row)
                self.trusted += 1

    # Questions

    def filter_nodes(self, signature: Signature, names: Sequence[str]) -> Filtered:
        """Which of some nodes take such a pod, the best of them, and why others do not."""
        column, rows = self._column(signature), self.rows(names)
        found = self._best(column, rows[rows >= 0], self._limits.best, FAR)
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        verdicts = np.where(rows < 0, UNKNOWN, column.verdict[rows])
        for verdict in distinct(verdicts[verdicts > PROVEN]):
            cause = column.causes[verdict]
            those = dict.fromkeys(compress(names, (verdicts == verdict).tobytes()), cause.text)
            (failed if cause.by_sums else unresolvable).update(those)
        distrusted = [name for number, name in self._distrusted if number == signature.number]
        if distrusted:
            for name in self.nodes.keys() & set(distrusted).intersection(names) - failed.keys():
                unresolvable.setdefault(name, QUARANTINED)
        return Filtered(found, failed, unresolvable)

    def best(self, signature: Signature, names: Sequence[str] | None) -> str | None:
        """The best of some nodes, or of all, that gives such a pod something for itself."""
        found = self._best(self._column(signature), self._known_rows(names), 1, SHARED)
        return found[0] if found else None

    def ranked(self, signature: Signature, names: Sequence[str] | None, count: int) -> list[str]:
        """The best nodes for such a pod, at most so many, as `best` would choose them one after the other."""
        return self._best(self._column(signature), self._known_rows(names), count, FAR)

    def rank_places(self, signature: Signature, names: Sequence[str]) -> list[tuple[int, str]]:
        """Those of some nodes that give such a pod something for itself, `limits.best` at most, the best first, each
        behind its place; nodes that waste as much share one."""
        column = self._column(signature)
        found = self._best(column, self._known_rows(names), self._limits.best, SHARED)
        costs = [int(column.cost[self.table.row[name]]) for name in found]
        order = {cost: place for place, cost in enumerate(dict.fromkeys(costs))}
        return [(order[cost], name) for cost, name in zip(costs, found, strict=True)]

    def ask_each(self, signature: Signature, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """What each of some nodes says of such a pod when its turn comes: the cause, empty where it takes it. Nodes may
        change between two of them."""
        for name in names:
            node, column = self.nodes.get(name), self._column(signature)
            if node is None:
                yield name, NOT_CONFIRMED
            elif (signature.number, name) in self._distrusted:
                yield name, QUARANTINED
            elif column.verdict[node.row] != OPEN or not self._takes(column, node.row):
                yield name, column.causes[column.verdict[node.row]].text
            else:
                yield name, ""

    def possible_rows(self, signature: Signature, rows: Ints) -> Ints:
        """Those of some rows that may take such a pod, as far as their conditions say."""
        return rows[self._column(signature).verdict[rows] <= PROVEN]

    def refusing_nodes(
        self, signature: Signature, names: Sequence[str] | None, *, together: bool = True
    ) -> list[HeldNode]:
        """Nodes that do not take such a pod as they are, and might without some of their pods: those with most CPUs
        free on one NUMA node, or, not `together`, in all."""
        rows = self._known_rows(names)
        rows = rows[self._column(signature).verdict[rows] > UNKNOWN]
        free = self.table.cpus[:, rows]
        order = np.argsort(-(free.max(axis=0) if together else free.sum(axis=0)), kind="stable")
        nodes = [self._by_row[row] for row in rows[order].tolist()]
        able = [one for one in nodes if one.confirmed and not one.kind.needs(signature).refusal]
        return able[: self._limits.evictions]

    def _column(self, signature: Signature) -> SignatureColumn:
        column = self._columns.get(signature.number)
        if column is None:
            column = SignatureColumn(signature, self.table, self._classes.numbered)
            self._columns[signature.number] = column
            if len(self._columns) > self._limits.columns:
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(signature.number)
        column.refresh()
        return column

    def _known_rows(self, names: Sequence[str] | None) -> Ints:
        """Rows of some nodes, or of all; those that nobody knows are left out."""
        rows = np.arange(self.table.count, dtype=np.int64) if names is None else self.rows(names)
        return rows[rows >= 0]

    def rows(self, names: Sequence[str]) -> Ints:
        """Rows of some nodes, -1 for one of which nothing is known. Of the same names it is asked more than once."""
        latest, clock, rows = self._latest
        if names is not latest or clock != self.table.clock:
            rows = self._rows(names)
            self._latest = names, self.table.clock, rows
        return rows

    def _rows(self, names: Sequence[str]) -> Ints:
        row = self.table.row
        if len(names) < 2:
            return np.array([row.get(name, -1) for name in names], dtype=np.int64)
        coded = self.table.coded
        try:
            found = itemgetter(*names)(coded)
        except KeyError:
            found = [coded.get(name, NO_ROW) for name in names]
        return np.frombuffer(b"".join(found), dtype=np.int64)

    def _best(self, column: SignatureColumn, rows: Ints, count: int, most: int) -> list[str]:
        """Names of the best rows that take such a pod and cost less than `most`."""
        found: list[str] = []
        answers = self._classes.answers
        enough = answers.computed + self._limits.budget
        for row in column.best_first(rows, count, most):
            if self._takes(column, row):
                found.append(self.table.names[row])
            if len(found) == count or (found and answers.computed > enough):
                break
        return found

    def _takes(self, column: SignatureColumn, row: int) -> bool:
        node = self._by_row[row]
        if (column.signature.number, node.name) in self._distrusted:
            return False
        if column.verdict[row] == PROVEN:
            return True
        cause = node.cause(self._classes, column.signature)
        column.record_answer(row, cause)
        return not cause
