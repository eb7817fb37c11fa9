"""What a node's system has really used: samples of a running agent, and the reservation that follows.

CPU time of each minute is counted in classes of 10m; what a day and more of them says is remembered in a few kilobytes.
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
    """Minutes that were looked at, by the CPU that all cgroups beside the pods used in them (thousandths, rounded up to
    10m); `softirq`: thousandths of CPUs that softirqs took, over all minutes; `memory`: bytes, the most there was."""

    version: int = 1
    minutes: dict[int, int] = {}
    softirq: float = 0.0
    memory: int = 0

    @property
    def looked(self) -> int:
        """Minutes."""
        return sum(self.minutes.values())


def with_minute(usage: SystemUsage, *, milli: float, softirq_milli: float, memory: int) -> SystemUsage:
    """One minute more."""
    place = min(_MOST, -int(-max(0.0, milli) // _CLASS) * _CLASS)
    minutes = usage.minutes | {place: usage.minutes.get(place, 0) + 1}
    return SystemUsage(1, minutes, usage.softirq + max(0.0, softirq_milli), max(usage.memory, memory))


def measured(usage: SystemUsage) -> MeasuredAmounts | None:
    """The 99th percentile of the minutes and four times what softirqs took in the mean; the most memory; a quarter more
    of both. None where less than a day was looked at."""
    looked = usage.looked
    if looked < _ENOUGH_MINUTES:
        return None
    wanted, passed, percentile = _PERCENTILE * looked, 0, 0
    for place, count in sorted(usage.minutes.items()):
        passed, percentile = passed + count, place
        if passed >= wanted:
            break
    milli = _MARGIN * (percentile + _SOFTIRQS * usage.softirq / looked)
    return MeasuredAmounts(max(_LEAST_MILLI, milli), max(_LEAST_BYTES, _MARGIN * usage.memory), looked // 60)
