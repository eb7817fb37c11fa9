"""Which nodes can be kept out of an intersection (docs/merge.md).

A node is kept out when at least one resource does without it. So a set of nodes can be kept out when it can be divided
among the resources such that each still has enough with the nodes it has left.
"""

from __future__ import annotations

from collections.abc import Sequence

from podslice.core.hints.hintset import HintSet
from podslice.core.hints.search import Effort, all_met
from podslice.core.values.cpuset import Bits, iter_bits


class Split:
    """Answers for the resources `opened`; "no" as well when the effort ends."""

    def __init__(self, opened: Sequence[HintSet], effort: Effort) -> None:
        self.opened = opened
        self._effort = effort
        self._known: dict[Bits, bool] = {0: True}

    def possible(self, left_out: Bits) -> bool:
        """True when every node of `left_out` can be spared by some resource, all at the same time."""
        answer = self._known.get(left_out)
        if answer is None:
            answer = self._known[left_out] = self._one_spares(left_out) or self._divide(left_out)
        return answer

    def _one_spares(self, left_out: Bits) -> bool:
        return any(all_met(one.needs, one.open_nodes & ~left_out) for one in self.opened)

    def _divide(self, left_out: Bits) -> bool:
        if len(self.opened) == 1:
            return False
        nodes = sorted(iter_bits(left_out), key=self._dear, reverse=True)
        return self._assign(nodes, [one.open_nodes for one in self.opened])

    def _dear(self, node: int) -> float:
        """The least share of any resource's spare amount that a node takes."""
        return min(
            max((need.values.get(node, 0) / max(1, need.amount) for need in one.needs), default=0.0)
            for one in self.opened
        )

    def _assign(self, nodes: list[int], kept: list[Bits]) -> bool:
        if not nodes:
            return True
        if not self._effort.spend():
            return False
        bit = 1 << nodes[0]
        tried = set()
        for place, one in enumerate(self.opened):
            rest = kept[place] & ~bit
            if (id(one), rest) in tried or not all_met(one.needs, rest):
                continue
            tried.add((id(one), rest))
            kept[place] = rest
            if self._assign(nodes[1:], kept):
                return True
            kept[place] = rest | bit
        return False
