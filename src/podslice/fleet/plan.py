"""The least number of nodes: for every configuration and seed, as few as leave no more unmet than is tolerated.

Nodes go away in a random order of the seed, the same for all configurations, and bisection finds how many may. Packing
is not monotone: one node more can hold less. So neighbours of what is found are looked at too, and what is odd is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from podslice.core.fleet.nodes import Fleet
from podslice.core.fleet.run import run_cell
from podslice.core.fleet.streams import shuffle, stream
from podslice.core.fleet.workload import NEVER, Workload
from podslice.fleet.cells import CellInputs, FleetCell, Study
from podslice.fleet.plan_file import PlannedConfiguration, PlannedNodes

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
    """What may stay unmet, in percent, and after how many milliseconds demand counts as unmet."""

    percent: float
    patience: int


def plan_nodes(study: Study, tolerated: Tolerated, told: Callable[[str], None]) -> PlannedNodes:
    """What every configuration needs. Raises `InputError`, `ClassStartError`."""
    by_name: dict[str, list[FleetCell]] = {}
    for cell in study.cells:
        parts = (cell.alternative, cell.configuration, cell.scheduler, cell.transform)
        by_name.setdefault(" · ".join(parts), []).append(cell)
    shared = _shared_parts(by_name)
    anomalies: list[str] = []
    planned = []
    for name, cells in by_name.items():
        short = " · ".join(part for place, part in enumerate(name.split(" · ")) if place in shared) or cells[0].kubelet
        planned.append(_planned(study, short, cells, tolerated, anomalies))
        told(name)
    return PlannedNodes(
        study.scenario.name, len(study.cluster.nodes), tolerated.percent, tuple(planned), tuple(anomalies)
    )


def _shared_parts(by_name: dict[str, list[FleetCell]]) -> set[int]:
    parts = [name.split(" · ") for name in by_name]
    return {place for place in range(4) if len({one[place] for one in parts}) > 1}


def _planned(
    study: Study, name: str, cells: list[FleetCell], tolerated: Tolerated, anomalies: list[str]
) -> PlannedConfiguration:
    found, enough = [], True
    never: Counter[str] = Counter()
    for cell in cells:
        made = study.build(cell)
        order = removal_order(len(made.fleet.nodes), cell.seed)

        def suffices(count: int, made: CellInputs = made, order: list[int] = order) -> bool:
            return unmet_share(made, order[:count], tolerated.patience)[0] <= tolerated.percent

        try:
            least, odd = least_nodes(suffices, len(order))
        except NotEnoughError:
            least, odd, enough = len(order), (), False
            never += unmet_share(made, order, tolerated.patience)[1]
        found.append(least)
        anomalies += (f"{name}, seed {cell.seed}: {count} nodes contradict {least}" for count in odd)
    ordered = sorted(found)
    p90 = ordered[-(-len(ordered) * 9 // 10) - 1]
    return PlannedConfiguration(
        name, round(median(found)), ordered[0], ordered[-1], p90, tuple(found), enough, tuple(sorted(never))
    )


def sizes(plan: PlannedNodes) -> Iterator[str]:
    """What a plan says, a sentence for each configuration."""
    for one in plan.configurations:
        if not one.enough:
            shapes = f"; on none of them ran pods of {'; '.join(one.never[:3])}" if one.never else ""
            yield f"{one.name}: {plan.nodes} nodes are not enough{shapes}"
            continue
        fewer = plan.nodes - one.median
        yield f"{one.name}: {one.median} nodes ({one.least} to {one.most}), {fewer} fewer than the scenario has"
