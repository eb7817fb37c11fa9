"""Find sets of NUMA nodes without listing all of them.

Two questions recur: how many nodes are needed at least (`fewest`), and which set of a given size has the lowest mask
(`lowest`). Both searches decide node by node from the highest id down, and leave a node out first. They abandon a
branch as soon as even the largest remaining nodes could not fill a need. With one need no decision is ever taken back;
docs/development/merge.md has the costs of the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from podslice.node.topology.needs import Need, Reach, all_met, pick_enough, split_named
from podslice.values.cpuset import Bits, bits_of, iter_bits, lowest_bits

EXACT_NODES = 16
"""Up to so many nodes every answer is exact, whatever it costs: there are at most 2**16 sets."""
MOST_STEPS = 1 << 14
"""Beyond, the searches of one admission together end without a result after so many decisions."""
_SCALE = 1 << 20
_NODES_PER_STEP = 8
"""A decision costs more with more needs, and for devices that are on several nodes with more nodes."""


class SearchBudget(msgspec.Struct, eq=False):
    """Decisions that the searches of one admission may still spend together (`left`), where a machine has more than
    `exact_nodes` NUMA nodes. A search that finds it empty ends with the best result it has."""

    left: int = MOST_STEPS
    exact_nodes: int = EXACT_NODES

    def spend(self, steps: int = 1) -> bool:
        """Spend so many decisions; return False when there were not as many left."""
        self.left -= steps
        return self.left >= 0

    def affords(self, steps: int) -> bool:
        """Spend so many decisions if as many are left, else none; return whether it did."""
        return self.left >= steps and self.spend(steps)

    def has_ended_since(self, left: int) -> bool:
        """Whether a search that began with `left` decisions ended for lack of more."""
        return self.left < 0 and self.left != left


def search_budget_over(nodes: Bits, search_budget: SearchBudget | None = None) -> SearchBudget:
    """Return the budget of a search over the sets of some nodes. Few nodes are searched exhaustively, whatever that
    costs; a search over many spends from `search_budget` (by default one of its own)."""
    if nodes.bit_count() <= (EXACT_NODES if search_budget is None else search_budget.exact_nodes):
        return SearchBudget(1 << 62)
    return SearchBudget() if search_budget is None else search_budget


class Size(NamedTuple):
    """A number of nodes that suffice; `proven`: fewer do not."""

    nodes: int
    proven: bool


ALONE = Size(1, True)


class Span(NamedTuple):
    """The condition that a set of nodes is on exactly so many `sockets`; `sockets_of` by NUMA node."""

    sockets_of: dict[int, Bits]
    sockets: int

    def sockets_on(self, mask: Bits) -> Bits:
        """Return the sockets that the nodes of a mask are on."""
        touched = 0
        for node in iter_bits(mask):
            touched |= self.sockets_of.get(node, 0)
        return touched

    def holds(self, mask: Bits) -> bool:
        """Whether the nodes of a mask are on exactly so many sockets."""
        return self.sockets_on(mask).bit_count() == self.sockets


def fewest(
    nodes: Bits, needs: Sequence[Need], at_least: int = 1, search_budget: SearchBudget | None = None
) -> Size | None:
    """Return how many of `nodes` meet all needs at least; None when even all do not. `search_budget`: by default
    `search_budget_over`."""
    named, others = split_named(needs)
    known = named.bit_count()
    if named:
        if named & ~nodes:
            return None
        nodes, needs, at_least = nodes & ~named, others, max(0, at_least - known)
    ids = list(iter_bits(nodes))
    size = at_least
    for need in needs:
        if need.amount > 0:
            totals = list(accumulate(sorted([need.values.get(node, 0) for node in ids], reverse=True)))
            size = max(size, bisect_left(totals, need.amount) + 1)
    if size > len(ids):
        return None
    # With one additive need the largest nodes are the fewest.
    if len(needs) <= 1 and all(need.additive for need in needs):
        return Size(known + size, True)
    if not all_met(needs, nodes):
        return None
    search_budget = search_budget or search_budget_over(nodes)
    before = search_budget.left
    for count in range(size, len(ids)):
        if lowest(nodes, count, needs, search_budget) is not None:
            return Size(known + count, not search_budget.has_ended_since(before))
        if search_budget.has_ended_since(before):
            return Size(known + max(at_least, pick_enough(nodes, needs).bit_count()), False)
    return Size(known + len(ids), True)


def lowest(
    nodes: Bits,
    size: int,
    needs: Sequence[Need],
    search_budget: SearchBudget | None = None,
    *,
    may_leave_out: Callable[[Bits], bool] | None = None,
    below: Bits | None = None,
    span: Span | None = None,
) -> Bits | None:
    """Return the lowest mask of `size` of the `nodes` that meets all needs; None if there is none, or the search budget
    runs out first.

    `may_leave_out(set)` returns whether a set of nodes may be left out. It must be monotone: if it refuses a set, it
    refuses every superset. `below` restricts the search to lower masks, `span` to those on the right number of sockets.
    """
    if nodes.bit_count() < size:
        return None
    named, others = split_named(needs)
    if named and may_leave_out is None and span is None:
        if named & ~nodes or named.bit_count() > size or (below is not None and below <= named):
            return None
        left = None if below is None else below - named
        mask = lowest(nodes & ~named, size - named.bit_count(), others, search_budget, below=left)
        return None if mask is None else named | mask
    needs = [need for need in needs if need.amount > 0]
    if size == 1 and may_leave_out is None and span is None:
        return _lowest_single(nodes, needs, below)
    first = lowest_bits(nodes, size)
    if (
        all_met(needs, first)
        and (may_leave_out is None or may_leave_out(nodes & ~first))
        and (span is None or span.holds(first))
    ):
        return first if below is None or first < below else None
    # It was the only set of this size.
    if first == nodes:
        return None
    if search_budget is None or (may_leave_out is None and span is None and len(needs) == 1 and needs[0].additive):
        search_budget = search_budget_over(0)
    elif not search_budget.spend(nodes.bit_count()):
        return None
    return _Descent(nodes, size, needs, search_budget, may_leave_out, below, span).run()


def _lowest_single(nodes: Bits, needs: Sequence[Need], below: Bits | None) -> Bits | None:
    """Return the lowest single node that meets all needs, None if there is none."""
    while nodes:
        node = nodes & -nodes
        if all_met(needs, node):
            return node if below is None or node < below else None
        nodes ^= node
    return None


class _Descent:
    """One search of `lowest`."""

    def __init__(
        self,
        nodes: Bits,
        size: int,
        needs: Sequence[Need],
        search_budget: SearchBudget,
        may_leave_out: Callable[[Bits], bool] | None,
        below: Bits | None,
        span: Span | None,
    ) -> None:
        self.ids = list(iter_bits(nodes))
        self.nodes = nodes
        self.size = size
        self.search_budget = search_budget
        self.may_leave_out = may_leave_out
        self.below = below
        bounds = [need for need in needs if need.additive]
        self.additive = len(bounds)
        # Each need alone may be met where both together are not.
        if len(bounds) > 1:
            bounds.append(_combined_need(bounds, self.ids))
        self.lacking = tuple([need.amount for need in bounds])
        self.values = [tuple([need.values.get(node, 0) for need in bounds]) for node in self.ids]
        self.most = [_largest_sums([need.values.get(node, 0) for node in self.ids], size) for need in bounds]
        self.reaches = [_ReachBound(need, self.ids) for need in needs if isinstance(need, Reach)]
        self.spans = [] if span is None else [_SpanBound(span, self.ids, self.values)]
        self.failed: set[tuple[object, ...]] = set()
        # With these two, a state that failed once may succeed beside other chosen nodes.
        self.forgetful = may_leave_out is not None or below is not None
        self.cost = 1 + len(bounds) // 2 + len(self.reaches) * (2 + len(self.ids) // _NODES_PER_STEP)

    def run(self) -> Bits | None:
        return self._descend(len(self.ids), self.size, self.lacking, 0)

    def _descend(self, position: int, count: int, lacking: tuple[int, ...], chosen: Bits) -> Bits | None:
        """Choose `count` of the nodes below `position`, beside `chosen`; return the lowest completed mask or None."""
        if count == 0:
            return self._complete(lacking, chosen)
        # Even the largest remaining nodes are too few.
        for lack, most in zip(lacking, self.most, strict=True):
            if lack > most[position][count]:
                return None
        if self.below is not None and chosen | bits_of(self.ids[:count]) >= self.below:
            return None
        key: tuple[object, ...] = (position, count, lacking)
        for reach in self.reaches:
            reached = reach.state_key(position, count, chosen)
            if reached is None:
                return None
            key += reached
        for span in self.spans:
            touched = span.state_key(position, count, lacking, chosen)
            if touched is None:
                return None
            key += touched
        if key in self.failed or not self.search_budget.spend(self.cost):
            return None
        # Leaving the highest node out first makes the first mask found the lowest one.
        found = None
        if position > count and self._may_skip(position - 1, chosen):
            found = self._descend(position - 1, count, lacking, chosen)
        if found is None:
            left = tuple([max(0, lack - value) for lack, value in zip(lacking, self.values[position - 1], strict=True)])
            found = self._descend(position - 1, count - 1, left, chosen | 1 << self.ids[position - 1])
        if found is None and not self.forgetful:
            self.failed.add(key)
        return found

    def _may_skip(self, position: int, chosen: Bits) -> bool:
        if self.may_leave_out is None:
            return True
        return self.may_leave_out(self.nodes & -(1 << self.ids[position]) & ~chosen)

    def _complete(self, lacking: tuple[int, ...], chosen: Bits) -> Bits | None:
        """Return the chosen nodes if they meet everything, else None."""
        if any(lack > 0 for lack in lacking[: self.additive]):
            return None
        if not all(reach.need.is_met_by(chosen) for reach in self.reaches):
            return None
        if not all(span.span.holds(chosen) for span in self.spans):
            return None
        if self.below is not None and chosen >= self.below:
            return None
        if self.may_leave_out is not None and not self.may_leave_out(self.nodes & ~chosen):
            return None
        return chosen


class _ReachBound:
    """Bounds on the devices that can still be reached: all those on the remaining nodes, and the largest gains."""

    def __init__(self, need: Reach, ids: Sequence[int]) -> None:
        self.need = need
        self.devices = [need.devices.get(node, 0) for node in ids]
        self.union = [0]
        for devices in self.devices:
            self.union.append(self.union[-1] | devices)

    def state_key(self, position: int, count: int, chosen: Bits) -> tuple[int, int] | None:
        """Return what distinguishes this state from others at this position, None if it cannot be completed."""
        reached = self.need.devices_on(chosen)
        amount = self.need.amount - reached.bit_count()
        if (self.union[position] & ~reached).bit_count() < amount:
            return None
        gains = sorted([(devices & ~reached).bit_count() for devices in self.devices[:position]])
        if sum(gains[-count:]) < amount:
            return None
        return reached & self.union[position], amount


class _SpanBound:
    """Bounds where the number of sockets is fixed: once all are in use, only their nodes are left."""

    def __init__(self, span: Span, ids: Sequence[int], values: Sequence[tuple[int, ...]]) -> None:
        self.span = span
        self.sockets = [span.sockets_of.get(node, 0) for node in ids]
        self.values = values
        self.union = [0]
        for sockets in self.sockets:
            self.union.append(self.union[-1] | sockets)
        counts = [sum(sockets >> socket & 1 for sockets in self.sockets) for socket in iter_bits(self.union[-1])]
        self.nodes_per_socket = max(counts, default=0)
        self.sockets_per_node = max((sockets.bit_count() for sockets in self.sockets), default=0)

    def state_key(self, position: int, count: int, lacking: tuple[int, ...], chosen: Bits) -> tuple[int, int] | None:
        """Return what distinguishes this state from others at this position, None if it cannot be completed."""
        touched = self.span.sockets_on(chosen)
        missing = self.span.sockets - touched.bit_count()
        if missing < 0 or missing > min(count * self.sockets_per_node, (self.union[position] & ~touched).bit_count()):
            return None
        inside = [place for place in range(position) if not self.sockets[place] & ~touched]
        outside = [place for place in range(position) if self.sockets[place] & ~touched]
        room = min(len(outside), missing * self.nodes_per_socket)
        if len(inside) + room < count:
            return None
        for index, lack in enumerate(lacking):
            largest = sorted([self.values[place][index] for place in outside])[len(outside) - room :]
            largest += [self.values[place][index] for place in inside]
            if sum(sorted(largest)[-count:]) < lack:
                return None
        return touched & self.union[position], missing


def _combined_need(needs: Sequence[Need], ids: Sequence[int]) -> Need:
    """Return one need that follows from several, in shares of their amounts: it excludes sets that are large in one
    thing only."""
    shares = {
        node: sum([-(-min(need.values.get(node, 0), need.amount) * _SCALE // need.amount) for need in needs])
        for node in ids
    }
    return Need(shares, _SCALE * len(needs))


def _largest_sums(values: Sequence[int], size: int) -> list[list[int]]:
    """Return entries [p][r]: the most that r of the first p values sum up to (all of them where p < r)."""
    sums = [[0] * (size + 1)]
    largest: list[int] = []
    for value in values:
        place = len(largest)
        while place and largest[place - 1] < value:
            place -= 1
        if place < size:
            largest.insert(place, value)
            del largest[size:]
            row = list(accumulate(largest, initial=0))
            row += [row[-1]] * (size + 1 - len(row))
        else:
            row = sums[-1]
        sums.append(row)
    return sums
