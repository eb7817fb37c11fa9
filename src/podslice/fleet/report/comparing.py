"""Compare configurations: means over seeds, differences paired by seed, and verdicts only where they are significant.

One seed is not a result: packing has anomalies, and a better filter can do worse on one of them. With several seeds a
difference counts if its 95 % interval (Student's) excludes 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from podslice.fleet.report.measures import BY_NAME, CRITERIA
from podslice.values.errors import InputError

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom."""
_NORMAL = 1.96
_TINY = 1e-9


class MeanOver(NamedTuple):
    """A mean over seeds, and half of its 95 % interval; None with one seed."""

    mean: float
    half: float | None


class Configuration(NamedTuple):
    """A configuration: its figures by seed."""

    name: str
    by_seed: Mapping[int, Mapping[str, float]]

    def mean(self, measure: str) -> MeanOver | None:
        """Return the mean of a figure; None where no seed has it."""
        return mean_over([one[measure] for one in self.by_seed.values() if measure in one])


Verdict = Literal["better", "worse", "equal", "open"]
"""Verdict about a difference; `open` with one seed."""


class PairedDifference(NamedTuple):
    """The difference of a figure between two configurations, and the verdict about it."""

    measure: str
    value: MeanOver
    verdict: Verdict


def mean_over(values: Sequence[float]) -> MeanOver | None:
    """Return the mean and half of its interval; None for no values."""
    if not values:
        return None
    count = len(values)
    # Exact sums: the same bytes in any order of seeds.
    mean = math.fsum(values) / count
    if count == 1:
        return MeanOver(mean, None)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    quantile = _STUDENT[count - 2] if count - 1 <= len(_STUDENT) else _NORMAL
    return MeanOver(mean, quantile * spread / math.sqrt(count))


def difference(one: Configuration, other: Configuration, measure: str) -> PairedDifference | None:
    """Return the difference of two configurations, paired by seed; None where they share no seed with the figure."""
    seeds = [
        seed
        for seed in one.by_seed
        if seed in other.by_seed and measure in one.by_seed[seed] and measure in other.by_seed[seed]
    ]
    value = mean_over([one.by_seed[seed][measure] - other.by_seed[seed][measure] for seed in seeds])
    if value is None:
        return None
    return PairedDifference(measure, value, _verdict(value, less=bool(BY_NAME[measure].less)))


def _verdict(value: MeanOver, *, less: bool) -> Verdict:
    """Return the verdict about a difference, where `less` of the figure is better."""
    if abs(value.mean) < _TINY and not value.half:
        return "equal"
    if value.half is None:
        return "open"
    if abs(value.mean) <= value.half:
        return "equal"
    return "better" if (value.mean < 0) == less else "worse"


def rank(candidates: Iterable[Configuration], criteria: Sequence[str] = CRITERIA) -> list[Configuration]:
    """Return the configurations best first: by the first criterion's mean (to a tenth), of equals by the next; else in
    their order."""
    return sorted(candidates, key=lambda one: [_merit(one, name) for name in criteria])


def _merit(candidate: Configuration, measure: str) -> float:
    """Return a sort key of a mean, the best first; 0 where the figure does not exist."""
    found = candidate.mean(measure)
    if found is None:
        return 0.0
    # To a tenth, or noise would decide before the next criterion is asked.
    rounded = round(found.mean, 1)
    return rounded if BY_NAME[measure].less else -rounded


def criteria_with(name: str) -> tuple[str, ...]:
    """Return the criteria with `name` in front. Raises `InputError`."""
    if name not in BY_NAME:
        raise InputError(f"{name!r} is not a figure", path="--by", remedy=f"one of {', '.join(BY_NAME)}")
    return (name, *(one for one in CRITERIA if one != name))


def find_deciding(
    first: Configuration, second: Configuration, criteria: Sequence[str] = CRITERIA
) -> PairedDifference | None:
    """Return the difference that decides for the first: a criterion in which it is significantly better; else one in
    which it is better on average; else one in which they differ."""
    found = [one for name in criteria if (one := difference(first, second, name)) is not None]
    sure = next((one for one in found if one.verdict == "better"), None)
    leaning = next((one for one in found if _is_better_on_average(one)), None)
    return sure or leaning or next((one for one in found if abs(one.value.mean) >= _TINY), None)


def _is_better_on_average(one: PairedDifference) -> bool:
    return abs(one.value.mean) >= _TINY and (one.value.mean < 0) == bool(BY_NAME[one.measure].less)
