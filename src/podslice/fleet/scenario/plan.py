"""The least number of nodes for every configuration and seed, with no more unmet demand than is tolerated.

Nodes are removed in a random order of the seed, the same for all configurations: of all classes alike, by weights of
classes, or of one class after the other while all others stay. Bisection finds how many can be removed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from statistics import median
from typing import NamedTuple, Protocol

import msgspec

from podslice.fleet.scenario.cells import CellInputs, FleetCell, Study
from podslice.fleet.scenario.equivalence import group_equivalent
from podslice.fleet.scenario.plan_file import PlannedClass, PlannedConfiguration, PlannedNodes
from podslice.fleet.scenario.sizing import (
    NotEnoughError,
    find_least_nodes,
    measure_unmet,
    order_by_weight,
    removal_order,
)
from podslice.fleet.traces.growth import GrowingWorkload, find_most_growth
from podslice.fleet.workers.pool import load_study, local_executor, run_tasks
from podslice.fleet.workers.progress import ProgressListener, ProgressReporter
from podslice.values.errors import InputError, PodsliceError

_NEARLY = 0.99
"""The reported share of a cell that takes more trials than expected."""
_PROBES, _GROWTH_TRIALS = 3, 10
"""Expected trials beside those of bisection, and about growth."""


class PlanTerms(NamedTuple):
    """The question of a plan.

    - `percent`: tolerated unmet demand; `patience`: milliseconds after which demand counts as unmet.
    - `growth`: also find how many more pods would fit; `by_class`: also find how many nodes of each class can be
      removed while all others stay.
    - `weights`: in which proportion classes are removed, by the pattern of their names; other classes stay.
    """

    percent: float
    patience: int
    growth: bool = False
    by_class: bool = False
    weights: tuple[tuple[str, int], ...] = ()


class SizeTask(NamedTuple):
    """A cell to size. `scenario`: JSON; `folder`: where its files are."""

    scenario: str
    folder: str
    key: str
    terms: PlanTerms


class CellSize(NamedTuple):
    """The size of a cell.

    - `least`: the least number of nodes; `odd`: numbers that contradict it, a line each.
    - `enough`: whether all nodes are; `never`: shapes of pods that never ran where they are not.
    - `problem`: a line about why there is no size.
    - `growth`: in percent; `fewer`: nodes that can be removed, by class; both if the terms ask for them.
    """

    key: str
    least: int
    odd: tuple[str, ...] = ()
    enough: bool = True
    never: tuple[str, ...] = ()
    problem: str = ""
    growth: int | None = None
    fewer: tuple[tuple[str, int], ...] = ()


def size_cell(task: SizeTask) -> CellSize:
    """Size a cell in a worker process."""
    try:
        study = load_study(task.scenario, task.folder)
        cell = next(one for one in study.cells if one.key == task.key)
        return _size_cell(study, cell, task.terms, ProgressReporter(task.key))
    except PodsliceError as error:
        return CellSize(task.key, 0, problem=str(error))


class PlanListener(ProgressListener, Protocol):
    """Gets the progress of a plan."""

    def count(self, key: str) -> None:
        """Count a configuration, all cells of which are sized."""


def plan_nodes(study: Study, terms: PlanTerms, listener: PlanListener, *, workers: int = 1) -> PlannedNodes:
    """Return the nodes that every configuration needs; the number of processes does not change it. Raises `InputError`,
    `ClassStartError`."""
    weights = class_weights(study, terms)
    by_name: dict[str, list[FleetCell]] = {}
    for cell in study.cells:
        parts = (cell.alternative, cell.configuration, cell.scheduler, cell.transform)
        by_name.setdefault(" · ".join(parts), []).append(cell)
    name_of = {cell.key: name for name, cells in by_name.items() for cell in cells}
    left = Counter(name_of.values())
    by_key: dict[str, CellSize] = {}
    for size in _size_all(study, terms, workers, listener):
        if size.problem:
            raise InputError(f"cell {size.key}: {size.problem}")
        by_key[size.key] = size
        left[name_of[size.key]] -= 1
        if not left[name_of[size.key]]:
            listener.count(name_of[size.key])
    varying = _varying_parts(by_name)
    totals = Counter(study.cluster.classes[node.kind].name for node in study.cluster.nodes)
    anomalies: list[str] = []
    planned = []
    for name, cells in by_name.items():
        short = " · ".join(part for place, part in enumerate(name.split(" · ")) if place in varying) or cells[0].kubelet
        found = [by_key[cell.key] for cell in cells]
        anomalies += (
            f"{short}, seed {cell.seed}: {line}" for cell, size in zip(cells, found, strict=True) for line in size.odd
        )
        planned.append(_summarize(short, found, totals))
    return PlannedNodes(
        study.scenario.name,
        len(study.cluster.nodes),
        terms.percent,
        tuple(planned),
        tuple(anomalies),
        weights,
    )


def class_weights(study: Study, terms: PlanTerms) -> dict[str, int]:
    """Return the weights of classes by name, empty where nodes are removed at random. Raises `InputError`."""
    names = [one.name for one in study.cluster.classes]
    for pattern, _ in terms.weights:
        if not any(fnmatchcase(name, pattern) for name in names):
            remedy = f"classes are {', '.join(names[:6])}"
            raise InputError(f"no class of nodes is called {pattern}", path="--weight", remedy=remedy)
    found = {name: weight for name in names for pattern, weight in terms.weights if fnmatchcase(name, pattern)}
    if terms.weights and not any(found.values()):
        raise InputError("no class of nodes has a weight", path="--weight", remedy="give one of them at least 1")
    return found


def group_cells(study: Study) -> dict[str, tuple[FleetCell, ...]]:
    """Return the cells of a plan by the key of the one that is sized for all of them."""
    return group_equivalent(study, study.cells)


def _size_all(study: Study, terms: PlanTerms, workers: int, listener: ProgressListener) -> Iterator[CellSize]:
    """Yield the sizes of all cells as they are found; equivalent cells are sized once."""
    same = group_cells(study)
    firsts = [cells[0] for cells in same.values()]
    for found in _size_distinct(study, firsts, terms, min(workers, len(same)), listener):
        listener.report(found.key, 1.0)
        for cell in same.get(found.key, ()):
            yield found._replace(key=cell.key)


def _size_distinct(
    study: Study, cells: Sequence[FleetCell], terms: PlanTerms, workers: int, listener: ProgressListener
) -> Iterator[CellSize]:
    """Yield the sizes of these cells as they are found."""
    if workers <= 1:
        for cell in cells:
            yield _size_cell(study, cell, terms, ProgressReporter(cell.key, listener.report))
        return
    scenario, folder = json.dumps(msgspec.to_builtins(study.scenario)), str(study.inputs.folder.absolute())
    tasks = [SizeTask(scenario, folder, cell.key, terms) for cell in cells]
    with local_executor(workers) as executor:
        yield from run_tasks(executor, size_cell, tasks, listener)


# One cell


class _Trials:
    """Trials of one cell: is this enough? Progress is estimated from the expected number of trials."""

    def __init__(self, terms: PlanTerms, report: Callable[[float], None]) -> None:
        self._terms = terms
        self._report = report
        self._done = 0
        self._expected = 0

    def expect(self, count: int) -> None:
        """Add about so many expected trials."""
        self._expected += count

    def is_enough(self, made: CellInputs, nodes: Sequence[int]) -> bool:
        """Whether no more demand is unmet on these nodes than is tolerated."""
        unmet, _ = measure_unmet(made, nodes, self._terms.patience, self._progress)
        self._done += 1
        return unmet <= self._terms.percent

    def shapes_never_run(self, made: CellInputs, nodes: Sequence[int]) -> tuple[str, ...]:
        """Return the shapes of pods that never run on these nodes."""
        return tuple(sorted(measure_unmet(made, nodes, self._terms.patience)[1]))

    def _progress(self, share: float) -> None:
        self._report(min((self._done + share) / max(self._expected, 1), _NEARLY))


def _size_cell(study: Study, cell: FleetCell, terms: PlanTerms, report: Callable[[float], None]) -> CellSize:
    """Find the least number of nodes of a cell, and what else the terms ask for."""
    made = study.build(cell)
    names = [one.name for one in study.cluster.classes]
    kinds = [node.kind for node in made.fleet.nodes]
    order, staying = removal_order(len(kinds), cell.seed), 0
    weights = class_weights(study, terms)
    if weights:
        by_kind = {kind: weights.get(name, 0) for kind, name in enumerate(names)}
        order, staying = order_by_weight(order, kinds, by_kind)
    alone = sorted(set(kinds)) if terms.by_class else []
    trials = _Trials(terms, report)
    trials.expect(sum(map(_estimate_trials, [len(order), *(kinds.count(kind) for kind in alone)])))
    trials.expect(_GROWTH_TRIALS if terms.growth else 0)
    growing = GrowingWorkload(made.workload, cell.seed)
    growth = None
    if terms.growth:
        growth = find_most_growth(
            lambda percent: trials.is_enough(made._replace(workload=growing.grow(percent)), order)
        )
    try:
        least, odd = find_least_nodes(
            lambda count: trials.is_enough(made, order[:count]), len(order), max(staying - 1, 0)
        )
    except NotEnoughError:
        return CellSize(cell.key, len(order), enough=False, never=trials.shapes_never_run(made, order), growth=growth)
    lines = [f"{count} nodes contradict {least}" for count in odd]
    fewer: list[tuple[str, int]] = []
    if weights:
        gone = Counter(kinds[node] for node in order[least:])
        fewer = [(name, gone[kind]) for kind, name in enumerate(names) if weights.get(name)]
    for kind in alone:
        rest = [node for node in order if kinds[node] != kind]
        own = [node for node in order if kinds[node] == kind]
        # Beside other classes even none of this one may be enough; alone at least one node is needed.
        kept, odd = find_least_nodes(partial(_is_class_enough, trials, made, rest, own), len(own), -1 if rest else 0)
        lines += [f"{count} nodes of class {names[kind]} contradict {kept}" for count in odd]
        fewer.append((names[kind], len(own) - kept))
    return CellSize(cell.key, least, tuple(lines), growth=growth, fewer=tuple(fewer))


def _is_class_enough(trials: _Trials, made: CellInputs, rest: list[int], own: list[int], count: int) -> bool:
    """Whether `count` nodes of a class are enough beside the rest; all of them always are."""
    return count == len(own) or trials.is_enough(made, rest + own[:count])


def _estimate_trials(nodes: int) -> int:
    """Return about how many trials a bisection takes."""
    return nodes.bit_length() + _PROBES


def _varying_parts(by_name: dict[str, list[FleetCell]]) -> set[int]:
    """Return which parts of the configurations' names differ among them."""
    parts = [name.split(" · ") for name in by_name]
    return {place for place in range(4) if len({one[place] for one in parts}) > 1}


def _summarize(name: str, found: Sequence[CellSize], totals: Counter[str]) -> PlannedConfiguration:
    """Summarize the sizes of a configuration over its seeds."""
    counts = tuple(one.least for one in found)
    ordered = sorted(counts)
    never = sorted({shape for one in found for shape in one.never})
    enough = all(one.enough for one in found)
    growth = tuple(one.growth for one in found if one.growth is not None)
    middle = round(median(counts))
    classes = tuple(_summarize_class(kind, totals[kind], found) for kind, _ in found[0].fewer) if enough else ()
    return PlannedConfiguration(
        name, middle, ordered[0], ordered[-1], _p90(ordered), counts, enough, tuple(never), growth, classes
    )


def _summarize_class(name: str, nodes: int, found: Sequence[CellSize]) -> PlannedClass:
    by_seed = tuple(dict(one.fewer)[name] for one in found)
    ordered = sorted(by_seed, reverse=True)
    middle = round(median(by_seed))
    return PlannedClass(name, nodes, middle, ordered[-1], ordered[0], _p90(ordered), by_seed)


def _p90(ordered: Sequence[int]) -> int:
    """Return the first value, in this order, that is enough for nine of ten seeds."""
    return ordered[-(-len(ordered) * 9 // 10) - 1]


def describe_plan(plan: PlannedNodes) -> Iterator[str]:
    """Yield a sentence for each configuration, and for each class of nodes that was asked about."""
    for one in plan.configurations:
        if not one.enough:
            shapes = f"; on none of them ran pods of {'; '.join(one.never[:3])}" if one.never else ""
            yield f"{one.name}: {plan.nodes} nodes are not enough{shapes}"
            continue
        fewer = plan.nodes - one.median
        yield f"{one.name}: {one.median} nodes ({one.least} to {one.most}), {fewer} fewer than the scenario has"
        for kind in one.classes:
            rest = "" if plan.weights else ", if all others stay"
            yield f"{one.name}: {kind.fewer} of the {kind.nodes} nodes of class {kind.name} fewer " \
                  f"({kind.least} to {kind.most}){rest}"  # fmt: skip
        if one.growth:
            least, most = min(one.growth), max(one.growth)
            yield f"{one.name}: all {plan.nodes} nodes take {round(median(one.growth))} % more pods ({least} to {most})"
