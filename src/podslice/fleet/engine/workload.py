"""The pods of a workload: columns with one entry for each pod in order of arrival, 24 bytes a pod."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from podslice.fleet.engine.shapes import FleetShape

NO_PODS: Mapping[int, str] = {}
NEVER = -1
"""In a column of times: it does not happen. In a column of nodes: the scheduler decides."""


class Workload(msgspec.Struct, frozen=True, eq=False):
    """Pods by number; all columns are `array('q')`.

    - `shape`: positions in `shapes`.
    - `arrival`: milliseconds, ascending.
    - `length`: how long a pod runs once it is bound, in milliseconds, `NEVER` for without end.
    - `node`: the node it is on or for (a DaemonSet's pod, a pod of a live cluster), `NEVER` where the scheduler
      decides.
    - `initial`: pods that are on their node from the beginning, by number, and the UID under which `FleetNode.start`
      has their resources.
    """

    shapes: tuple[FleetShape, ...]
    shape: array[int]
    arrival: array[int]
    length: array[int]
    node: array[int]
    initial: Mapping[int, str] = NO_PODS

    @classmethod
    def of(
        cls,
        shapes: Sequence[FleetShape],
        shape: Iterable[int],
        arrival: Iterable[int],
        length: Iterable[int] | None = None,
        node: Iterable[int] | None = None,
        initial: Mapping[int, str] = NO_PODS,
    ) -> Workload:
        """Make a workload; without `length` no pod ever ends, without `node` the scheduler places all pods."""
        own = array("q", shape)
        unset = array("q", [NEVER]) * len(own)
        return cls(
            tuple(shapes),
            own,
            array("q", arrival),
            unset if length is None else array("q", length),
            unset if node is None else array("q", node),
            initial,
        )

    def __len__(self) -> int:
        return len(self.shape)
