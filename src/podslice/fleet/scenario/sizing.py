"""Whether a subset of the nodes is enough for a workload, and in which order nodes are removed.

Packing is not monotone: one more node can hold less. So neighbours of the number that bisection finds are tried too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from msgspec.structs import replace

from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.streams import shuffle, stream
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.scenario.cells import CellInputs
from podslice.values.errors import PodsliceError

_PROBES = 2


class NotEnoughError(PodsliceError, ValueError):
    """Raised when all nodes of the scenario are not enough."""


def measure_unmet(
    made: CellInputs,
    nodes: Sequence[int],
    patience: int,
    progress: Callable[[float], None] | None = None,
) -> tuple[float, Counter[str]]:
    """Simulate some of the nodes; return unmet demand in percent, and the shapes of pods that never ran.

    Demand is unmet if it did not run within `patience` milliseconds of its arrival. `progress` as of `run_cell`.
    """
    kept = sorted(nodes)
    fleet = Fleet(made.fleet.classes, tuple(made.fleet.nodes[number] for number in kept))
    options = replace(made.options, metrics=(), events=(), cpus=False, sample_ms=0, sample_share=0)
    work = restrict_to_nodes(made.workload, kept)
    bound = run_cell(fleet, work, options, made.seed, progress=progress).pods.bound
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


def restrict_to_nodes(work: Workload, kept: Sequence[int]) -> Workload:
    """Return the pods for a subset of the nodes: DaemonSets' pods of other nodes are left out, all others bound to
    other nodes are placed by the scheduler."""
    places = {number: place for place, number in enumerate(kept)}
    pods = [
        pod
        for pod, node in enumerate(work.node)
        if node == NEVER or node in places or work.shapes[work.shape[pod]].owner != "daemonset"
    ]
    shape, arrival, length = ([column[pod] for pod in pods] for column in (work.shape, work.arrival, work.length))
    node = [places.get(work.node[pod], NEVER) for pod in pods]
    initial = {
        place: work.initial[pod] for place, pod in enumerate(pods) if pod in work.initial and work.node[pod] in places
    }
    return Workload.of(work.shapes, shape, arrival, length, node, initial)


def bisect_first(low: int, high: int, beyond: Callable[[int], bool]) -> int:
    """Return by bisection the first number after `low` that is `beyond`; `high` is assumed to be."""
    while high - low > 1:
        middle = (low + high) // 2
        if beyond(middle):
            high = middle
        else:
            low = middle
    return high


def find_least_nodes(enough: Callable[[int], bool], most: int, short: int = 0) -> tuple[int, tuple[int, ...]]:
    """Return the least number that is enough, and numbers that contradict it: smaller ones that are enough too, greater
    ones that are not.

    `most`: all nodes; `short`: a number known to be too small. Raises `NotEnoughError`.
    """
    known: dict[int, bool] = {}

    def ask(count: int) -> bool:
        if count not in known:
            known[count] = enough(count)
        return known[count]

    if not ask(most):
        raise NotEnoughError
    high = bisect_first(short, most, ask)
    # Bisection assumed that more nodes are never worse: a few neighbours are tried to see whether that holds here.
    odd = [count for count in range(max(short + 1, high - 1 - _PROBES), high - 1) if ask(count)]
    odd += [count for count in range(high + 1, min(most, high + _PROBES) + 1) if not ask(count)]
    return high, tuple(odd)


def removal_order(nodes: int, seed: int) -> list[int]:
    """Return the nodes in a random order of the seed; the last ones are removed first."""
    order = list(range(nodes))
    shuffle(stream(seed, "plan"), order)
    return order


def order_by_weight(order: Sequence[int], kinds: Sequence[int], weights: Mapping[int, int]) -> tuple[list[int], int]:
    """Return the nodes in such an order with classes (`kinds`, by node) removed in proportion to their weights, and the
    number of nodes that are never removed.

    Classes without weight are never removed. Within a class `order` decides; when a class is used up, the others share
    its part.
    """
    staying = [node for node in order if not weights.get(kinds[node])]
    going = {kind: [node for node in order if kinds[node] == kind] for kind, weight in weights.items() if weight}
    gone = dict.fromkeys(going, 0)
    first: list[int] = []
    while any(going.values()):
        # Exact fractions: rounding would decide between classes that are equally far.
        kind = min(
            (kind for kind in going if going[kind]), key=lambda one: (Fraction(gone[one] + 1, weights[one]), one)
        )
        gone[kind] += 1
        first.append(going[kind].pop())
    return [*staying, *reversed(first)], len(staying)
