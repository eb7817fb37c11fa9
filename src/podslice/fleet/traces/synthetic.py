"""Random arrivals and run times of synthetic pods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from podslice.fleet.engine.workload import NEVER
from podslice.fleet.scenario.scenario import Synthetic, SyntheticLifetime
from podslice.fleet.scenario.strict import milliseconds
from podslice.values.errors import InputError

LONGEST_LOG = 30.0
"""Limit of the logarithm of a run time in seconds: a third of a million years, and still a number."""


def arrivals_of(made: Synthetic, chance: Random, where: str) -> Iterator[int]:
    """Yield arrivals in milliseconds, without end. Raises `InputError`."""
    path = f"{where}.synthetic.arrivals"
    if (made.arrivals.poisson is None) == (made.arrivals.every is None):
        raise InputError("needs exactly one of poisson and every", path=path)
    if made.arrivals.every is not None:
        return _evenly(milliseconds(made.arrivals.every, f"{path}.every"))
    return _poisson(gap_of_rate(str(made.arrivals.poisson), f"{path}.poisson"), chance)


def gap_of_rate(text: str, path: str) -> float:
    """Return the mean milliseconds between arrivals for a rate such as `40/s`. Raises `InputError`."""
    rate, _, unit = text.partition("/")
    seconds = {"s": 1, "min": 60, "h": 3600}.get(unit)
    try:
        mean = (seconds or 0) * 1000 / float(rate)
    except (ValueError, ZeroDivisionError):
        mean = 0
    if not 0 < mean < math.inf:
        raise InputError(f"{text!r} is not a rate", path=path, remedy="write 40/s or 5/min")
    return mean


def _evenly(step: int) -> Iterator[int]:
    at = 0
    while True:
        yield at
        at += step


def _poisson(mean: float, chance: Random) -> Iterator[int]:
    at = 0.0
    while True:
        # `random` may be 0 but never 1: the complement always has a logarithm.
        at -= mean * math.log(1.0 - chance.random())
        yield round(at)


def draw_exponential(chance: Random, mean: int) -> int:
    """Draw from an exponential distribution."""
    return round(-mean * math.log(1.0 - chance.random()))


def draw_length(how: SyntheticLifetime | None, chance: Random, where: str) -> int:
    """Draw the run time of a pod in milliseconds. Raises `InputError`."""
    path = f"{where}.synthetic.lifetime"
    if how is None:
        return NEVER
    if how.lognormal is not None:
        mu, sigma = how.lognormal
        return round(1000 * math.exp(min(mu + sigma * _draw_normal(chance), LONGEST_LOG)))
    if how.exponential is not None:
        return draw_exponential(chance, milliseconds(how.exponential, f"{path}.exponential"))
    if how.constant is not None:
        return milliseconds(how.constant, f"{path}.constant")
    raise InputError("needs lognormal, exponential or constant", path=path)


def _draw_normal(chance: Random) -> float:
    """Draw from a standard normal distribution (Box and Muller)."""
    # Python's own `gauss` and `expovariate` may change between releases; `random` does not.
    radius = math.sqrt(-2.0 * math.log(1.0 - chance.random()))
    return radius * math.cos(2.0 * math.pi * chance.random())
