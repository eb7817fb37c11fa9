"""The objective of a recommendation: the costs of a scenario in CPUs, weighed by what the user prefers, and the order
of scenarios that follows (docs/whatif.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from podslice.advise.whatif.compare import Outcome


class Weights(msgspec.Struct, frozen=True, rename="camel"):
    """The weight of one CPU in each of the `Costs`."""

    refused: int
    not_placed: int
    across_numa: int
    apart: int
    across_caches: int
    shared_cores: int
    stranded: int


PREFERENCES: Mapping[str, Weights] = MappingProxyType(
    {
        "balanced": Weights(20, 8, 8, 2, 4, 1, 1),
        "alignment": Weights(8, 20, 20, 6, 8, 1, 0),
        "density": Weights(20, 1, 1, 0, 1, 0, 4),
        "isolation": Weights(20, 20, 4, 1, 4, 16, 1),
    }
)
"""Weights by the name that `--prefer` takes.

- balanced: a refused pod is worse than one that is badly placed, and that is worse than CPUs left over
- alignment: a pod across NUMA nodes is worse than one that is refused, and another node takes it; CPUs left over do not
  count
- density: pods admitted and CPUs used count, their places hardly do
- isolation: pods on one core, or without CPUs of their own, are nearly as bad as refused ones
"""
DEFAULT_PREFERENCE = "balanced"


def cost(outcome: Outcome, weights: Weights) -> int:
    """Return the weighed costs of a scenario. A resize that is not granted counts as a refused CPU, and what happens as
    pods come and go like what happens to the compared pods."""
    costs = outcome.costs
    total = weights.refused * (costs.resizes + costs.refused_later)
    total += weights.across_numa * costs.across_later + weights.not_placed * costs.not_placed_later
    for name in Weights.__struct_fields__:
        total += int(getattr(weights, name)) * int(getattr(costs, name))
    return total


class Group(msgspec.Struct, frozen=True):
    """Scenarios with the same result: the preferred one, and the names of the `others`."""

    first: Outcome
    others: tuple[str, ...] = ()


class Recommendation(msgspec.Struct, frozen=True):
    """All outcomes, best first, in `groups` of equal results too; for each criterion the best value and the scenarios
    that reach it; and the preference that weighed them."""

    outcomes: tuple[Outcome, ...]
    best: dict[str, tuple[float, tuple[str, ...]]]
    prefer: str = DEFAULT_PREFERENCE
    groups: tuple[Group, ...] = ()

    @property
    def present(self) -> Outcome | None:
        """The outcome of the present configuration, where there is exactly one."""
        found = [outcome for outcome in self.outcomes if outcome.is_present]
        return found[0] if len(found) == 1 else None


CRITERIA = {
    "admitted": "most pods admitted",
    "granted": "most resizes granted",
    "unplaced_pods": "fewest pods not placed",
    "cross_numa_pods": "fewest pods across NUMA nodes",
    "apart_pods": "fewest pods with containers on different NUMA nodes",
    "cross_cache_pods": "fewest pods across caches",
    "shared_cores": "fewest cores shared by owners",
    "stranded_cpus": "fewest stranded CPUs",
    "mean_fragmentation": "least fragmentation",
}
"""The criteria of which the comparison names the winners; resizes count where there are any."""
_SLACK = 50
_MORE_IS_BETTER = ("admitted", "granted")
_ABOUT_PLACES = ("cross_numa_pods", "apart_pods", "cross_cache_pods", "shared_cores", "mean_fragmentation")


def rank(outcomes: Iterable[Outcome], prefer: str = DEFAULT_PREFERENCE) -> Recommendation:
    """Order the outcomes by their cost, the lowest first. Costs that exceed the lowest one by no more than a CPU in
    fifty are equal to it.

    Among equals the present configuration comes first, then the one that gives up the fewest guarantees, then the
    Topology Manager policies in the order of `_policies`, then the one that changes the least, and else the first of
    them. Scenarios that do not start come last.
    """
    weights = PREFERENCES[prefer]
    order, every = _policies(weights), list(outcomes)
    costs = {id(outcome): cost(outcome, weights) for outcome in every}
    least = min((costs[id(one)] for one in every if not one.problem), default=0)

    def key(outcome: Outcome) -> tuple[bool, int, tuple[bool, int, int, int]]:
        mine = costs[id(outcome)]
        as_good = mine <= least + outcome.cpus // _SLACK
        return bool(outcome.problem), least if as_good else mine, _preference(outcome, order)

    ordered = sorted(every, key=key)
    running = [outcome for outcome in ordered if not outcome.problem]
    best = dict[str, tuple[float, tuple[str, ...]]]()
    for name in CRITERIA:
        values = [(_merit(outcome, name), outcome.scenario) for outcome in _compared(running, name)]
        if values and (name != "granted" or any(outcome.resizes for outcome in running)):
            top = min(values)[0]
            best[name] = abs(top), tuple(scenario for value, scenario in values if value == top)
    return Recommendation(tuple(ordered), best, prefer, tuple(_groups(ordered)))


def _compared(running: list[Outcome], name: str) -> list[Outcome]:
    """Return the outcomes that a criterion compares. Pods that own nothing have no place, so that a scenario with more
    of them is not the better one."""
    if name not in _ABOUT_PLACES:
        return running
    least = min((outcome.unplaced_pods for outcome in running), default=0)
    return [outcome for outcome in running if outcome.unplaced_pods == least]


def _policies(weights: Weights) -> tuple[int, ...]:
    """Return the strengths of Topology Manager policies in the order in which equals are preferred.

    Where a refused pod is worse than a spread one, best-effort comes first: it aligns whenever it can, and refuses
    nothing for its place. Else the strongest policy does.
    """
    return (1, 2, 3, 0) if weights.refused > weights.across_numa else (3, 2, 1, 0)


def _preference(outcome: Outcome, order: tuple[int, ...]) -> tuple[bool, int, int, int]:
    return not outcome.is_present, len(outcome.losses), order.index(outcome.strength), outcome.changes


def stricter_equal(ranking: Recommendation) -> Outcome | None:
    """Return the outcome with the strongest Topology Manager policy among those as good as the best one; None where
    that is the best one itself."""
    first = ranking.outcomes[0]
    weights = PREFERENCES[ranking.prefer]
    most = cost(first, weights) + first.cpus // _SLACK
    equal = [one for one in ranking.outcomes if not one.problem and cost(one, weights) <= most]
    strongest = max(equal, key=_strength, default=first)
    return strongest if strongest.strength > first.strength else None


def _strength(outcome: Outcome) -> int:
    return outcome.strength


def _merit(outcome: Outcome, name: str) -> float:
    """Return the value of a criterion such that smaller is better."""
    value = float(getattr(outcome, name))
    return -value if name in _MORE_IS_BETTER else value


def _groups(ordered: Iterable[Outcome]) -> list[Group]:
    """Return the outcomes with equal results as one, in order. The present configuration stays by itself."""
    found: dict[object, list[Outcome]] = {}
    for outcome in ordered:
        found.setdefault(_result(outcome), []).append(outcome)
    return [Group(first, tuple(one.scenario for one in others)) for first, *others in found.values()]


def _result(outcome: Outcome) -> object:
    """Return all that a table shows of an outcome, and what decides its rank."""
    if outcome.problem:
        return outcome.problem, outcome.is_present
    shown = (
        outcome.pods,
        outcome.displaced,
        outcome.exclusive_cpus,
        outcome.shared_cores,
        outcome.costs,
        outcome.churn,
    )
    return (*shown, outcome.resizes, tuple(outcome.fragmentation.items()), outcome.is_present)
