"""The result of a cell: integers and columns, so that it is the same bytes on every machine.

Rates are divided where they are printed: `summary` has numerators and denominators.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import msgspec

from podslice.values.cpuset import Bits


class RefusalCount(NamedTuple):
    """Number of refused attempts of a shape on nodes of a class (both by position) with one reason, and the first pod
    refused so."""

    shape: int
    kind: int
    reason: str
    attempts: int
    example: int


class PodColumns(NamedTuple):
    """The history of pods, by number, in `array('q')`; times in milliseconds, -1 for never.

    - `first_try`: when the scheduler first tried the pod; `bound`: when it was first bound; `ended`.
    - `node`: where it ran last; `attempts`: how many of its bindings reached a node.
    - `verdict`: 0 ran, 1 pending (no node fits), 2 looping, 3 failed (its owner gave up), 4 preempted.
    - `reason`: position in `CellResult.reasons` of its last refusal.
    - `cpus`: mask of the CPUs it owned when it was bound, `numa`: mask of the NUMA nodes of its CPUs, memory and
      devices; empty unless asked for.
    """

    first_try: array[int]
    bound: array[int]
    ended: array[int]
    node: array[int]
    attempts: array[int]
    verdict: array[int]
    reason: array[int]
    cpus: list[Bits]
    numa: list[Bits]


class NodeColumns(NamedTuple):
    """The final state of nodes, by number, in `array('q')`.

    - `state`: number of the node's state in this cell (equal states of a class have equal numbers).
    - `pods`, `cpu_milli`, `memory`, `gpu_milli`: booked by the scheduler.
    - `assignable`: CPUs that can still be owned; `stranded`: those that remain when the node is filled with the
      workload's shapes, smallest first.
    - `expected`, `blind`: CPUs times pods, expected stranded by decisions and by sums (`CellResult.popular` is the
      divisor).
    - `largest`: the most CPUs one Guaranteed container could still get; `holes`: how many more of the smallest usual
      pods fit.
    - `shared_milli`: millicores requested by pods without CPUs of their own; `shared_cpus`: CPUs that they share.
    """

    state: array[int]
    pods: array[int]
    cpu_milli: array[int]
    memory: array[int]
    gpu_milli: array[int]
    assignable: array[int]
    stranded: array[int]
    expected: array[int]
    blind: array[int]
    largest: array[int]
    holes: array[int]
    shared_milli: array[int]
    shared_cpus: array[int]


class CellResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """- `summary`: integers by name (docs/fleet.md has the table).
    - `series`: columns by name, one entry for each sample, `at_ms` and `arrived_milli` among them.
    - `reasons`: texts of refusals, "" first.
    - `popular`: pods whose shapes count for fragmentation.
    - `work`: questions that were asked, computed and verified; not a result, as it depends on the available memory."""

    summary: dict[str, int]
    series: dict[str, array[int]]
    refusals: tuple[RefusalCount, ...]
    reasons: tuple[str, ...]
    popular: int
    pods: PodColumns
    nodes: NodeColumns
    work: dict[str, int] = {}
