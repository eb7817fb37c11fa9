"""All nodes in numpy columns, so that a condition is checked for thousands of them at once.

A row is a node: its free resources by NUMA node, its devices, the requests of its pods. Each write stamps the row. A
signature's column (`signature_column`) remembers the latest stamp it has seen, so only rows that changed since are
judged again.

A line (a NUMA node, a resource) takes memory for every node, so no node may have as many as it likes: NUMA nodes and
resources of one node are limited, and lines of unused names are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from sys import byteorder
from typing import Any, TypeAlias

import numpy as np

from podslice.cluster.model.classes import FreeCounts
from podslice.cluster.model.needs import clamp

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
NO_KIND = -1
NO_ROW = (-1).to_bytes(8, byteorder, signed=True)
"""The value in `coded` for a name without row."""
_FIRST_ROWS = 64
MOST_ZONES = 64
"""Most NUMA nodes of a node; amounts of further ones count for the last."""
MOST_NAMES = 128
"""Most resources of a node; further ones are not counted."""
_KEPT_NAMES = 64
"""Names up to which no lines are dropped."""


def distinct(numbers: Ints) -> list[int]:
    """Return the different numbers, smallest first. They must be small and at least -1; `np.unique` takes far
    longer."""
    counted = np.bincount(numbers + 1)
    return (np.flatnonzero(counted) - 1).tolist()


class NodeTable:
    """The columns by row.

    - `row`: row by name; `coded`: the same as eight bytes, because joining bytes of thousands of names is faster than
      making numbers. `names`: name by row.
    - `kind`: number of the node's kind, `NO_KIND` for a row without node. `confirmed`: its agent confirms its state.
    - `cpus`, `memory`: free amounts, a line for each NUMA node. `devices`: free devices, a line for each of
      `device_names`.
    - A line for each of `sum_names`: requests of the node's own pods (`reported`), the same with pods on their way
      (`used`), and allocatable amounts (`room`).
    - `stamp`: the clock when a row was written; `since`: when its node came.
    """

    def __init__(self) -> None:
        self.row: dict[str, int] = {}
        self.coded: dict[str, bytes] = {}
        self.names: list[str] = []
        self.count = 0
        self.clock = 0
        self.device_names: dict[str, int] = {}
        self.sum_names: dict[str, int] = {}
        self._unused: list[int] = []
        self._crowded = dict.fromkeys(_LINES, _KEPT_NAMES)
        self.kind: Ints = np.full(_FIRST_ROWS, NO_KIND, dtype=np.int64)
        self.confirmed: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.stamp: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.since: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.cpus: Ints = np.zeros((1, _FIRST_ROWS), dtype=np.int64)
        self.memory: Ints = np.zeros((1, _FIRST_ROWS), dtype=np.int64)
        self.devices: Ints = np.zeros((0, _FIRST_ROWS), dtype=np.int64)
        self.reported: Ints = np.zeros((0, _FIRST_ROWS), dtype=np.int64)
        self.used: Ints = np.zeros((0, _FIRST_ROWS), dtype=np.int64)
        self.room: Ints = np.zeros((0, _FIRST_ROWS), dtype=np.int64)

    def add(self, name: str, kind: int, room: Mapping[str, int]) -> int:
        """Return the row of a node, a new one where it has none, and write its kind and allocatable amounts."""
        row = self.row.get(name)
        if row is None:
            row = self._new_row(name)
        self.kind[row] = kind
        self.room[:, row] = 0
        for line, amount in self._amounts("sum_names", room):
            self._ensure_line("room", line)
            self.room[line, row] = clamp(amount)
        return row

    def _new_row(self, name: str) -> int:
        if self._unused:
            row = self._unused.pop()
            self.names[row] = name
        else:
            row = self.count
            self.count += 1
            self.names.append(name)
            if self.count > len(self.kind):
                self._grow()
        # `since` tells a new node in a used row from the one before it (`openings`).
        self.row[name], self.since[row] = row, self.clock
        self.coded[name] = row.to_bytes(8, byteorder)
        return row

    def _grow(self) -> None:
        for name in ("kind", "confirmed", "stamp", "since", "cpus", "memory", "devices", "reported", "used", "room"):
            column: Ints = getattr(self, name)
            # New rows have kind 0, which is a valid one: rows from `count` on must not be read.
            setattr(self, name, np.concatenate([column, np.zeros_like(column)], axis=-1))

    def remove(self, name: str) -> None:
        """Free the row of a node."""
        row = self.row.pop(name)
        del self.coded[name]
        self.kind[row], self.confirmed[row] = NO_KIND, 0
        for column in (self.cpus, self.memory, self.devices, self.reported, self.used, self.room):
            column[:, row] = 0
        self.names[row] = ""
        self._unused.append(row)
        self.touch(row)

    def touch(self, row: int) -> None:
        """Stamp a row."""
        self.clock += 1
        self.stamp[row] = self.clock

    def names_written_since(self, clock: int) -> list[str]:
        """Return the names of nodes whose row was written after `clock`, without nodes that are gone."""
        rows = np.flatnonzero(self.stamp[: self.count] > clock)
        return [self.names[row] for row in rows.tolist() if self.names[row]]

    def write(self, row: int, counts: FreeCounts) -> None:
        """Write the free resources of a node."""
        width = min(max(len(counts.cpus), len(counts.memory)), MOST_ZONES)
        for name, values in (("cpus", counts.cpus), ("memory", counts.memory)):
            self._ensure_line(name, width - 1)
            column: Ints = getattr(self, name)
            column[:, row] = 0
            column[: min(len(values), MOST_ZONES), row] = _zones(values)
        if counts.devices or self.device_names:
            self.devices[:, row] = 0
            amounts = self._amounts("device_names", counts.devices)
            self._ensure_line("devices", len(self.device_names) - 1)
            for line, amount in amounts:
                self.devices[line, row] = amount
        self.touch(row)

    def write_reported(self, row: int, sums: Mapping[str, int]) -> None:
        """Write the requests of all pods in a node's own state."""
        self.reported[:, row] = 0
        for line, amount in self._amounts("sum_names", sums):
            self._ensure_line("reported", line)
            self.reported[line, row] = clamp(amount)

    def write_sums(self, row: int, coming: Mapping[str, int]) -> None:
        """Write the used amounts of a node: those it reported, and those of pods on their way."""
        asked = self._amounts("sum_names", coming)
        self._ensure_line("used", len(self.reported) - 1)
        self.used[:, row] = 0
        self.used[: len(self.reported), row] = self.reported[:, row]
        for line, amount in asked:
            self._ensure_line("used", line)
            self.used[line, row] += clamp(amount)

    def _amounts(self, kind: str, amounts: Mapping[str, int]) -> Iterable[tuple[int, int]]:
        """Return the amounts by line."""
        names: dict[str, int] = getattr(self, kind)
        if len(names) > self._crowded[kind]:
            names = self._drop_unused_lines(kind, names)
        return [(names.setdefault(name, len(names)), amount) for name, amount in islice(amounts.items(), MOST_NAMES)]

    def _drop_unused_lines(self, kind: str, names: dict[str, int]) -> dict[str, int]:
        """Drop the lines of names of which no node has any; do so again once there are twice as many names."""
        tables: list[Ints] = [getattr(self, name) for name in _LINES[kind]]
        kept = [name for name, line in names.items() if any(len(one) > line and one[line].any() for one in tables)]
        lines = [names[name] for name in kept]
        for name, table in zip(_LINES[kind], tables, strict=True):
            there = np.array([line for line in lines if line < len(table)], dtype=np.int64)
            setattr(self, name, table[there])
        found = {name: line for line, name in enumerate(kept)}
        setattr(self, kind, found)
        self._crowded[kind] = max(_KEPT_NAMES, 2 * len(found))
        return found

    def _ensure_line(self, name: str, line: int) -> None:
        """Add lines of zeros until this one is there."""
        table: Ints = getattr(self, name)
        lacking = line + 1 - len(table)
        if lacking > 0:
            more = np.zeros((lacking, table.shape[1]), dtype=np.int64)
            setattr(self, name, np.concatenate([table, more]))


_LINES = {"device_names": ("devices",), "sum_names": ("reported", "used", "room")}
"""The tables with a line for each of these names."""


def _zones(values: Sequence[int]) -> list[int]:
    """Return the amounts of at most `MOST_ZONES` NUMA nodes; the last one has the sum of all further ones."""
    first = values if len(values) <= MOST_ZONES else (*values[: MOST_ZONES - 1], sum(values[MOST_ZONES - 1 :]))
    return [clamp(value) for value in first]
