"""How scattered the free CPUs of all nodes are, counted for all of them at once.

Counted is by NUMA node, as a pod that must be on one sees it. It is an upper bound: cores that are half free, memory
and devices can make a node refuse what the count allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from podslice.cluster.model.columns import NO_KIND, NodeTable

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""CPUs of the pods whose room is counted."""


class Room(NamedTuple):
    """Of the nodes that take pods: how many they are, their CPUs that can be owned, free ones, the sum of what is free
    on each node's best NUMA node; by `SIZES`: how many such pods would find room on one NUMA node, and the CPUs they
    could use. `scattered`: nodes with (name, free, best NUMA node), those with most out of reach first."""

    nodes: int
    cpus: int
    free: int
    largest: int
    pods: tuple[int, ...]
    usable: tuple[int, ...]
    scattered: tuple[tuple[str, int, int], ...]


def measure_room(table: NodeTable, ownable: Sequence[int], *, most: int) -> Room:
    """`ownable`: CPUs of a node by the number of its kind; at most so many nodes are named."""
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
