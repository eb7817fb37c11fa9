"""Where there may be room for a kind of pods that found none: nodes that refused it and have changed since.

    openings = Openings(verdicts, signature)
    openings.refused(names)         # these were asked for such a pod, and do not take it
    openings.changed()              # -> those that may take it now, by their conditions; they count as asked no more
    openings.unheard(names)         # nobody was told of these: they are looked at again

Nothing is held, and no node is asked. Nodes for which nobody asked are out of the pod's reach for another reason, which
the scheduler sees itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podslice.cluster.model.columns import Ints
from podslice.cluster.model.verdicts import Verdicts
from podslice.replica.signature import Signature


class Openings:
    """Of one `signature`."""

    def __init__(self, verdicts: Verdicts, signature: Signature) -> None:
        self.signature = signature
        self._verdicts = verdicts
        self._refused: Ints = np.zeros(0, dtype=np.int64)
        """By row, when its node refused, on the clock of the table; 0 for one that did not."""
        self._unknown: set[str] = set()
        """Names of nodes that refuse because nothing is known of them."""
        self._seen = verdicts.table.clock

    @property
    def has_changes(self) -> bool:
        """True where any node has changed since it was last looked."""
        return self._seen != self._verdicts.table.clock

    def record_refusals(self, names: Sequence[str]) -> None:
        """These nodes were asked, and do not take such a pod."""
        rows = self._verdicts.rows(names)
        known = rows[rows >= 0]
        self._grow()
        self._refused[known] = self._verdicts.table.clock
        if len(known) < len(rows):
            self._unknown.update(name for name, row in zip(names, rows.tolist(), strict=True) if row < 0)

    def take_changed(self) -> list[str]:
        """Names of nodes that refused and were written since it was last looked, as far as they may take such a pod."""
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
        """They are as they were before `take_changed` told of them."""
        self.record_refusals(names)
        self._seen = -1

    def _grow(self) -> None:
        lacking = len(self._verdicts.table.kind) - len(self._refused)
        if lacking > 0:
            self._refused = np.concatenate([self._refused, np.zeros(lacking, dtype=np.int64)])
