"""The recommendation in sentences: what to set, what it improves, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from podslice.advise.explain.fixes.losses import LOSSES
from podslice.advise.whatif.compare import Outcome
from podslice.advise.whatif.objective import CRITERIA, DEFAULT_PREFERENCE, Recommendation, stricter_equal
from podslice.reading.yaml import dump
from podslice.render.ansi import style
from podslice.values.quantity import plural

_MOST_NAMES = 4


def best_text(ranking: Recommendation, *, recommend: bool = True) -> str:
    """Return the overall winner with the reasons for it, and the winners of those criteria in which scenarios
    differ."""
    if not ranking.best:
        return "No scenario starts."
    lines = [style(f"Recommended: {ranking.outcomes[0].scenario}", bold=True)]
    if recommend:
        lines += [f"  {line}" for line in reasons(ranking)]
        lines += settings(ranking.outcomes[0])
    return "\n".join(lines)


def settings(outcome: Outcome) -> list[str]:
    """Return the fields to set as lines of a KubeletConfiguration; none where nothing changes."""
    if not outcome.sets:
        return []
    return ["  In the KubeletConfiguration:", *(f"    {line}" for line in dump(outcome.sets).splitlines())]


def winners_text(ranking: Recommendation) -> str:
    """Return a line for each criterion in which scenarios differ: the best value, and who reaches it."""
    starting = sum(not outcome.problem for outcome in ranking.outcomes)
    return "\n".join(
        f"  {CRITERIA[name]}: {value:g} ({name_winners(scenarios, ranking)})"
        for name, (value, scenarios) in ranking.best.items()
        if len(scenarios) < starting or starting == 1
    )


def name_winners(scenarios: Sequence[str], ranking: Recommendation) -> str:
    """Return the names of a criterion's winners, the first of them where there are many."""
    if len(scenarios) == len(ranking.outcomes) > 1:
        return "all"
    more = f" and {len(scenarios) - _MOST_NAMES} more" if len(scenarios) > _MOST_NAMES else ""
    return ", ".join(scenarios[:_MOST_NAMES]) + more


def reasons(ranking: Recommendation) -> list[str]:
    """Return the reasons for the best scenario in sentences: against the present configuration, and what it gives
    up; `settings` says what to set."""
    return list(_reasons(ranking)) if ranking.best else []


def _reasons(ranking: Recommendation) -> Iterator[str]:
    first, present = ranking.outcomes[0], ranking.present
    if first.is_present:
        tried = f"{len(ranking.outcomes) - 1} others that were tried"
        yield f"Your present configuration is as good as any of the {tried}{_preferring(ranking)}."
    elif present is not None and present.problem:
        yield f"The present configuration does not start: {present.problem}."
    elif present is not None:
        better, worse = _differences(present, first)
        yield f"Against the present configuration: {', '.join(better) or 'nothing is better'}{_preferring(ranking)}."
        if worse:
            yield f"In return: {', '.join(worse)}."
    for note in first.notes:
        yield f"{note[:1].upper()}{note[1:]}."
    if first.losses:
        yield f"It gives up a guarantee: {'; '.join(LOSSES[name] for name in first.losses)}."
    if (strict := stricter_equal(ranking)) is not None:
        yield f"{strict.scenario} does as well here, but it refuses pods that it cannot align."
    if idle := _never_placed(ranking):
        yield idle


def _preferring(ranking: Recommendation) -> str:
    return "" if ranking.prefer == DEFAULT_PREFERENCE else f" (with --prefer {ranking.prefer})"


class _Number(NamedTuple):
    """A number of an outcome that a sentence names, whether more of it is better, and whether it is about the places of
    pods."""

    noun: str
    value: Callable[[Outcome], int]
    more_is_better: bool = False
    of_places: bool = False


def _refused(outcome: Outcome) -> int:
    return sum(outcome.refused.values()) + len(outcome.displaced)


def _refused_later(outcome: Outcome) -> int:
    return outcome.churn.refused


def _unplaced(outcome: Outcome) -> int:
    return outcome.unplaced_pods


def _cross_numa(outcome: Outcome) -> int:
    return outcome.cross_numa_pods


def _apart(outcome: Outcome) -> int:
    return outcome.apart_pods


def _cross_cache(outcome: Outcome) -> int:
    return outcome.cross_cache_pods


def _shared_cores(outcome: Outcome) -> int:
    return outcome.shared_cores


def _stranded(outcome: Outcome) -> int:
    return outcome.stranded_cpus


def _granted(outcome: Outcome) -> int:
    return outcome.granted


_NUMBERS = (
    _Number("refused pods", _refused),
    _Number("pods refused as pods come and go", _refused_later),
    _Number("granted resizes", _granted, more_is_better=True),
    _Number("pods not placed", _unplaced),
    _Number("pods across NUMA nodes", _cross_numa, of_places=True),
    _Number("pods with containers on different NUMA nodes", _apart, of_places=True),
    _Number("pods across caches", _cross_cache, of_places=True),
    _Number("shared cores", _shared_cores, of_places=True),
    _Number("stranded CPUs", _stranded),
)


def _differences(before: Outcome, after: Outcome) -> tuple[list[str], list[str]]:
    """Return the numbers that become better, and those that become worse."""
    better, worse = list[str](), list[str]()
    for one in _NUMBERS:
        was, becomes = one.value(before), one.value(after)
        # Pods that own nothing have no place that could be better.
        nowhere = one.of_places and before.unplaced_pods == before.admitted and not before.exclusive_cpus
        if was != becomes and not nowhere:
            gains = (becomes > was) is one.more_is_better
            (better if gains else worse).append(f"{one.noun} {was} → {becomes}")
    return better, worse


def _never_placed(ranking: Recommendation) -> str:
    """Return a sentence about the pods that own nothing in any scenario."""
    running = [outcome for outcome in ranking.outcomes if not outcome.problem]
    # Where no variant starts nothing is known about what pods could own.
    if all(outcome.is_present for outcome in running):
        return ""
    names = [pod.pod for pod in running[0].pods]
    idle = [
        name
        for place, name in enumerate(names)
        if all(not outcome.pods[place].placed and not outcome.pods[place].reason for outcome in running)
    ]
    if not idle:
        return ""
    some = ", ".join(idle[:_MOST_NAMES]) + (" …" if len(idle) > _MOST_NAMES else "")
    one = len(idle) == 1
    who, are = ("owns", "this one is") if one else ("own", "these are")
    return (
        f"{plural(len(idle), 'pod')} {who} nothing under any configuration ({some}): only Guaranteed pods with whole "
        f"CPUs get CPUs of their own, and {are} not (podslice lint says why)."
    )
