"""Chance of made-up pods: when they come and how long they run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from podslice.core.errors import InputError
from podslice.core.fleet.workload import NEVER
from podslice.fleet.scenario import Synthetic, SyntheticLifetime
from podslice.fleet.strict import milliseconds


def arrivals_of(made: Synthetic, chance: Random, where: str) -> Iterator[int]:
    """When they come, without end. Raises `InputError`."""
    path = f"{where}.synthetic.arrivals"
    if (made.arrivals.poisson is None) == (made.arrivals.every is None):
        raise InputError("needs exactly one of poisson and every", path=path)
    if made.arrivals.every is not None:
        return _evenly(milliseconds(made.arrivals.every, f"{path}.every"))
    rate, _, unit = str(made.arrivals.poisson).partition("/")
    seconds = {"s": 1, "min": 60, "h": 3600}.get(unit)
    try:
        mean = (seconds or 0) * 1000 / float(rate)
    except (ValueError, ZeroDivisionError):
        mean = 0
    if mean <= 0:
        raise InputError(f"{made.arrivals.poisson!r} is no rate", path=f"{path}.poisson", remedy="write 40/s or 5/min")
    return _poisson(mean, chance)


def _evenly(step: int) -> Iterator[int]:
    at = 0
    while True:
        yield at
        at += step


def _poisson(mean: float, chance: Random) -> Iterator[int]:
    at = 0.0
    while True:
        at -= mean * math.log(1.0 - chance.random())
        yield round(at)


def exponential(chance: Random, mean: int) -> int:
    """One draw of an exponential distribution."""
    return round(-mean * math.log(1.0 - chance.random()))


def length_of(how: SyntheticLifetime | None, chance: Random, where: str) -> int:
    """How long a pod runs. Raises `InputError`."""
    path = f"{where}.synthetic.lifetime"
    if how is None:
        return NEVER
    if how.lognormal is not None:
        mu, sigma = how.lognormal
        return round(1000 * math.exp(mu + sigma * _normal(chance)))
    if how.exponential is not None:
        return exponential(chance, milliseconds(how.exponential, f"{path}.exponential"))
    if how.constant is not None:
        return milliseconds(how.constant, f"{path}.constant")
    raise InputError("needs lognormal, exponential or constant", path=path)


def _normal(chance: Random) -> float:
    """One draw of a standard normal distribution (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - chance.random()))
    return radius * math.cos(2.0 * math.pi * chance.random())
