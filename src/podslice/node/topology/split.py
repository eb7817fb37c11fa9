"""Decide which nodes can be kept out of an intersection (docs/development/merge.md).

A node is kept out when at least one resource can spare it. So a set of nodes can be kept out when it can be divided
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
    """Decides for the resources `opened`; the answer is False as well when the search budget runs out."""

    def __init__(self, opened: Sequence[HintSet], search_budget: SearchBudget) -> None:
        self._resources = [_Resource(one) for one in opened]
        self._search_budget = search_budget
        self._known: dict[Bits, bool] = {0: True}

    def is_possible(self, left_out: Bits) -> bool:
        """Whether every node of `left_out` can be spared by some resource, all at the same time."""
        answer = self._known.get(left_out)
        if answer is None:
            answer = self._known[left_out] = self._one_spares(left_out) or self._divide(left_out)
        return answer

    def _one_spares(self, left_out: Bits) -> bool:
        return any(resource.can_spare(left_out) for resource in self._resources)

    def _divide(self, left_out: Bits) -> bool:
        if len(self._resources) == 1:
            return False
        # The most expensive nodes first: they leave the fewest ways, so a dead end shows early.
        nodes = sorted(iter_bits(left_out), key=self._cost, reverse=True)
        return self._assign(nodes, 0, [(resource.spare, 0) for resource in self._resources], set())

    def _cost(self, node: int) -> float:
        """Return the least share of any resource's spare amount that a node takes."""
        return min(resource.share(node) for resource in self._resources)

    def _assign(
        self, nodes: list[int], place: int, left: list[tuple[_Spare, Bits]], failed: set[tuple[object, ...]]
    ) -> bool:
        """Divide the nodes from `place` on; `left` is what each resource can still spare, and the nodes it spares
        already."""
        if place == len(nodes):
            return True
        state = (place, *left)
        if state in failed or not self._search_budget.spend():
            return False
        node = nodes[place]
        tried = set()
        for index, resource in enumerate(self._resources):
            after = resource.spare_after(node, *left[index])
            if after is None or (resource.hints, after) in tried:
                continue
            tried.add((resource.hints, after))
            before, left[index] = left[index], after
            if self._assign(nodes, place + 1, left, failed):
                return True
            left[index] = before
        failed.add(state)
        return False


class _Resource:
    """One resource's spare: amounts beyond its additive needs, with all its open nodes."""

    def __init__(self, one: HintSet) -> None:
        self.hints = id(one)
        self._open = one.open_nodes
        self._needs = [need for need in one.needs if need.additive]
        self._others = [need for need in one.needs if not need.additive]
        self.spare: _Spare = tuple(
            [sum([need.values.get(node, 0) for node in iter_bits(self._open)]) - need.amount for need in self._needs]
        )

    def can_spare(self, left_out: Bits) -> bool:
        """Whether the other nodes suffice."""
        nodes = list(iter_bits(left_out))
        for need, spare in zip(self._needs, self.spare, strict=True):
            values = need.values
            if sum([values.get(node, 0) for node in nodes]) > spare:
                return False
        return all_met(self._others, self._open & ~left_out)

    def spare_after(self, node: int, spare: _Spare, left_out: Bits) -> tuple[_Spare, Bits] | None:
        """Return what is spare when one more node is left out, None if it cannot be; the nodes left out are returned
        only where amounts do not add up."""
        rest = tuple([left - need.values.get(node, 0) for left, need in zip(spare, self._needs, strict=True)])
        if rest and min(rest) < 0:
            return None
        if not self._others:
            return rest, 0
        left_out |= 1 << node
        return (rest, left_out) if all_met(self._others, self._open & ~left_out) else None

    def share(self, node: int) -> float:
        """Return the largest part of a spare amount that a node takes."""
        parts = [need.values.get(node, 0) / max(1, left) for need, left in zip(self._needs, self.spare, strict=True)]
        return max(parts, default=0.0)
