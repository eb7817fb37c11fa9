"""The search for nodes that take a pod: counted conditions first, then the exact model for the best candidates.

Conditions select the nodes that could take such a pod (`signature_column`). For the best of them the exact decision is
computed, and remembered until the node changes. Nothing here changes a node or holds a pod.
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

QUARANTINED = "decided a pod of this kind differently than predicted less than a minute ago"
_NONE: Mapping[str, str] = MappingProxyType({})


class ModelLimits(NamedTuple):
    """Bounds of the model. Times are in seconds.

    - `best`: most nodes that a filter names.
    - `budget`: new decisions for one filter, after which it is content with the nodes that it has.
    - `memory`: bytes of remembered answers. `signatures`: kinds of pods that are known. `columns`: kinds of pods with a
      verdict on every node. `groups`: gangs that are known.
    - `hold`, `group_hold`: until a hold of a pod, or of a member of a gang, expires. `failed_group_hold`: the same for
      a gang of which a member found no node.
    - `quarantine`: until a node that did otherwise than expected gets such pods again.
    - `deleted`: until the hold of a bound pod ends that was deleted before its node reported it.
    - `eviction_hold`: until victims must have left. `evictions`: nodes that are searched for victims.
    """

    best: int = 16
    budget: int = 8
    memory: int = 64 << 20
    signatures: int = 4096
    columns: int = 64
    groups: int = 4096
    hold: float = 30.0
    group_hold: float = 310.0
    failed_group_hold: float = 0.5
    quarantine: float = 60.0
    deleted: float = 30.0
    eviction_hold: float = 90.0
    evictions: int = 16


class Filtered(NamedTuple):
    """`nodes` are proven to take the pod, best first. The others are there by cause: `failed` where the scheduler's own
    preemption could help, `unresolvable` where only topology is in the way or the node is unconfirmed. Candidates
    beyond the best ones are in neither."""

    nodes: list[str]
    failed: Mapping[str, str] = _NONE
    unresolvable: Mapping[str, str] = _NONE


class Verdicts:
    """All `nodes` by name, and their verdicts by signature."""

    def __init__(self, classes: StateClasses, limits: ModelLimits) -> None:
        self.table = NodeTable()
        self.nodes: dict[str, HeldNode] = {}
        self._classes = classes
        self._limits = limits
        self._by_row: dict[int, HeldNode] = {}
        self._columns: OrderedDict[int, SignatureColumn] = OrderedDict()
        self._distrusted: dict[tuple[int, str], float] = {}
        self.trusted = 0
        """Number of times that a quarantine ended."""
        self._latest: tuple[Sequence[str], int, Ints] = (), -1, np.zeros(0, dtype=np.int64)
        """The latest names, the clock of the table then, and their rows."""

    # Nodes

    def write(self, node: HeldNode, sums: Mapping[str, int] | None = None) -> None:
        """Write a node's row. `sums`: the requests of all its pods by resource, where its own state is new."""
        table = self.table
        row = node.row = table.add(node.name, node.kind.number, node.kind.room)
        self._by_row[row] = node
        table.confirmed[row] = node.confirmed
        if sums is not None:
            table.write_reported(row, sums)
        table.write_sums(row, node.requested_sums())
        table.write(row, node.kind.counts(node.state))

    def remove(self, node: HeldNode) -> None:
        """Remove a node."""
        del self.nodes[node.name], self._by_row[node.row]
        self.table.remove(node.name)

    def distrust(self, signature: Signature, node: HeldNode, now: float) -> None:
        """Keep such pods from a node for a while, because it did otherwise than expected."""
        self._distrusted[signature.number, node.name] = now + self._limits.quarantine

    def trust(self, now: float) -> None:
        """End the quarantines whose time is over."""
        for key in [key for key, until in self._distrusted.items() if until <= now]:
            del self._distrusted[key]
            node = self.nodes.get(key[1])
            if node is not None:
                self.table.touch(node.row)
                self.trusted += 1

    # Questions

    def filter_nodes(self, signature: Signature, names: Sequence[str]) -> Filtered:
        """Return the best of these nodes that take such a pod, and the causes of those that do not."""
        column, rows = self._column(signature), self.rows(names)
        found = self._best(column, rows[rows >= 0], self._limits.best, FAR)
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        # Row -1 reads the last row, which `where` replaces.
        verdicts = np.where(rows < 0, UNKNOWN, column.verdict[rows])
        for verdict in distinct(verdicts[verdicts > PROVEN]):
            cause = column.causes[verdict]
            # `compress` takes the bytes of a mask as they are, 0 and 1.
            those = dict.fromkeys(compress(names, (verdicts == verdict).tobytes()), cause.text)
            (failed if cause.by_sums else unresolvable).update(those)
        distrusted = [name for number, name in self._distrusted if number == signature.number]
        if distrusted:
            for name in self.nodes.keys() & set(distrusted).intersection(names) - failed.keys():
                unresolvable.setdefault(name, QUARANTINED)
        return Filtered(found, failed, unresolvable)

    def best(self, signature: Signature, names: Sequence[str] | None) -> str | None:
        """Return the best of these nodes, or of all, that gives such a pod exclusive resources; None for none."""
        found = self._best(self._column(signature), self._known_rows(names), 1, SHARED)
        return found[0] if found else None

    def ranked(self, signature: Signature, names: Sequence[str] | None, count: int) -> list[str]:
        """Return the `count` best nodes for such a pod, in the order in which `best` would choose them."""
        return self._best(self._column(signature), self._known_rows(names), count, FAR)

    def rank_places(self, signature: Signature, names: Sequence[str]) -> list[tuple[int, str]]:
        """Return (rank, name) of the nodes that give such a pod exclusive resources, at most `limits.best`, the best
        first. Nodes of equal cost share a rank."""
        column = self._column(signature)
        found = self._best(column, self._known_rows(names), self._limits.best, SHARED)
        costs = [int(column.cost[self.table.row[name]]) for name in found]
        order = {cost: place for place, cost in enumerate(dict.fromkeys(costs))}
        return [(order[cost], name) for cost, name in zip(costs, found, strict=True)]

    def ask_each(self, signature: Signature, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield (name, cause) for each of these nodes, the cause empty where it takes such a pod. Each is judged when
        it is reached: nodes may change between two steps."""
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
        """Return those of these rows that may take such a pod by the counted conditions."""
        return rows[self._column(signature).verdict[rows] <= PROVEN]

    def refusing_nodes(
        self, signature: Signature, names: Sequence[str] | None, *, together: bool = True
    ) -> list[HeldNode]:
        """Return nodes that refuse such a pod and might take it without some of their pods. First come those with most
        free CPUs on one NUMA node, or without `together` in all."""
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
        """Return the rows of these nodes, or of all, without unknown ones."""
        rows = np.arange(self.table.count, dtype=np.int64) if names is None else self.rows(names)
        return rows[rows >= 0]

    def rows(self, names: Sequence[str]) -> Ints:
        """Return the rows of these nodes, -1 for an unknown one. The latest list is remembered by identity, because one
        call of the scheduler looks it up several times."""
        latest, clock, rows = self._latest
        if names is not latest or clock != self.table.clock:
            rows = self._rows(names)
            self._latest = names, self.table.clock, rows
        return rows

    def _rows(self, names: Sequence[str]) -> Ints:
        row = self.table.row
        if len(names) < 2:
            return np.array([row.get(name, -1) for name in names], dtype=np.int64)
        # Joining the encoded rows is faster than making an array of numbers, of 100 000 names.
        coded = self.table.coded
        try:
            found = itemgetter(*names)(coded)
        except KeyError:
            found = [coded.get(name, NO_ROW) for name in names]
        return np.frombuffer(b"".join(found), dtype=np.int64)

    def _best(self, column: SignatureColumn, rows: Ints, count: int, most: int) -> list[str]:
        """Return the names of the best rows that take such a pod and cost less than `most`."""
        found: list[str] = []
        answers = self._classes.answers
        # Only new decisions count against the budget: remembered answers cost next to nothing.
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
