"""The nodes that are proven now, the causes for the others, and the log lines when that changes.

The same look decides what the scheduler's filter gets and what the metrics count, so they cannot differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import get_args

from podslice.cluster.journal.sources import ReplicaSource, Unproven
from podslice.cluster.log_lines import Log

CAUSES: tuple[Unproven, ...] = tuple(cause for cause in get_args(Unproven) if cause)
MOST_NAMES = 20
"""Most names of nodes in one line of the log."""


class Confirmations:
    """The nodes of the cluster that have or had an agent, each with the cause for which it is not proven.

    `known` has the names of the cluster's nodes.
    """

    def __init__(self, journals: ReplicaSource, known: Container[str], log: Log) -> None:
        self._journals, self._known, self._log = journals, known, log
        self._causes: dict[str, Unproven] = {}
        self._changed: dict[str, Unproven | None] = {}
        """Nodes that changed since the last report, with what was reported of them; None for nothing yet."""
        self.counts: Counter[Unproven] = Counter()

    @property
    def with_agent(self) -> int:
        """The number of nodes of the cluster that have or had an agent."""
        return len(self._causes)

    def look(self, node: str) -> bool:
        """Look at a node, and return whether it is proven."""
        cause = self._journals.find_unproven(node)
        if node in self._known and node in self._journals.nodes:
            self._note(node, cause)
        elif node in self._causes:
            self.forget(node)
        return not cause

    def _note(self, node: str, cause: Unproven) -> None:
        before = self._causes.get(node)
        if before == cause:
            return
        self._changed.setdefault(node, before)
        self._causes[node] = cause
        self.counts[cause] += 1
        if before is not None:
            self.counts[before] -= 1

    def forget(self, node: str) -> None:
        """Drop a node that left the cluster, or whose agent was taken away for good."""
        cause = self._causes.pop(node, None)
        self._changed.pop(node, None)
        if cause is not None:
            self.counts[cause] -= 1

    def report(self) -> None:
        """Log the nodes that were lost or confirmed since the last call, in one line for each cause; not those that
        were never confirmed."""
        changed, self._changed = self._changed, {}
        groups: dict[Unproven, list[str]] = {}
        for node, before in changed.items():
            cause = self._causes[node]
            if (not cause) != (before == ""):
                groups.setdefault(cause, []).append(node)
        for cause, nodes in groups.items():
            if cause:
                self._log.warning("nodes lost", cause=cause, count=len(nodes), nodes=nodes[:MOST_NAMES])
            else:
                self._log.info("nodes confirmed", count=len(nodes), nodes=nodes[:MOST_NAMES])
