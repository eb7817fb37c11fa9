"""The least number of nodes: for every configuration and seed, as few as leave no more unmet than is tolerated.

Nodes go away in a random order of the seed, the same for all configurations, and bisection finds how many may. Packing
is not monotone: one node more can hold less. So neighbours of what is found are looked at too, and what is odd is said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.core.errors import InputError, PodsliceError
from podslice.core.fleet.nodes import Fleet
from podslice.core.fleet.run import run_cell
from podslice.core.fleet.streams import shuffle, stream
from podslice.core.fleet.workload import NEVER, Workload
from podslice.fleet.cells import CellInputs, FleetCell, Study
from podslice.fleet.growth import GrowingWorkload, most_growth
from podslice.fleet.plan_file import PlannedConfiguration, PlannedNodes
from podslice.fleet.pool import local_executor, run_tasks, study_of
from podslice.fleet.twins import groups

_PROBES = 2


class NotEnoughError(ValueError):
    """All nodes of the scenario are not enough."""


def unmet_share(made: CellInputs, nodes: Sequence[int], patience: int) -> tuple[float, Counter[str]]:
    """Demand that did not run within `patience` milliseconds of its arrival, in percent, on some of the nodes; and the
    shapes of pods that never ran."""
    kept = sorted(nodes)
    fleet = Fleet(made.fleet.classes, tuple(made.fleet.nodes[number] for number in kept))
    options = replace(made.options, metrics=(), events=(), cpus=False, sample_ms=0, sample_share=0)
    work = on_nodes(made.workload, kept)
    bound = run_cell(fleet, work, options, made.seed).pods.bound
    by_gpu = any(shape.gpus for shape in work.shapes)
    requests = [shape.gpu_request if by_gpu else shape.cpu_request for shape in work.shapes]
    asked = sum(requests[shape] for shape in work.shape)
    never: Counter[str] = Counter()
    unmet = 0
    for pod, shape in enumerate(work.shape):
        if bound[pod] < 0:
            never[work.shapes[shape].name] += 1
        if bound[pod] < 0 or bound[pod] - work.arrival[pod] > patience:
            unmet += requests[shape]
    return (100 * unmet / asked if asked else 0.0), never


def on_nodes(work: Workload, kept: Sequence[int]) -> Workload:
    """The pods with some of the nodes only: those of DaemonSets go with their nodes, for others the scheduler
    decides."""
    places = {number: place for place, number in enumerate(kept)}
    pods = [
        pod
        for pod, node in enumerate(work.node)
        if node == NEVER or node in places or work.shapes[work.shape[pod]].owner != "daemonset"
    ]
    shape, arrival, length = ([column[pod] for pod in pods] for column in (work.shape, work.arrival, work.length))
    node = [places.get(work.node[pod], NEVER) for pod in pods]
    there = {place: work.there[pod] for place, pod in enumerate(pods) if pod in work.there and work.node[pod] in places}
    return Workload.of(work.shapes, shape, arrival, length, node, there)


def least_nodes(enough: Callable[[int], bool], most: int) -> tuple[int, tuple[int, ...]]:
    """The least number that is enough, and smaller ones that are enough too although a greater one is not. Raises
    `NotEnoughError`."""
    known: dict[int, bool] = {}

    def ask(count: int) -> bool:
        if count not in known:
            known[count] = enough(count)
        return known[count]

    if not ask(most):
        raise NotEnoughError
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if ask(middle):
            high = middle
        else:
            low = middle
    odd = [count for count in range(max(1, high - 1 - _PROBES), high - 1) if ask(count)]
    odd += [count for count in range(high + 1, min(most, high + _PROBES) + 1) if not ask(count)]
    return high, tuple(odd)


def removal_order(nodes: int, seed: int) -> list[int]:
    """Nodes in the order in which they stay: the last ones go first."""
    order = list(range(nodes))
    shuffle(stream(seed, "plan"), order)
    return order


class Tolerated(NamedTuple):
    """What may stay unmet, in percent, and after how many milliseconds demand counts as unmet. `growth`: it is asked
    too how many more pods would do."""

    percent: float
    patience: int
    growth: bool = False


class SizeTask(NamedTuple):
    """A cell whose least number of nodes is asked for. `scenario`: JSON; `folder`: where its files are."""

    scenario: str
    folder: str
    key: str
    tolerated: Tolerated


class CellSize(NamedTuple):
    """What a cell needs: the least number of nodes, numbers that contradict it, whether all nodes are enough, and pods
    that never ran if not, by shape; or a line about why there is none. `growth`: in percent, if it was asked for."""

    key: str
    least: int
    odd: tuple[int, ...] = ()
    enough: bool = True
    never: tuple[str, ...] = ()
    problem: str = ""
    growth: int | None = None


def size_cell(task: SizeTask) -> CellSize:
    """Find it. What a worker does."""
    try:
        study = study_of(task.scenario, task.folder)
        return _sized(study, next(one for one in study.cells if one.key == task.key), task.tolerated)
    except PodsliceError as error:
        return CellSize(task.key, 0, problem=str(error))


def plan_nodes(study: Study, tolerated: Tolerated, told: Callable[[str], None], *, workers: int = 1) -> PlannedNodes:
    """What every configuration needs; the same however many processes find it. Raises `InputError`,
    `ClassStartError`."""
    by_name: dict[str, list[FleetCell]] = {}
    for cell in study.cells:
        parts = (cell.alternative, cell.configuration, cell.scheduler, cell.transform)
        by_name.setdefault(" · ".join(parts), []).append(cell)
    name_of = {cell.key: name for name, cells in by_name.items() for cell in cells}
    left = Counter(name_of.values())
    sizes_found: dict[str, CellSize] = {}
    for size in _all_sizes(study, tolerated, workers):
        if size.problem:
            raise InputError(f"cell {size.key}: {size.problem}")
        sizes_found[size.key] = size
        left[name_of[size.key]] -= 1
        if not left[name_of[size.key]]:
            told(name_of[size.key])
    shared = _shared_parts(by_name)
    anomalies: list[str] = []
    planned = []
    for name, cells in by_name.items():
        short = " · ".join(part for place, part in enumerate(name.split(" · ")) if place in shared) or cells[0].kubelet
        found = [sizes_found[cell.key] for cell in cells]
        anomalies += (
            f"{short}, seed {cell.seed}: {count} nodes contradict {size.least}"
            for cell, size in zip(cells, found, strict=True)
            for count in size.odd
        )
        planned.append(_planned(short, found))
    return PlannedNodes(
        study.scenario.name, len(study.cluster.nodes), tolerated.percent, tuple(planned), tuple(anomalies)
    )


def _all_sizes(study: Study, tolerated: Tolerated, workers: int) -> Iterator[CellSize]:
    """Of all cells, as they come; those that come to the same are looked at once."""
    same = groups(study, study.cells)
    for found in _found_sizes(study, [cells[0] for cells in same.values()], tolerated, min(workers, len(same))):
        for cell in same.get(found.key, ()):
            yield found._replace(key=cell.key)


def _found_sizes(study: Study, cells: Sequence[FleetCell], tolerated: Tolerated, workers: int) -> Iterator[CellSize]:
    if workers <= 1:
        yield from (_sized(study, cell, tolerated) for cell in cells)
        return
    scenario, folder = json.dumps(msgspec.to_builtins(study.scenario)), str(study.inputs.folder.absolute())
    tasks = [SizeTask(scenario, folder, cell.key, tolerated) for cell in cells]
    with local_executor(workers) as executor:
        yield from run_tasks(executor, size_cell, tasks, lambda: None)


def _sized(study: Study, cell: FleetCell, tolerated: Tolerated) -> CellSize:
    made = study.build(cell)
    order = removal_order(len(made.fleet.nodes), cell.seed)

    def suffices(count: int) -> bool:
        return unmet_share(made, order[:count], tolerated.patience)[0] <= tolerated.percent

    growing = GrowingWorkload(made.workload, cell.seed)

    def carries(percent: int) -> bool:
        more = made._replace(workload=growing.by(percent))
        return unmet_share(more, order, tolerated.patience)[0] <= tolerated.percent

    growth = most_growth(carries) if tolerated.growth else None
    try:
        return CellSize(cell.key, *least_nodes(suffices, len(order)), growth=growth)
    except NotEnoughError:
        never = unmet_share(made, order, tolerated.patience)[1]
        return CellSize(cell.key, len(order), (), enough=False, never=tuple(sorted(never)), growth=growth)


def _shared_parts(by_name: dict[str, list[FleetCell]]) -> set[int]:
    parts = [name.split(" · ") for name in by_name]
    return {place for place in range(4) if len({one[place] for one in parts}) > 1}


def _planned(name: str, found: Sequence[CellSize]) -> PlannedConfiguration:
    counts = tuple(one.least for one in found)
    ordered = sorted(counts)
    p90 = ordered[-(-len(ordered) * 9 // 10) - 1]
    never = sorted({shape for one in found for shape in one.never})
    enough = all(one.enough for one in found)
    growth = tuple(one.growth for one in found if one.growth is not None)
    middle = round(median(counts))
    return PlannedConfiguration(name, middle, ordered[0], ordered[-1], p90, counts, enough, tuple(never), growth)


def sizes(plan: PlannedNodes) -> Iterator[str]:
    """What a plan says, a sentence for each configuration."""
    for one in plan.configurations:
        if not one.enough:
            shapes = f"; on none of them ran pods of {'; '.join(one.never[:3])}" if one.never else ""
            yield f"{one.name}: {plan.nodes} nodes are not enough{shapes}"
            continue
        fewer = plan.nodes - one.median
        yield f"{one.name}: {one.median} nodes ({one.least} to {one.most}), {fewer} fewer than the scenario has"
        if one.growth:
            least, most = min(one.growth), max(one.growth)
            yield f"{one.name}: all {plan.nodes} nodes take {round(median(one.growth))} % more pods ({least} to {most})"
