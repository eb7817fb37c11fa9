"""Finding sets of NUMA nodes without listing all of them.

A request needs so much of something from a set of nodes (`Need`): CPUs, bytes, devices, certain nodes. Two questions
come up again and again: how many nodes are at least needed (`fewest`), and which set of a given size has the lowest
mask (`lowest`). Both are answered by deciding node by node from the highest id down, leaving a node out first, and
giving up a branch as soon as even the largest remaining nodes could not fill a need. With one need that never takes
back a decision; docs/merge.md has the costs of the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from podslice.core.values.cpuset import Bits, bits_of, iter_bits

EXACT_NODES = 16
"""Up to so many nodes every answer is exact, whatever it costs: there are at most 2**16 sets."""
MOST_STEPS = 1 << 14
"""Beyond, a search that has made so many decisions ends without a result."""
_SCALE = 1 << 20


class Effort:
    """How many more decisions a search may make."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps

    @classmethod
    def over(cls, nodes: Bits) -> Effort:
        """Enough for every set of a few nodes; limited for many."""
        return cls(MOST_STEPS if nodes.bit_count() > EXACT_NODES else 1 << 62)

    @property
    def exhausted(self) -> bool:
        return self.left < 0

    def spend(self, steps: int = 1) -> bool:
        """Make decisions; False when there were not as many left."""
        self.left -= steps
        return self.left >= 0


class Need:
    """At least `amount` in total from the nodes of a set; `values` says what each node gives."""

    __slots__ = ("amount", "values")
    additive = True

    def __init__(self, values: Mapping[int, int], amount: int) -> None:
        self.values = values
        self.amount = amount

    @classmethod
    def nodes(cls, mask: Bits, amount: int) -> Need:
        """At least `amount` nodes of `mask`."""
        return cls(dict.fromkeys(iter_bits(mask), 1), amount)

    def met_by(self, mask: Bits) -> bool:
        """True when the nodes of `mask` give enough."""
        values = self.values
        return sum([values.get(node, 0) for node in iter_bits(mask)]) >= self.amount

    def beside(self, mask: Bits) -> Need:
        """What is still needed when the nodes of `mask` are used anyway."""
        return Need(self.values, self.amount - sum([self.values.get(node, 0) for node in iter_bits(mask)]))


class Reach(Need):
    """At least `amount` different devices on the nodes of a set, where one device can be on several nodes."""

    __slots__ = ("devices",)
    additive = False

    def __init__(self, devices: Mapping[int, Bits], amount: int) -> None:
        super().__init__({node: there.bit_count() for node, there in devices.items()}, amount)
        self.devices = devices

    def reached(self, mask: Bits) -> Bits:
        """The devices on the nodes of `mask`."""
        reached = 0
        for node in iter_bits(mask):
            reached |= self.devices.get(node, 0)
        return reached

    def met_by(self, mask: Bits) -> bool:
        return self.reached(mask).bit_count() >= self.amount

    def beside(self, mask: Bits) -> Need:
        reached = self.reached(mask)
        rest = {node: there & ~reached for node, there in self.devices.items()}
        return Reach(rest, self.amount - reached.bit_count())


def all_met(needs: Iterable[Need], mask: Bits) -> bool:
    """True when a set of nodes meets every need."""
    return all(need.met_by(mask) for need in needs)


def lowest_nodes(nodes: Bits, size: int) -> Bits:
    """The `size` lowest members."""
    chosen = 0
    for _ in range(size):
        low = nodes & -nodes
        chosen |= low
        nodes ^= low
    return chosen


def fewest(nodes: Bits, needs: Sequence[Need], at_least: int = 1) -> int | None:
    """How many of `nodes` meet all needs at least; None when even all do not (or the search ended early)."""
    ids = list(iter_bits(nodes))
    size = at_least
    for need in needs:
        if need.amount > 0:
            totals = list(accumulate(sorted((need.values.get(node, 0) for node in ids), reverse=True)))
            size = max(size, bisect_left(totals, need.amount) + 1)
    if size > len(ids):
        return None
    if len(needs) <= 1 and all(need.additive for need in needs):
        return size
    effort = Effort.over(nodes)
    for count in range(size, len(ids) + 1):
        if lowest(nodes, count, needs, effort) is not None:
            return count
    return None


def lowest(
    nodes: Bits,
    size: int,
    needs: Sequence[Need],
    effort: Effort | None = None,
    *,
    may_leave_out: Callable[[Bits], bool] | None = None,
    below: Bits | None = None,
) -> Bits | None:
    """The lowest mask of `size` of the `nodes` that meets all needs; None if there is none (or the search ended early).

    `may_leave_out(set)` tells whether a set of nodes may be left out; what it refuses it refuses for larger sets too.
    `below` restricts the search to lower masks.
    """
    if nodes.bit_count() < size:
        return None
    needs = [need for need in needs if need.amount > 0]
    first = lowest_nodes(nodes, size)
    if all_met(needs, first) and (may_leave_out is None or may_leave_out(nodes & ~first)):
        return first if below is None or first < below else None
    if effort is None or (may_leave_out is None and len(needs) == 1 and needs[0].additive):
        effort = Effort.over(0)
    elif not effort.spend(nodes.bit_count()):
        return None
    return _Descent(nodes, size, needs, effort, may_leave_out, below).run()


class _Descent:
    """One search of `lowest`."""

    def __init__(
        self,
        nodes: Bits,
        size: int,
        needs: Sequence[Need],
        effort: Effort,
        may_leave_out: Callable[[Bits], bool] | None,
        below: Bits | None,
    ) -> None:
        self.ids = list(iter_bits(nodes))
        self.nodes = nodes
        self.size = size
        self.needs = needs
        self.effort = effort
        self.may_leave_out = may_leave_out
        self.below = below
        bounds = [need for need in needs if need.additive]
        if len(bounds) > 1:
            bounds.append(_together(bounds, self.ids))
        bounds += [need for need in needs if not need.additive]
        self.lacking = tuple([need.amount for need in bounds])
        self.values = [tuple([need.values.get(node, 0) for need in bounds]) for node in self.ids]
        self.most = [_largest_sums([need.values.get(node, 0) for node in self.ids], size) for need in bounds]
        self.exact = [need for need in needs if not need.additive]
        self.failed: set[tuple[int, int, tuple[int, ...]]] = set()
        self.forgetful = bool(self.exact) or may_leave_out is not None or below is not None

    def run(self) -> Bits | None:
        return self._descend(len(self.ids), self.size, self.lacking, 0)

    def _descend(self, position: int, count: int, lacking: tuple[int, ...], chosen: Bits) -> Bits | None:
        """Choose `count` of the nodes below `position`, beside `chosen`."""
        if count == 0:
            return self._complete(lacking, chosen)
        for lack, most in zip(lacking, self.most, strict=True):
            if lack > most[position][count]:
                return None
        if self.below is not None and chosen | bits_of(self.ids[:count]) >= self.below:
            return None
        key = (position, count, lacking)
        if key in self.failed or not self.effort.spend():
            return None
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
        if any(lack > 0 for lack in lacking[: len(self.needs) - len(self.exact)]) or not all_met(self.exact, chosen):
            return None
        if self.below is not None and chosen >= self.below:
            return None
        if self.may_leave_out is not None and not self.may_leave_out(self.nodes & ~chosen):
            return None
        return chosen


def _together(needs: Sequence[Need], ids: Sequence[int]) -> Need:
    """One need that follows from several, in shares of their amounts; it sees that no set is large in everything."""
    shares = {
        node: sum([-(-min(need.values.get(node, 0), need.amount) * _SCALE // need.amount) for need in needs])
        for node in ids
    }
    return Need(shares, _SCALE * len(needs))


def _largest_sums(values: Sequence[int], size: int) -> list[list[int]]:
    """Entry [p][r]: the most that r of the first p values give together (all of them where p < r)."""
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
