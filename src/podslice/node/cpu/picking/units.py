"""Pick whole cores on machines whose cores differ in size.

Upstream divides the number of CPUs by that of cores and takes the average for the size of every core (quirk
`smt_check_uses_average`); so on a machine with P and E cores `full-pcpus-only` splits cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from podslice.machine.cores import free_cores, reachable_sums, whole_core_sums
from podslice.machine.model import CPUTopology
from podslice.values.cpuset import Bits, union


def take_units(
    topology: CPUTopology, take: Callable[[Bits, int], Bits], places: Sequence[Bits], count: int
) -> Bits | None:
    """Return whole cores that make up `count` CPUs, as many CPUs as possible from the first place, then from the next;
    within a place the largest cores first. `take` chooses among cores of one size. None where no free cores make up the
    number."""
    sums = [whole_core_sums(topology, place, count) for place in places]
    rests = _sums_after(sums, count)
    chosen, missing = 0, count
    for place, mine, rest in zip(places, sums, rests, strict=True):
        # As many CPUs as possible here, such that the later places can make up exactly the rest.
        amount = next((n for n in range(missing, -1, -1) if mine >> n & 1 and rest >> (missing - n) & 1), None)
        if amount is None:
            return None
        chosen |= _take_sizes(topology, take, place, amount)
        missing -= amount
    return None if missing else chosen


def _sums_after(sums: Sequence[Bits], limit: int) -> list[Bits]:
    """Return for each place, as bits, the numbers of CPUs that the places after it make up together."""
    rests, rest = [], 1
    for mine in reversed(sums):
        rests.append(rest)
        rest = _sum_sets(rest, mine, limit)
    return rests[::-1]


def _sum_sets(one: Bits, other: Bits, limit: int) -> Bits:
    """Return, as bits, the sums up to `limit` of a number of `one` and a number of `other`."""
    found, place = 0, 0
    while one >> place:
        if one >> place & 1:
            found |= other << place
        place += 1
    return found & (2 << limit) - 1


def _take_sizes(topology: CPUTopology, take: Callable[[Bits, int], Bits], place: Bits, amount: int) -> Bits:
    """Take `amount` CPUs in whole cores, the largest first as long as smaller ones make up the rest."""
    cores = free_cores(topology, place)
    sizes = sorted({core.bit_count() for core in cores}, reverse=True)
    chosen = 0
    for size in sizes:
        same = [core for core in cores if core.bit_count() == size]
        smaller = reachable_sums([core.bit_count() for core in cores if core.bit_count() < size], amount)
        number = next(_feasible_counts(size, min(len(same), amount // size), amount, smaller), 0)
        if number:
            chosen |= take(union(same), number * size)
            amount -= number * size
    return chosen


def _feasible_counts(size: int, most: int, amount: int, smaller: Bits) -> Iterator[int]:
    return (number for number in range(most, -1, -1) if smaller >> (amount - number * size) & 1)
