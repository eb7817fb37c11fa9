"""Choose a set of NUMA nodes for each resource, where none suits all (docs/policy.md).

Every resource moves from the common set to one that suits it better, as long as its gain exceeds the cost of the
distance to the others. Resources move one at a time, the heaviest first, so that the result is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from podslice.values.cpuset import Bits, iter_bits

MILLION = 10**6
_LOCAL = 10  # the distance of a node to itself, by ACPI
_MOST_ROUNDS = 4


class ResourceWorth(NamedTuple):
    """Resources that share one set of nodes: the weighted worth of each set to them, in millionths."""

    name: str
    weight: int
    worth: Mapping[Bits, int]


class Remoteness:
    """Distances between sets of NUMA nodes, in millionths: 0 where they are as near as a node is to itself, a million
    for the two nodes that are farthest apart. `distances` by node id, and within a row by place in ascending order of
    ids."""

    def __init__(self, distances: Mapping[int, Sequence[int]]) -> None:
        ids = sorted(distances)
        self._both = {
            one: {other: distances[one][j] + distances[other][i] for j, other in enumerate(ids)}
            for i, one in enumerate(ids)
            # A row of another length says nothing certain about any pair: then no distance is known.
            if all(len(row) == len(ids) for row in distances.values())
        }
        farthest = max((max(row.values()) for row in self._both.values()), default=0)
        self._span = farthest - 2 * _LOCAL

    @property
    def is_known(self) -> bool:
        """Whether the machine distinguishes near nodes from far ones."""
        return self._span > 0

    def of(self, mask: Bits, masks: Sequence[Bits]) -> list[int]:
        """Return the distance of each of `masks` from one set, in millionths."""
        rows = [self._both[node] for node in iter_bits(mask)]
        to_node = {node: sum([row[node] for row in rows]) for node in self._both}
        found = []
        for other in masks:
            pairs = other.bit_count() * len(rows)
            total = sum([to_node[node] for node in iter_bits(other)])
            found.append(max(0, MILLION * (total - 2 * _LOCAL * pairs) // (pairs * self._span)))
        return found


def choose_masks(
    wanting: Sequence[ResourceWorth],
    masks: Sequence[Bits],
    winner: Bits,
    remoteness: Remoteness,
    key: Callable[[Bits], tuple[int, Bits]],
) -> dict[str, Bits]:
    """Return the set of each resource, all beginning at `winner`. Among equally good sets a resource keeps the one it
    has, else takes the smallest, then the first by `key`."""
    chosen = {one.name: winner for one in wanting}
    order = sorted(wanting, key=lambda one: (-one.weight, one.name))
    far: dict[Bits, list[int]] = {}
    # Moves of one resource can make another's worth while, so rounds repeat until none moves.
    for _ in range(_MOST_ROUNDS):
        before = dict(chosen)
        for one in order:
            gains = [one.worth[mask] for mask in masks]
            for other in order if remoteness.is_known else ():
                if other is not one:
                    there, price = chosen[other.name], min(one.weight, other.weight)
                    if there not in far:
                        far[there] = remoteness.of(there, masks)
                    gains = [gain - price * cost for gain, cost in zip(gains, far[there], strict=True)]
            most = max(gains)
            best = [mask for mask, gain in zip(masks, gains, strict=True) if gain == most]
            if chosen[one.name] not in best:
                chosen[one.name] = min(best, key=lambda mask: (mask.bit_count(), key(mask)))
        if chosen == before:
            break
    return chosen
