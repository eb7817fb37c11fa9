"""Pods that come: columns, one entry for each pod in order of arrival, 24 bytes a pod."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from podslice.fleet.engine.shapes import FleetShape

NOBODY: Mapping[int, str] = {}
NEVER = -1
"""In a column of times: it does not happen. In a column of nodes: the scheduler decides."""


class Workload(msgspec.Struct, frozen=True, eq=False):
    """Pods by number. `shape`: positions in `shapes`. `arrival`: milliseconds, never descending. `length`: how long a
    pod runs once it is bound, in milliseconds, `NEVER` for ever. `node`: the node it is on or for (a DaemonSet's pod,
    a pod of a live cluster), `NEVER` where the scheduler decides. All columns are `array('q')`. `there`: pods that are
    on their node from the beginning, by number, and the UID under which its `FleetNode.start` has what they hold.
    """

    shapes: tuple[FleetShape, ...]
    shape: array[int]
    arrival: array[int]
    length: array[int]
    node: array[int]
    there: Mapping[int, str] = NOBODY

    @classmethod
    def of(
        cls,
        shapes: Sequence[FleetShape],
        shape: Iterable[int],
        arrival: Iterable[int],
        length: Iterable[int] | None = None,
        node: Iterable[int] | None = None,
        there: Mapping[int, str] = NOBODY,
    ) -> Workload:
        """Without `length` no pod ever ends, without `node` the scheduler decides about all."""
        own = array("q", shape)
        unset = array("q", [NEVER]) * len(own)
        return cls(
            tuple(shapes),
            own,
            array("q", arrival),
            unset if length is None else array("q", length),
            unset if node is None else array("q", node),
            there,
        )

    def __len__(self) -> int:
        return len(self.shape)
