"""What nodes share among the pods that own no CPUs: how large the pool is, and how much is asked of it.

Where more is asked than there is, pods do not get at run time what the scheduler granted: kubelet and scheduler count
different CPUs, or reserved ones are kept out of the pool.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from podslice.fleet.engine.live import LiveNodes


class SharedPools(NamedTuple):
    """By node, in `array('q')`: milli CPUs that its pods ask of the pool, and CPUs that are in it."""

    asked_milli: array[int]
    cpus: array[int]

    @property
    def overloaded(self) -> int:
        """Nodes of whose pool more is asked than is in it."""
        return sum(asked > 1000 * cpus for asked, cpus in zip(self.asked_milli, self.cpus, strict=True))


def shared_pools(live: LiveNodes) -> SharedPools:
    """Those of all nodes as they are. What pods own has left the pool they began with, CPU by CPU."""
    asked, sizes = array("q"), array("q")
    for node, booked in enumerate(live.columns.used[:, 1].tolist()):
        kind, state = live.kinds[node], live.states[node]
        rules = live.fleet.classes[kind].rules.cpu
        pool = state.cpus.bit_count() if rules.static else rules.topology.all_cpus.bit_count()
        owned = (live.classes[kind].start.cpus & ~state.cpus).bit_count() if rules.static else 0
        asked.append(max(0, booked - 1000 * owned))
        sizes.append(pool)
    return SharedPools(asked, sizes)
