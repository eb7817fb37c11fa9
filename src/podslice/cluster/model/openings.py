"""Nodes that refused a kind of pods and may take it now, because they have changed since.

    openings = Openings(verdicts, signature)
    openings.record_refusals(names) # these nodes refused such a pod
    openings.take_changed()         # -> those that may take it now, by counted conditions; each once
    openings.retry(names)           # no Node was annotated for these: they come again

Nothing is held, and nothing decided exactly. Nodes for which the scheduler never asked are out for another reason,
which it watches itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podslice.cluster.model.columns import Ints
from podslice.cluster.model.verdicts import Verdicts
from podslice.replica.signature import Signature


class Openings:
    """The openings of one `signature`."""

    def __init__(self, verdicts: Verdicts, signature: Signature) -> None:
        self.signature = signature
        self._verdicts = verdicts
        self._refused: Ints = np.zeros(0, dtype=np.int64)
        """By row, the table's clock when its node refused; 0 for one that did not."""
        self._unknown: set[str] = set()
        """Names of nodes that are refused because their state is unknown."""
        self._seen = verdicts.table.clock

    @property
    def has_changes(self) -> bool:
        """Whether any node was written since the last `take_changed`."""
        return self._seen != self._verdicts.table.clock

    def record_refusals(self, names: Sequence[str]) -> None:
        """Record that these nodes refuse such a pod."""
        rows = self._verdicts.rows(names)
        known = rows[rows >= 0]
        self._grow()
        self._refused[known] = self._verdicts.table.clock
        if len(known) < len(rows):
            self._unknown.update(name for name, row in zip(names, rows.tolist(), strict=True) if row < 0)

    def take_changed(self) -> list[str]:
        """Return the nodes that refused, were written since the last call, and may take such a pod by counted
        conditions. Each is returned once."""
        table = self._verdicts.table
        self._grow()
        for name in self._unknown & table.row.keys():
            self._unknown.discard(name)
            self._refused[table.row[name]] = table.clock
        rows = np.flatnonzero((table.stamp > self._seen) & (self._refused > table.since))
        self._seen = table.clock
        rows = self._verdicts.possible_rows(self.signature, rows)
        self._refused[rows] = 0
        return [table.names[row] for row in rows.tolist()]

    def retry(self, names: Sequence[str]) -> None:
        """Put back nodes of `take_changed`, so that they are returned again."""
        self.record_refusals(names)
        self._seen = -1

    def _grow(self) -> None:
        lacking = len(self._verdicts.table.kind) - len(self._refused)
        if lacking > 0:
            self._refused = np.concatenate([self._refused, np.zeros(lacking, dtype=np.int64)])
