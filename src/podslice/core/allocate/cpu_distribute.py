"""Distributing CPUs evenly over NUMA nodes (option `distribute-cpus-across-numa`; spec cpu-topology 4.7, 4.8).

For k = the fewest nodes that could do, upward: among all k-node combinations take the one whose left-overs are
balanced best, give every node of it the same share, and hand the remainder out group by group. Balance is a rounded
standard deviation upstream; here it is the exact integer it stands for, so comparing is exact and cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import isqrt
from typing import NamedTuple

from podslice.core.allocate.cpu_packed import Accumulator, not_enough, take_packed
from podslice.core.errors import AdmissionError, UpstreamDefectError
from podslice.core.machine.topology import CPUTopology
from podslice.core.quirks import Quirks
from podslice.core.values.cpuset import Bits

_DEFECT = "endless_distribution"


class _Choice(NamedTuple):
    """A combination of NUMA nodes and the subset of it that takes the remainder."""

    nodes: tuple[int, ...]
    remainder: tuple[int, ...]


def take_distributed(
    topology: CPUTopology, available: Bits, count: int, group: int, spread: bool, quirks: Quirks
) -> Bits:
    """Pick `count` CPUs in multiples of `group`, evenly from as few NUMA nodes as possible (spec 4.7).

    Raises `AdmissionError`; `UpstreamDefectError` where upstream never ends (quirk `endless_distribution`).
    """
    if count % group:
        return take_packed(topology, available, count, quirks, spread=spread)
    if count < 1:
        return 0
    work = Accumulator(topology, available, count, quirks)
    if count > work.free.bit_count():
        raise not_enough(count, available)
    numas = work.numas()
    machine_groups = (topology.all_cpus.bit_count() - 1) // group + 1
    groups_per_node = (machine_groups - 1) // len(topology.numa_nodes) + 1
    groups = (count - 1) // group + 1
    fewest = (groups - 1) // groups_per_node + 1
    search = _Search(work, numas, count, group, quirks)
    for size in range(fewest, min(groups, len(set(numas))) + 1):
        choice = search.best(size)
        if choice is not None:
            return _hand_out(work, choice, count, group, spread, quirks)
    return take_packed(topology, available, count, quirks, spread=spread)


def _hand_out(work: Accumulator, choice: _Choice, count: int, group: int, spread: bool, quirks: Quirks) -> Bits:
    nodes = work.topology.numa_nodes
    share = count // len(choice.nodes) // group * group
    for node in choice.nodes:
        _take_from(work, nodes[node], share, spread, quirks)
    remainder = count - share * len(choice.nodes)
    while remainder > 0:
        before = remainder
        for node in choice.remainder:
            if remainder == 0:
                break
            if (work.free & nodes[node]).bit_count() >= group:
                _take_from(work, nodes[node], group, spread, quirks)
                remainder -= group
        if remainder == before:
            if quirks.endless_distribution:
                raise UpstreamDefectError(
                    _DEFECT, "the nodes chosen for the remainder have no whole group left", hangs=True
                )
            break
    if work.need > 0:
        raise AdmissionError(f"accounting error, not enough CPUs allocated, remaining: {work.need}")
    if work.need < 0:
        raise AdmissionError(f"accounting error, too many CPUs allocated, remaining: {work.need}")
    return work.result


def _take_from(work: Accumulator, node: Bits, count: int, spread: bool, quirks: Quirks) -> None:
    try:
        work.take(take_packed(work.topology, work.free & node, count, quirks, spread=spread))
    except AdmissionError:
        return


class _Search:
    """Finds the best combination of a given size among `numas`, which may name a node twice."""

    def __init__(self, work: Accumulator, numas: Sequence[int], count: int, group: int, quirks: Quirks) -> None:
        nodes = work.topology.numa_nodes
        self.numas = numas
        self.masks = {node: nodes[node] & work.free for node in numas}
        self.free = {node: cpus.bit_count() for node, cpus in self.masks.items()}
        self.count = count
        self.group = group
        self.quirks = quirks
        self.squares = sum(value * value for value in self.free.values())
        self.balance = _Balance(len(self.free), sum(self.free.values()) - count)

    def best(self, size: int) -> _Choice | None:
        """The best choice of `size` nodes, None if none can hold the request (spec 4.7.4).

        A score depends only on how many CPUs each node of a combination has free, so combinations that look alike
        are scored once.
        """
        best: tuple[int, ...] | None = None
        best_found: _Scored | None = None
        stopped_at: tuple[int, ...] | None = None
        alike: dict[tuple[int, ...], _Scored | None] = {}
        numas = self.numas
        frees = [self.free[node] for node in numas]
        if sum(sorted(frees)[-size:]) < self.count:
            return None
        straddling = len(self.masks) != len(numas)
        for positions in combinations(range(len(numas)), size):
            if best_found is not None and best_found.score == 0:
                stopped_at = positions
                break
            key = positions if straddling else tuple([frees[i] for i in positions])
            try:
                found = alike[key]
            except KeyError:
                found = alike[key] = self._score([numas[i] for i in positions])
            if found is not None and (best_found is None or found.score < best_found.score):
                best, best_found = positions, found
        if best is None or best_found is None:
            return None
        remainder = best_found.remainder
        candidates = [best[i] for i in best_found.candidates]
        if self.quirks.combination_aliasing:
            remainder = _overwritten(remainder, len(candidates))
            if best_found.score != 0:
                best = _overwritten(best, len(numas))
            elif stopped_at is not None and stopped_at[: _kept(size)] == best[: _kept(size)]:
                best = stopped_at
        return _Choice(tuple(numas[i] for i in best), tuple(numas[candidates[i]] for i in remainder))

    def _score(self, nodes: list[int]) -> _Scored | None:
        group, count, free = self.group, self.count, self.free
        left = {node: free[node] for node in nodes}
        if sum(left.values()) < count or sum(free[node] // group for node in nodes) * group < count:
            return None
        share = count // len(nodes) // group * group
        if min(left.values()) < share:
            return None
        others = self.squares - sum(value * value for value in left.values())
        for node in nodes:
            left[node] -= share
        remainder = count - share * len(nodes)
        if not remainder:
            return _Scored(self.balance.score(others + sum(value * value for value in left.values())), (), ())
        return self._score_remainder(nodes, left, remainder, others)

    def _score_remainder(self, nodes: list[int], left: dict[int, int], remainder: int, others: int) -> _Scored | None:
        """The subset of `nodes` to deal the remainder to (spec 4.7.4.b.7); larger subsets first.

        `others` is the sum of squares of what is free on nodes outside the combination.
        """
        candidates = tuple(i for i, node in enumerate(nodes) if left[node] >= self.group)
        best: _Scored | None = None
        alike: set[tuple[int, ...]] = set()
        straddling = len(left) != len(nodes)
        amounts = [left[nodes[i]] for i in candidates]
        for size in range(len(candidates), 0, -1):
            for subset in combinations(range(len(candidates)), size):
                values = tuple([amounts[i] for i in subset])
                if values in alike and not straddling:
                    continue
                alike.add(values)
                if sum(values) < remainder:
                    continue
                chosen = [nodes[candidates[i]] for i in subset]
                after = self._deal(chosen, left, remainder)
                if after is None:
                    continue
                score = self.balance.score(others + sum(value * value for value in after.values()))
                if best is None or score < best.score:
                    best = _Scored(score, subset, candidates)
        return best

    def _deal(self, nodes: list[int], left: dict[int, int], remainder: int) -> dict[int, int] | None:
        """What is left after dealing the remainder round by round, None when whole groups run out (spec 11.3)."""
        group = self.group
        after = dict(left)
        while remainder > 0:
            before = remainder
            for node in nodes:
                if remainder > 0 and after[node] >= group:
                    after[node] -= group
                    remainder -= group
            if remainder == before:
                if self.quirks.endless_distribution:
                    raise UpstreamDefectError(
                        _DEFECT, "left-over CPUs cannot supply the remainder in whole groups", hangs=True
                    )
                return None
        return after


class _Scored(NamedTuple):
    """A combination's score; `remainder` are positions in `candidates`, which are positions in the combination."""

    score: int
    remainder: tuple[int, ...]
    candidates: tuple[int, ...]


class _Balance:
    """Population standard deviation in thousandths, rounded as upstream rounds it, from exact integers (spec 4.7).

    Every complete distribution leaves the same total, so the mean is fixed and the score depends on the sum of
    squares alone.
    """

    def __init__(self, size: int, total: int) -> None:
        mean = (2000 * total + size) // (2 * size)
        self.size = size
        self.offset = size * mean * mean - 2000 * mean * total

    def score(self, squares: int) -> int:
        """The integer r with (2r − 1)² · N ≤ 4K < (2r + 1)² · N, for K = Σ(1000·v − mean)²."""
        spread = 4 * (1_000_000 * squares + self.offset)
        return (isqrt(spread // self.size) + 1) // 2


def _kept(size: int) -> int:
    """How many leading elements of a remembered combination upstream keeps: 1, or the largest 2**j + 1 ≤ size."""
    if size < 2:
        return size
    return (1 << (size - 1).bit_length() - 1) + 1


def _overwritten(positions: tuple[int, ...], length: int) -> tuple[int, ...]:
    """What a remembered combination of `range(length)` reads as after the full enumeration (spec 4.8)."""
    size = len(positions)
    kept = _kept(size)
    return positions[:kept] + tuple(range(length - (size - kept), length))
