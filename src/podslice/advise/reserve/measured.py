"""The measured use of a node's system: samples of a running agent, and the reservation that follows from them.

CPU time of each minute is counted in classes of 10m, so that a day and more of samples take a few kilobytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from podslice.advise.reserve.formulas import MIB, MeasuredAmounts

USAGE_FILE: Final = "podslice_system_usage"
_CLASS = 10
_MOST = 100_000
_ENOUGH_MINUTES = 24 * 60
_PERCENTILE = 0.99
_MARGIN = 1.25
_SOFTIRQS = 4
_LEAST_MILLI, _LEAST_BYTES = 100, 255 * MIB


class SystemUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Number of observed minutes, by the CPU that all cgroups beside the pods used in them (millicores, rounded up to
    10m). `softirq`: millicores that softirqs took, summed over all minutes; `memory`: the most bytes."""

    version: int = 1
    minutes: dict[int, int] = {}
    softirq: float = 0.0
    memory: int = 0

    @property
    def observed_minutes(self) -> int:
        """The number of observed minutes."""
        return sum(self.minutes.values())


def with_minute(usage: SystemUsage, *, milli: float, softirq_milli: float, memory: int) -> SystemUsage:
    """Return the usage with one minute more."""
    place = min(_MOST, -int(-max(0.0, milli) // _CLASS) * _CLASS)
    minutes = usage.minutes | {place: usage.minutes.get(place, 0) + 1}
    return SystemUsage(1, minutes, usage.softirq + max(0.0, softirq_milli), max(usage.memory, memory))


def measured_amounts(usage: SystemUsage) -> MeasuredAmounts | None:
    """Return the amounts to reserve: of CPU the 99th percentile of the minutes plus four times the mean of the
    softirqs, of memory the most, each with a margin of a quarter. None where less than a day was observed."""
    observed_minutes = usage.observed_minutes
    if observed_minutes < _ENOUGH_MINUTES:
        return None
    threshold, passed, percentile = _PERCENTILE * observed_minutes, 0, 0
    for place, count in sorted(usage.minutes.items()):
        passed, percentile = passed + count, place
        if passed >= threshold:
            break
    return with_margins(
        percentile + _SOFTIRQS * usage.softirq / observed_minutes, usage.memory, hours=observed_minutes // 60
    )


def with_margins(milli: float, memory: float, *, hours: int, samples: int = 0) -> MeasuredAmounts:
    """Return the amounts to reserve for a use of millicores and bytes: a quarter more, and at least 100m and 255 MiB.
    `samples`: their number where they do not cover the hours."""
    return MeasuredAmounts(max(_LEAST_MILLI, _MARGIN * milli), max(_LEAST_BYTES, _MARGIN * memory), hours, samples)
