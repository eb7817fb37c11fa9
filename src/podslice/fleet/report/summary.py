"""The summary of runs: candidates, the most frequent refusals, and three sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from podslice.fleet.report.comparing import Configuration, PairedDifference, find_deciding, rank
from podslice.fleet.report.measures import BY_NAME, CRITERIA, figures_of
from podslice.fleet.report.tables import split_key
from podslice.fleet.scenario.store import RunStore
from podslice.values.errors import InputError
from podslice.values.quantity import plural
from podslice.values.reasons import SMT_ALIGNMENT, TOPOLOGY_AFFINITY, UNEXPECTED_ADMISSION, out_of

_PHRASES = {
    "unmet": "the demand that never ran",
    "refused": "the share of refused attempts",
    "firstRefused": "the share of pods that their first node refused",
    "acrossNUMA": "the share of pods across NUMA nodes",
    "expectedStranded": "the share of CPUs that the mix cannot use",
}
REASONS = {
    TOPOLOGY_AFFINITY: "no NUMA node had all it asked for",
    SMT_ALIGNMENT: "the CPUs it asked for are not whole cores",
    UNEXPECTED_ADMISSION: "a resource manager could not give what it asked for",
    out_of("cpu"): "the kubelet counted fewer free CPUs than the scheduler",
    out_of("memory"): "the kubelet counted less free memory than the scheduler",
}


class RefusedMost(NamedTuple):
    """Refused attempts of a shape on a class of nodes for a reason, over all cells of a configuration."""

    configuration: str
    shape: str
    kind: str
    reason: str
    attempts: int
    example: int


class RunSummary(NamedTuple):
    """A run: its candidates, best first, and refusals with the most attempts first."""

    name: str
    candidates: tuple[Configuration, ...]
    refusals: tuple[RefusedMost, ...]
    assumed: tuple[str, ...]
    not_started: tuple[str, ...]
    seeds: int
    missing: int


def configuration_of(key: str, shown: Sequence[int] = (0, 1, 2, 3)) -> str:
    """Return the name of a cell's configuration: the parts of its key in which cells of the run differ."""
    parts = split_key(key)
    return " · ".join(str(parts[place]) for place in shown) or str(parts[1])


def differing_parts(keys: Sequence[str]) -> tuple[int, ...]:
    """Return the parts of keys, except the seed, in which they differ."""
    parts = [split_key(key)[:4] for key in keys]
    return tuple(place for place in range(4) if len({one[place] for one in parts}) > 1)


def summarize(stores: Sequence[RunStore], criteria: Sequence[str] = CRITERIA) -> RunSummary:
    """Summarize runs of the same pods. Raises `InputError` where the pods differ."""
    identities = [store.require_identity() for store in stores]
    _check_comparable(stores, identities)
    keys = [(store, key) for store in stores for key in store.list_keys()]
    if not keys:
        raise InputError("has no cell yet", source=str(stores[0].folder), remedy="podslice fleet run FILE --resume")
    shown = differing_parts([key for _, key in keys])
    found: dict[str, dict[int, dict[str, float]]] = {}
    counted: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for store, key in keys:
        outcome = store.read_outcome(key)
        name = configuration_of(key, shown)
        if len(stores) > 1:
            name = f"{store.folder.name}: {name}"
        found.setdefault(name, {})[split_key(key)[4]] = figures_of(outcome)
        for one in outcome.result.refusals:
            place = (name, outcome.shapes[one.shape].name, outcome.classes[one.kind].name, one.reason)
            attempts, example = counted.get(place, (0, one.example))
            counted[place] = (attempts + one.attempts, example)
    candidates = rank((Configuration(name, by_seed) for name, by_seed in found.items()), criteria)
    refusals = [RefusedMost(*place, *counts) for place, counts in counted.items()]
    refusals.sort(key=lambda one: (-one.attempts, one))
    wanted = sum(len(identity["cells"]) for identity in identities)
    return RunSummary(
        " and ".join(dict.fromkeys(str(identity["name"]) for identity in identities)),
        tuple(candidates),
        tuple(refusals),
        tuple(dict.fromkeys(line for identity in identities for line in identity["assumed"])),
        tuple(dict.fromkeys(line for identity in identities for line in identity["notStarted"])),
        len({seed for candidate in candidates for seed in candidate.by_seed}),
        wanted - len(keys),
    )


def _check_comparable(stores: Sequence[RunStore], identities: Sequence[dict[str, object]]) -> None:
    """Raise `InputError` unless the runs are of the same pods."""
    first = identities[0].get("workload")
    for store, identity in zip(stores, identities, strict=True):
        if identity.get("workload") != first:
            problem = f"is a run of other pods than {stores[0].folder}"
            raise InputError(problem, source=str(store.folder), remedy="compare runs of the same workload and seeds")


def sentences(summary: RunSummary, criteria: Sequence[str] = CRITERIA) -> tuple[str, ...]:
    """Return three sentences: the winner and by how much, what was refused most and why, what was assumed."""
    return (_winner_sentence(summary, criteria), _refusal_sentence(summary), _assumption_sentence(summary))


def _winner_sentence(summary: RunSummary, criteria: Sequence[str]) -> str:
    """Say which configuration is best, and by how much."""
    if len(summary.candidates) < 2:
        return "There is one configuration; name several to compare."
    best, *others = summary.candidates
    against = [(one, found) for one in others if (found := find_deciding(best, one, criteria)) is not None]
    same = [one.name for one in others if find_deciding(best, one, criteria) is None]
    if not against:
        return "All configurations are equal in all figures that are compared."
    nearest, found = against[0]
    alike = f" (as {', '.join(same)})" if same else ""
    text = f"{best.name}{alike} is best: {_phrase(found)} is {_amount(found)} than with {nearest.name}"
    worst, far = against[-1]
    if worst is not nearest:
        again = "" if far.measure == found.measure else f"{_phrase(far)} is "
        text += f", and {again}{_amount(far)} than with {worst.name}"
    # Intervals need two seeds.
    if summary.seeds == 1:
        return f"{text}. That is one seed: only several seeds can show whether it is more than chance."
    doubt = "" if found.verdict in ("better", "worse") else f" Against {nearest.name} that is no more than chance."
    return f"{text}.{doubt}"


def _amount(found: PairedDifference) -> str:
    """Describe a difference: `12.3 points (±1.2) lower`."""
    measure = BY_NAME[found.measure]
    value = found.value
    unit = " points" if measure.unit == "%" else f" {measure.unit}".rstrip()
    interval = "" if value.half is None else f" (±{value.half:.1f})"
    return f"{abs(value.mean):.1f}{unit}{interval} {'lower' if value.mean < 0 else 'higher'}"


def _phrase(found: PairedDifference) -> str:
    measure = BY_NAME[found.measure]
    return _PHRASES.get(found.measure, f"{measure.heading} ({measure.meaning})")


def _refusal_sentence(summary: RunSummary) -> str:
    if not summary.refusals:
        return "No kubelet refused a pod."
    total = sum(one.attempts for one in summary.refusals)
    most = summary.refusals[0]
    why = REASONS.get(most.reason, "")
    because = f": {why}" if why else ""
    return (
        f"Kubelets refused {plural(total, 'attempt')}. The most frequent refusal came {plural(most.attempts, 'time')} "
        f"under {most.configuration}: {most.reason} for pods of {most.shape} on nodes {most.kind}{because} "
        f"(pod {most.example}, for example)."
    )


def _assumption_sentence(summary: RunSummary) -> str:
    first, *others = summary.assumed or ("nothing was assumed",)
    return (
        f"Assumed: {first}"
        + (f"; {others[0]}" if others else "")
        + (f", and {len(others) - 1} more (id.json)." if len(others) > 1 else ".")
    )
