"""Whole cores on machines whose cores differ in size: which numbers of CPUs they can make up, and how.

Upstream divides the number of CPUs by that of cores and takes the average for the size of every core (quirk
`smt_check_uses_average`); so on a machine with P and E cores `full-pcpus-only` splits cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from podslice.machine.cores import reachable, sums_of, whole_cores_in
from podslice.machine.model import CPUTopology
from podslice.values.cpuset import Bits, union


def take_units(
    topology: CPUTopology, take: Callable[[Bits, int], Bits], places: Sequence[Bits], count: int
) -> Bits | None:
    """Whole cores of `count` CPUs, as many as can be of the first place, then of the next; within one the largest cores
    first. `take` chooses among cores of one size. None where no free cores make up the number."""
    sums = [sums_of(topology, place, count) for place in places]
    rests = _rests(sums, count)
    chosen, missing = 0, count
    for place, mine, rest in zip(places, sums, rests, strict=True):
        amount = next((n for n in range(missing, -1, -1) if mine >> n & 1 and rest >> (missing - n) & 1), None)
        if amount is None:
            return None
        chosen |= _take_sizes(topology, take, place, amount)
        missing -= amount
    return None if missing else chosen


def _rests(sums: Sequence[Bits], limit: int) -> list[Bits]:
    """For each place the numbers that the places after it make up together."""
    rests, rest = [], 1
    for mine in reversed(sums):
        rests.append(rest)
        rest = _added(rest, mine, limit)
    return rests[::-1]


def _added(one: Bits, other: Bits, limit: int) -> Bits:
    found, place = 0, 0
    while one >> place:
        if one >> place & 1:
            found |= other << place
        place += 1
    return found & (2 << limit) - 1


def _take_sizes(topology: CPUTopology, take: Callable[[Bits, int], Bits], place: Bits, amount: int) -> Bits:
    """The largest cores first, as long as smaller ones make up the rest."""
    cores = whole_cores_in(topology, place)
    sizes = sorted({core.bit_count() for core in cores}, reverse=True)
    chosen = 0
    for size in sizes:
        same = [core for core in cores if core.bit_count() == size]
        smaller = reachable([core.bit_count() for core in cores if core.bit_count() < size], amount)
        number = next(_numbers(size, min(len(same), amount // size), amount, smaller), 0)
        if number:
            chosen |= take(union(same), number * size)
            amount -= number * size
    return chosen


def _numbers(size: int, most: int, amount: int, smaller: Bits) -> Iterator[int]:
    return (number for number in range(most, -1, -1) if smaller >> (amount - number * size) & 1)
