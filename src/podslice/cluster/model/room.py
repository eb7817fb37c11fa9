"""The fragmentation of free CPUs, counted for all nodes at once.

CPUs are counted by NUMA node, for pods that must be on one. It is an upper bound: half free cores, memory and devices
can make a node refuse what the count allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from podslice.cluster.model.columns import NO_KIND, NodeTable

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of pods, in CPUs, for which room is counted."""


class Room(NamedTuple):
    """The room on nodes that take pods.

    - `nodes`: their number. `cpus`: CPUs that can be exclusive. `free`: those that are free.
    - `largest`: sum of the free CPUs on each node's best NUMA node.
    - `pods`, `usable`: by `SIZES`, how many such pods fit on single NUMA nodes, and the CPUs they would use.
    - `scattered`: (name, free, free on the best NUMA node) of the most fragmented nodes.
    """

    nodes: int
    cpus: int
    free: int
    largest: int
    pods: tuple[int, ...]
    usable: tuple[int, ...]
    scattered: tuple[tuple[str, int, int], ...]


def measure_room(table: NodeTable, ownable: Sequence[int], *, most: int) -> Room:
    """Count the room. `ownable`: exclusive CPUs of a node by number of its kind; at most `most` nodes are named."""
    kinds = table.kind[: table.count]
    rows = np.flatnonzero((kinds != NO_KIND) & (table.confirmed[: table.count] != 0))
    by_zone = table.cpus[:, rows]
    free, largest = by_zone.sum(axis=0), by_zone.max(axis=0, initial=0)
    counted = [by_zone // size for size in SIZES]
    pods = tuple(int(one.sum()) for one in counted)
    apart = free - largest
    worst = np.argsort(-apart, kind="stable")[:most]
    return Room(
        len(rows),
        int(np.array([*ownable, 0], dtype=np.int64)[kinds[rows]].sum()),
        int(free.sum()),
        int(largest.sum()),
        pods,
        tuple(count * size for count, size in zip(pods, SIZES, strict=True)),
        tuple((table.names[rows[at]], int(free[at]), int(largest[at])) for at in worst.tolist() if apart[at]),
    )
