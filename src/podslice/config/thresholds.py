"""Eviction thresholds as a kubelet parses them: hard, soft with grace periods, minimum reclaims (memory-device 3.9).

A kubelet reads all four maps at its start, also those of signals that reduce nothing for pods, and does not start with
a threshold that it cannot read. The defaults stand in `kubelet.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from podslice.values.duration import DurationError, parse_duration
from podslice.values.errors import PodsliceError
from podslice.values.golang import INT64_MIN, GoSyntaxError, parse_float32, to_float32
from podslice.values.quantity import BINARY_SI, Quantity, QuantityError

SIGNALS = frozenset(
    {
        "allocatableMemory.available",
        "containerfs.available",
        "containerfs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "pid.available",
    }
)
_IGNORED = ("0%", "100%")
"""Percentages that switch a threshold off."""
Parsed = TypeVar("Parsed")


class ThresholdError(PodsliceError, ValueError):
    """Raised for a threshold with which a kubelet does not start: the `field`, the `signal` in it, and upstream's
    message."""

    def __init__(self, field: str, signal: str, message: str) -> None:
        self.field, self.signal = field, signal
        super().__init__(message)

    @property
    def remedy(self) -> str:
        """A valid value to write instead, in words for the user."""
        if self.signal not in SIGNALS:
            return f"name a signal: {', '.join(sorted(SIGNALS))}"
        if self.field == "evictionSoftGracePeriod" or "grace period" in str(self):
            return f"write evictionSoftGracePeriod: {{{self.signal}: 1m30s}}"
        return "write an amount above 0 such as 500Mi, or a percentage such as 5%"


class EvictionThreshold(NamedTuple):
    """A quantity, or a `share` of the capacity (0.05 is 5 %) that is rounded to 32 bits."""

    quantity: Quantity | None = None
    share: float = 0.0

    def of(self, capacity: Quantity) -> Quantity:
        """Return the threshold as an amount of a resource with this `capacity`."""
        if self.quantity is not None:
            return self.quantity
        # What is not a number becomes the smallest integer upstream.
        amount = INT64_MIN if math.isnan(self.share) else int(capacity.value() * self.share)
        return Quantity.of(amount, BINARY_SI)


def parse_hard_thresholds(texts: Mapping[str, str]) -> dict[str, EvictionThreshold]:
    """Return the hard thresholds by signal. Raises `ThresholdError`.

    Upstream iterates over each map in random order; here it is the order of the signals.
    """
    found = _parse("evictionHard", texts, _parse_threshold)
    return {signal: threshold for signal, threshold in found.items() if threshold is not None}


def check_soft_thresholds(soft: Mapping[str, str], grace: Mapping[str, str], reclaim: Mapping[str, str]) -> None:
    """Raise `ThresholdError` for the first of the three maps with which a kubelet does not start."""
    wanted = _parse("evictionSoft", soft, _parse_threshold)
    periods = _parse("evictionSoftGracePeriod", grace, _parse_grace_period)
    _parse("evictionMinimumReclaim", reclaim, _check_reclaim)
    for signal in sorted(wanted):
        # Checked after all three maps were parsed, so an unreadable amount is reported before a missing period.
        if wanted[signal] is not None and signal not in periods:
            message = f"grace period must be specified for the soft eviction threshold {signal}"
            raise ThresholdError("evictionSoft", signal, message)


def _parse(field: str, texts: Mapping[str, str], parse: Callable[[str, str], Parsed]) -> dict[str, Parsed]:
    parsed = {}
    for signal, text in sorted(texts.items()):
        if signal not in SIGNALS:
            raise ThresholdError(field, signal, f"unsupported eviction signal {signal}")
        try:
            parsed[signal] = parse(signal, text)
        except (QuantityError, GoSyntaxError, DurationError, _RangeError) as error:
            raise ThresholdError(field, signal, str(error)) from None
    return parsed


class _RangeError(PodsliceError, ValueError):
    """Raised for a number that parses but is out of range."""


def _parse_percentage(text: str) -> float:
    # Upstream divides a float32 and trims every trailing `%`; the rounding decides the last bytes of a threshold.
    return to_float32(parse_float32(text.rstrip("%")) / 100)


def _parse_threshold(signal: str, text: str) -> EvictionThreshold | None:
    if not text.endswith("%"):
        quantity = Quantity.parse(text)
        if quantity.sign() <= 0:
            raise _RangeError(f"eviction threshold {signal} must be positive: {quantity}")
        return EvictionThreshold(quantity)
    # Exactly these texts switch a threshold off; `0.0%` does not.
    if text in _IGNORED:
        return None
    share = _parse_percentage(text)
    if share < 0:
        raise _RangeError(f"eviction percentage threshold {signal} must be >= 0%: {text}")
    if share > 1:
        raise _RangeError(f"eviction percentage threshold {signal} must be <= 100%: {text}")
    return EvictionThreshold(share=share)


def _parse_grace_period(signal: str, text: str) -> int:
    del signal
    period = parse_duration(text)
    if period < 0:
        raise _RangeError(f"invalid eviction grace period specified: {text}, must be a positive value")
    return period


def _check_reclaim(signal: str, text: str) -> None:
    if not text.endswith("%"):
        if Quantity.parse(text).sign() < 0:
            raise _RangeError(f"negative eviction minimum reclaim specified for {signal}")
    elif _parse_percentage(text) <= 0:
        raise _RangeError(f"eviction percentage minimum reclaim {signal} must be positive: {text}")
