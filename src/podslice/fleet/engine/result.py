"""What a cell comes to: integers and columns, so that it is the same bytes on every machine.

Rates are divided where they are shown: `summary` has numerators and denominators.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import msgspec

from podslice.values.cpuset import Bits


class RefusalCount(NamedTuple):
    """Refused attempts of a shape on nodes of a class (both by position) for a reason, and the first such pod."""

    shape: int
    kind: int
    reason: str
    attempts: int
    example: int


class PodColumns(NamedTuple):
    """What became of pods, by number, in `array('q')`; times in milliseconds, -1 for never.

    `first_try`: the scheduler looked first. `bound`: it ran from then on. `ended`. `node`: where it ran last.
    `attempts`: how many came to a node. `verdict`: 0 ran, 1 pending (no node fits), 2 looping, 3 failed (its
    owner gave up), 4 preempted. `reason`: position in `CellResult.reasons` of its last refusal. `cpus`: what it owned
    when it was bound, and `numa`: the NUMA nodes of its CPUs, memory and devices; empty unless asked for.
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
    """The end state of nodes, by number, in `array('q')`.

    `state`: number of the node's state in this cell (equal states of a class, equal numbers). `pods`, `cpu_milli`,
    `memory`, `gpu_milli`: booked by the scheduler. `assignable`: CPUs that can still be owned. `stranded`: those of
    them that are left when the node is filled with the workload's shapes, smallest first. `expected`, `blind`: CPUs
    times pods, expected stranded by decisions and by sums (`CellResult.popular` is the divisor). `largest`: the most
    CPUs one Guaranteed container could still get. `holes`: how many more of the smallest usual pods get in.
    `shared_milli`, `shared_cpus`: milli CPUs that pods without CPUs of their own ask for, and CPUs that they share.
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
    """`summary`: integers by name (docs/fleet.md has the table). `series`: columns by name, one entry for each sample,
    `at_ms` and `arrived_milli` among them. `popular`: pods whose shapes count for fragmentation. `reasons`: texts of
    refusals, "" first. `work`: questions that were asked, computed and verified; not a result, as it depends on the
    memory there was."""

    summary: dict[str, int]
    series: dict[str, array[int]]
    refusals: tuple[RefusalCount, ...]
    reasons: tuple[str, ...]
    popular: int
    pods: PodColumns
    nodes: NodeColumns
    work: dict[str, int] = {}
