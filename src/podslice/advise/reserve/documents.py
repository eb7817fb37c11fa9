"""The answer of `podslice reserve`."""

from __future__ import annotations

from podslice.advise.reserve.advise import ReservationAdvice

__all__ = ["ReservationAdvice"]
