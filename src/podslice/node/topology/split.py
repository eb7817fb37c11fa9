"""Which nodes can be kept out of an intersection (docs/merge.md).

A node is kept out when at least one resource does without it. So a set of nodes can be kept out when it can be divided
among the resources such that each still has enough with the nodes it has left.
"""

from __future__ import annotations

from collections.abc import Sequence

from podslice.node.topology.hintset import HintSet
from podslice.node.topology.needs import all_met
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits, iter_bits

_Spare = tuple[int, ...]


class Split:
    """Answers for the resources `opened`; "no" as well when the search budget ends."""

    def __init__(self, opened: Sequence[HintSet], search_budget: SearchBudget) -> None:
        self._resources = [_Sparing(one) for one in opened]
        self._search_budget = search_budget
        self._known: dict[Bits, bool] = {0: True}

    def possible(self, left_out: Bits) -> bool:
        """True when every node of `left_out` can be spared by some resource, all at the same time."""
        answer = self._known.get(left_out)
        if answer is None:
            answer = self._known[left_out] = self._one_spares(left_out) or self._divide(left_out)
        return answer

    def _one_spares(self, left_out: Bits) -> bool:
        return any(resource.spares(left_out) for resource in self._resources)

    def _divide(self, left_out: Bits) -> bool:
        if len(self._resources) == 1:
            return False
        nodes = sorted(iter_bits(left_out), key=self._dear, reverse=True)
        return self._assign(nodes, 0, [(resource.spare, 0) for resource in self._resources], set())

    def _dear(self, node: int) -> float:
        """The least share of any resource's spare amount that a node takes."""
        return min(resource.share(node) for resource in self._resources)

    def _assign(
        self, nodes: list[int], place: int, left: list[tuple[_Spare, Bits]], failed: set[tuple[object, ...]]
    ) -> bool:
        """Divide the nodes from `place` on; `left` is what each resource can still spare, and what it already does."""
        if place == len(nodes):
            return True
        state = (place, *left)
        if state in failed or not self._search_budget.spend():
            return False
        node = nodes[place]
        tried = set()
        for index, resource in enumerate(self._resources):
            after = resource.without(node, *left[index])
            if after is None or (resource.hints, after) in tried:
                continue
            tried.add((resource.hints, after))
            before, left[index] = left[index], after
            if self._assign(nodes, place + 1, left, failed):
                return True
            left[index] = before
        failed.add(state)
        return False


class _Sparing:
    """What one resource can do without: `spare` amounts beyond its additive needs, with all its open nodes."""

    def __init__(self, one: HintSet) -> None:
        self.hints = id(one)
        self._open = one.open_nodes
        self._needs = [need for need in one.needs if need.additive]
        self._others = [need for need in one.needs if not need.additive]
        self.spare: _Spare = tuple(
            [sum([need.values.get(node, 0) for node in iter_bits(self._open)]) - need.amount for need in self._needs]
        )

    def spares(self, left_out: Bits) -> bool:
        """True when the other nodes are enough."""
        nodes = list(iter_bits(left_out))
        for need, spare in zip(self._needs, self.spare, strict=True):
            values = need.values
            if sum([values.get(node, 0) for node in nodes]) > spare:
                return False
        return all_met(self._others, self._open & ~left_out)

    def without(self, node: int, spare: _Spare, left_out: Bits) -> tuple[_Spare, Bits] | None:
        """What is spare when one more node is left out, None if it cannot be; sets only where amounts do not add up."""
        rest = tuple([left - need.values.get(node, 0) for left, need in zip(spare, self._needs, strict=True)])
        if rest and min(rest) < 0:
            return None
        if not self._others:
            return rest, 0
        left_out |= 1 << node
        return (rest, left_out) if all_met(self._others, self._open & ~left_out) else None

    def share(self, node: int) -> float:
        """The largest part of a spare amount that a node takes."""
        parts = [need.values.get(node, 0) / max(1, left) for need, left in zip(self._needs, self.spare, strict=True)]
        return max(parts, default=0.0)
