"""Nodes as columns, so that conditions are looked at for thousands of them at once.

A row is a node: what is free of it by NUMA node, its devices, what its pods ask for in all. Whoever changes a row
stamps it. A signature's column (`verdicts`) remembers which stamp it has seen, so only rows that changed since are
looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from podslice.core.cluster.classes import FreeCounts
from podslice.core.cluster.needs import bounded

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
NO_KIND = -1
_FIRST_ROWS = 64


class NodeTable:
    """`row` by name. `kind` is the number of a node's kind, `NO_KIND` for a row without node; `confirmed` whether its
    agent stands for its state. One line for each NUMA node: `cpus` and `memory` that are free; for each of
    `device_names`: `devices` that are free; for each of `sum_names`: `used` and `room`. `stamp` is when a row was
    written."""

    def __init__(self) -> None:
        self.row: dict[str, int] = {}
        self.names: list[str] = []
        self.count = 0
        self.clock = 0
        self.device_names: dict[str, int] = {}
        self.sum_names: dict[str, int] = {}
        self._unused: list[int] = []
        self.kind: Ints = np.full(_FIRST_ROWS, NO_KIND, dtype=np.int64)
        self.confirmed: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.stamp: Ints = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.cpus: Ints = np.zeros((1, _FIRST_ROWS), dtype=np.int64)
        self.memory: Ints = np.zeros((1, _FIRST_ROWS), dtype=np.int64)
        self.devices: Ints = np.zeros((0, _FIRST_ROWS), dtype=np.int64)
        self.used: Ints = np.zeros((0, _FIRST_ROWS), dtype=np.int64)
        self.room: Ints = np.zeros((0, _FIRST_ROWS), dtype=np.int64)

    def add(self, name: str, kind: int, room: Mapping[str, int]) -> int:
        """A row for a node of this kind that has so much room, or its row as one of this kind."""
        row = self.row.get(name)
        if row is None:
            row = self._new_row(name)
        self.kind[row] = kind
        for line, amount in self._amounts(self.sum_names, room):
            self._reach("room", line)
            self.room[line, row] = bounded(amount)
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
        self.row[name] = row
        return row

    def _grow(self) -> None:
        for name in ("kind", "confirmed", "stamp", "cpus", "memory", "devices", "used", "room"):
            column: Ints = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)], axis=-1))

    def remove(self, name: str) -> None:
        """The node is gone; its row is free."""
        row = self.row.pop(name)
        self.kind[row], self.confirmed[row] = NO_KIND, 0
        for column in (self.cpus, self.memory, self.devices, self.used, self.room):
            column[:, row] = 0
        self.names[row] = ""
        self._unused.append(row)
        self.touch(row)

    def touch(self, row: int) -> None:
        """A row was written."""
        self.clock += 1
        self.stamp[row] = self.clock

    def written_since(self, clock: int) -> list[str]:
        """Names of the nodes whose row was written after this reading of the clock, those that left not among them."""
        rows = np.flatnonzero(self.stamp[: self.count] > clock)
        return [self.names[row] for row in rows.tolist() if self.names[row]]

    def write(self, row: int, counts: FreeCounts) -> None:
        """What is free of a node now."""
        width = max(len(counts.cpus), len(counts.memory))
        for name, values in (("cpus", counts.cpus), ("memory", counts.memory)):
            self._reach(name, width - 1)
            column: Ints = getattr(self, name)
            column[:, row] = 0
            column[: len(values), row] = [bounded(value) for value in values]
        if counts.devices or self.device_names:
            amounts = self._amounts(self.device_names, counts.devices)
            self._reach("devices", len(self.device_names) - 1)
            self.devices[:, row] = 0
            for line, amount in amounts:
                self.devices[line, row] = amount
        self.touch(row)

    def write_sums(self, row: int, *sums: Mapping[str, int]) -> None:
        """What the pods of a node ask for in all; these are added up."""
        self.used[:, row] = 0
        for one in sums:
            for line, amount in self._amounts(self.sum_names, one):
                self._reach("used", line)
                self.used[line, row] += bounded(amount)

    def _amounts(self, names: dict[str, int], amounts: Mapping[str, int]) -> Iterable[tuple[int, int]]:
        return [(names.setdefault(name, len(names)), amount) for name, amount in amounts.items()]

    def _reach(self, name: str, line: int) -> None:
        """A line of that number is there."""
        table: Ints = getattr(self, name)
        lacking = line + 1 - len(table)
        if lacking > 0:
            more = np.zeros((lacking, table.shape[1]), dtype=np.int64)
            setattr(self, name, np.concatenate([table, more]))
