"""Documents that `podslice whatif` prints."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from podslice.advise.whatif.compare import Outcome
from podslice.advise.whatif.objective import CRITERIA, PREFERENCES, Recommendation, Weights, cost
from podslice.advise.whatif.restart.restart import RestartResult
from podslice.evidence.provenance import Provenance


class ComparedScenario(Outcome, frozen=True, rename="camel", kw_only=True):
    """The result of a scenario for the pods, with the mean of its nodes' fragmentation and its weighed `cost`."""

    mean_fragmentation: float
    cost: int


class Winners(msgspec.Struct, frozen=True):
    """The best value of one criterion and the scenarios that reach it."""

    meaning: str
    value: float
    scenarios: tuple[str, ...]


class Comparison(msgspec.Struct, frozen=True):
    """Scenarios, with --recommend the best first, the winners of each criterion, and what each of the given machines
    with each of the given configurations rests on. `restarts`: with state files, what the start of each kubelet does to
    the pods that run. `prefer` is the preference whose `weights` make the costs."""

    scenarios: tuple[ComparedScenario, ...]
    best: dict[str, Winners]
    prefer: str
    weights: Weights
    provenance: tuple[Provenance, ...] = ()
    restarts: tuple[RestartResult, ...] = ()


def comparison_document(
    outcomes: Iterable[Outcome],
    ranking: Recommendation,
    provenance: tuple[Provenance, ...] = (),
    restarts: tuple[RestartResult, ...] = (),
) -> Comparison:
    """Return the outcomes beside the winners of each criterion."""
    weights = PREFERENCES[ranking.prefer]
    scenarios = tuple(
        ComparedScenario(
            **msgspec.structs.asdict(outcome),
            mean_fragmentation=round(outcome.mean_fragmentation, 3),
            cost=cost(outcome, weights),
        )
        for outcome in outcomes
    )
    best = {name: Winners(CRITERIA[name], value, names) for name, (value, names) in ranking.best.items()}
    return Comparison(scenarios, best, ranking.prefer, weights, provenance, restarts)
