"""The least number of nodes: for every configuration and seed, as few as leave no more unmet than is tolerated.

Nodes go away in a random order of the seed, the same for all configurations, of all classes alike, by weights of
classes, or of one class after the other while all others stay. Bisection finds how many may go.
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
from podslice.fleet.scenario.plan_file import PlannedClass, PlannedConfiguration, PlannedNodes
from podslice.fleet.scenario.sizing import NotEnoughError, least_nodes, removal_order, unmet_share, weighted_order
from podslice.fleet.scenario.twins import groups
from podslice.fleet.traces.growth import GrowingWorkload, most_growth
from podslice.fleet.workers.pool import local_executor, run_tasks, study_of
from podslice.fleet.workers.shares import ShareListener, ShareTeller
from podslice.values.errors import InputError, PodsliceError

_NEARLY = 0.99
"""The share of a cell that is not done, when more was asked than was thought."""
_PROBES, _GROWTH_QUESTIONS = 3, 10
"""About how many questions there are beside those of bisection, and about growth."""


class PlanTerms(NamedTuple):
    """What is asked: what may stay unmet, in percent, and after how many milliseconds demand counts as unmet. `growth`:
    also how many more pods would do. `by_class`: also how many nodes of each class may go while all others stay.
    `weights`: of so many nodes that go so many are of a class, by the pattern of its name; other classes stay."""

    percent: float
    patience: int
    growth: bool = False
    by_class: bool = False
    weights: tuple[tuple[str, int], ...] = ()


class SizeTask(NamedTuple):
    """A cell whose least number of nodes is asked for. `scenario`: JSON; `folder`: where its files are."""

    scenario: str
    folder: str
    key: str
    terms: PlanTerms


class CellSize(NamedTuple):
    """What a cell needs: the least number of nodes, numbers that contradict it (a line each), whether all nodes are
    enough, and pods that never ran if not, by shape; or a line about why there is none. `growth`: in percent, if it was
    asked for. `fewer`: nodes that may go, by class, if that was asked for."""

    key: str
    least: int
    odd: tuple[str, ...] = ()
    enough: bool = True
    never: tuple[str, ...] = ()
    problem: str = ""
    growth: int | None = None
    fewer: tuple[tuple[str, int], ...] = ()


def size_cell(task: SizeTask) -> CellSize:
    """Find it. What a worker does."""
    try:
        study = study_of(task.scenario, task.folder)
        cell = next(one for one in study.cells if one.key == task.key)
        return _sized(study, cell, task.terms, ShareTeller(task.key))
    except PodsliceError as error:
        return CellSize(task.key, 0, problem=str(error))


class PlanListener(ShareListener, Protocol):
    """Who wants to know how far a plan is."""

    def done(self, key: str) -> None:
        """All of a configuration is found."""


def plan_nodes(study: Study, terms: PlanTerms, listener: PlanListener, *, workers: int = 1) -> PlannedNodes:
    """What every configuration needs; the same however many processes find it. Raises `InputError`,
    `ClassStartError`."""
    weights = weights_of(study, terms)
    by_name: dict[str, list[FleetCell]] = {}
    for cell in study.cells:
        parts = (cell.alternative, cell.configuration, cell.scheduler, cell.transform)
        by_name.setdefault(" · ".join(parts), []).append(cell)
    name_of = {cell.key: name for name, cells in by_name.items() for cell in cells}
    left = Counter(name_of.values())
    sizes_found: dict[str, CellSize] = {}
    for size in _all_sizes(study, terms, workers, listener):
        if size.problem:
            raise InputError(f"cell {size.key}: {size.problem}")
        sizes_found[size.key] = size
        left[name_of[size.key]] -= 1
        if not left[name_of[size.key]]:
            listener.done(name_of[size.key])
    shared = _shared_parts(by_name)
    totals = Counter(study.cluster.classes[node.kind].name for node in study.cluster.nodes)
    anomalies: list[str] = []
    planned = []
    for name, cells in by_name.items():
        short = " · ".join(part for place, part in enumerate(name.split(" · ")) if place in shared) or cells[0].kubelet
        found = [sizes_found[cell.key] for cell in cells]
        anomalies += (
            f"{short}, seed {cell.seed}: {line}" for cell, size in zip(cells, found, strict=True) for line in size.odd
        )
        planned.append(_planned(short, found, totals))
    return PlannedNodes(
        study.scenario.name,
        len(study.cluster.nodes),
        terms.percent,
        tuple(planned),
        tuple(anomalies),
        weights,
    )


def weights_of(study: Study, terms: PlanTerms) -> dict[str, int]:
    """The weights of classes of nodes by name; none where they go away at random. Raises `InputError`."""
    names = [one.name for one in study.cluster.classes]
    for pattern, _ in terms.weights:
        if not any(fnmatchcase(name, pattern) for name in names):
            remedy = f"classes are {', '.join(names[:6])}"
            raise InputError(f"no class of nodes is called {pattern}", path="--weight", remedy=remedy)
    found = {name: weight for name in names for pattern, weight in terms.weights if fnmatchcase(name, pattern)}
    if terms.weights and not any(found.values()):
        raise InputError("no class of nodes has a weight", path="--weight", remedy="give one of them at least 1")
    return found


def sized_cells(study: Study) -> dict[str, tuple[FleetCell, ...]]:
    """The cells of a plan by the key of the one that is looked at for all of them."""
    return groups(study, study.cells)


def _all_sizes(study: Study, terms: PlanTerms, workers: int, listener: ShareListener) -> Iterator[CellSize]:
    """Of all cells, as they come; those that come to the same are looked at once."""
    same = sized_cells(study)
    firsts = [cells[0] for cells in same.values()]
    for found in _found_sizes(study, firsts, terms, min(workers, len(same)), listener):
        listener.share(found.key, 1.0)
        for cell in same.get(found.key, ()):
            yield found._replace(key=cell.key)


def _found_sizes(
    study: Study, cells: Sequence[FleetCell], terms: PlanTerms, workers: int, listener: ShareListener
) -> Iterator[CellSize]:
    if workers <= 1:
        for cell in cells:
            yield _sized(study, cell, terms, ShareTeller(cell.key, listener.share))
        return
    scenario, folder = json.dumps(msgspec.to_builtins(study.scenario)), str(study.inputs.folder.absolute())
    tasks = [SizeTask(scenario, folder, cell.key, terms) for cell in cells]
    with local_executor(workers) as executor:
        yield from run_tasks(executor, size_cell, tasks, listener)


# One cell


class _Asking:
    """Questions about one cell: is this enough? How far they are is told by about how many there will be."""

    def __init__(self, terms: PlanTerms, told: Callable[[float], None]) -> None:
        self._terms = terms
        self._told = told
        self._asked = 0
        self._expected = 0

    def expect(self, questions: int) -> None:
        """So many more will come, or about so many."""
        self._expected += questions

    def suffice(self, made: CellInputs, nodes: Sequence[int]) -> bool:
        """True where no more stays unmet on these nodes than is tolerated."""
        unmet, _ = unmet_share(made, nodes, self._terms.patience, self._progress)
        self._asked += 1
        return unmet <= self._terms.percent

    def never(self, made: CellInputs, nodes: Sequence[int]) -> tuple[str, ...]:
        """Shapes of pods that never run on these nodes."""
        return tuple(sorted(unmet_share(made, nodes, self._terms.patience)[1]))

    def _progress(self, share: float) -> None:
        self._told(min((self._asked + share) / max(self._expected, 1), _NEARLY))


def _sized(study: Study, cell: FleetCell, terms: PlanTerms, told: Callable[[float], None]) -> CellSize:
    made = study.build(cell)
    names = [one.name for one in study.cluster.classes]
    kinds = [node.kind for node in made.fleet.nodes]
    order, staying = removal_order(len(kinds), cell.seed), 0
    weights = weights_of(study, terms)
    if weights:
        by_kind = {kind: weights.get(name, 0) for kind, name in enumerate(names)}
        order, staying = weighted_order(order, kinds, by_kind)
    alone = sorted(set(kinds)) if terms.by_class else []
    asking = _Asking(terms, told)
    asking.expect(sum(map(_questions, [len(order), *(kinds.count(kind) for kind in alone)])))
    asking.expect(_GROWTH_QUESTIONS if terms.growth else 0)
    growing = GrowingWorkload(made.workload, cell.seed)
    growth = None
    if terms.growth:
        growth = most_growth(lambda percent: asking.suffice(made._replace(workload=growing.by(percent)), order))
    try:
        least, odd = least_nodes(lambda count: asking.suffice(made, order[:count]), len(order), max(staying - 1, 0))
    except NotEnoughError:
        return CellSize(cell.key, len(order), enough=False, never=asking.never(made, order), growth=growth)
    lines = [f"{count} nodes contradict {least}" for count in odd]
    fewer: list[tuple[str, int]] = []
    if weights:
        gone = Counter(kinds[node] for node in order[least:])
        fewer = [(name, gone[kind]) for kind, name in enumerate(names) if weights.get(name)]
    for kind in alone:
        rest = [node for node in order if kinds[node] != kind]
        own = [node for node in order if kinds[node] == kind]
        kept, odd = least_nodes(partial(_is_enough, asking, made, rest, own), len(own), -1 if rest else 0)
        lines += [f"{count} nodes of class {names[kind]} contradict {kept}" for count in odd]
        fewer.append((names[kind], len(own) - kept))
    return CellSize(cell.key, least, tuple(lines), growth=growth, fewer=tuple(fewer))


def _is_enough(asking: _Asking, made: CellInputs, rest: list[int], own: list[int], count: int) -> bool:
    """True where so many of a class' nodes do beside the rest; all of them do."""
    return count == len(own) or asking.suffice(made, rest + own[:count])


def _questions(nodes: int) -> int:
    """About how many questions bisection has."""
    return nodes.bit_length() + _PROBES


def _shared_parts(by_name: dict[str, list[FleetCell]]) -> set[int]:
    parts = [name.split(" · ") for name in by_name]
    return {place for place in range(4) if len({one[place] for one in parts}) > 1}


def _planned(name: str, found: Sequence[CellSize], totals: Counter[str]) -> PlannedConfiguration:
    counts = tuple(one.least for one in found)
    ordered = sorted(counts)
    never = sorted({shape for one in found for shape in one.never})
    enough = all(one.enough for one in found)
    growth = tuple(one.growth for one in found if one.growth is not None)
    middle = round(median(counts))
    classes = tuple(_of_class(kind, totals[kind], found) for kind, _ in found[0].fewer) if enough else ()
    return PlannedConfiguration(
        name, middle, ordered[0], ordered[-1], _nine_of_ten(ordered), counts, enough, tuple(never), growth, classes
    )


def _of_class(name: str, nodes: int, found: Sequence[CellSize]) -> PlannedClass:
    by_seed = tuple(dict(one.fewer)[name] for one in found)
    ordered = sorted(by_seed, reverse=True)
    middle = round(median(by_seed))
    return PlannedClass(name, nodes, middle, ordered[-1], ordered[0], _nine_of_ten(ordered), by_seed)


def _nine_of_ten(ordered: Sequence[int]) -> int:
    """The first of them that nine of ten do not exceed in their order."""
    return ordered[-(-len(ordered) * 9 // 10) - 1]


def sizes(plan: PlannedNodes) -> Iterator[str]:
    """What a plan says, a sentence for each configuration, and for each class of nodes that was asked about."""
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
