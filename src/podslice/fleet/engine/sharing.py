"""The shared pools of nodes: their CPUs, and the millicores requested by pods that own no CPUs.

Where more is requested than the pool has, pods do not get at run time what the scheduler granted. That happens because
kubelet and scheduler count different CPUs, or because reserved CPUs are kept out of the pool.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from podslice.fleet.engine.live import LiveNodes


class SharedPools(NamedTuple):
    """By node, in `array('q')`: millicores requested of the pool, and CPUs in it."""

    asked_milli: array[int]
    cpus: array[int]

    @property
    def overload_count(self) -> int:
        """Number of nodes with more requested than the pool has."""
        return sum(asked > 1000 * cpus for asked, cpus in zip(self.asked_milli, self.cpus, strict=True))


def measure_shared_pools(live: LiveNodes) -> SharedPools:
    """Return the shared pools of all nodes as they are now."""
    asked, sizes = array("q"), array("q")
    for node, booked in enumerate(live.columns.used[:, 1].tolist()):
        kind, state = live.kinds[node], live.states[node]
        rules = live.fleet.classes[kind].rules.cpu
        # Without a static policy no pod owns CPUs, and all pods share all CPUs of the node.
        pool = state.cpus.bit_count() if rules.static else rules.topology.all_cpus.bit_count()
        # CPUs that left the initial pool are owned; each of them carries 1000 of the booked millicores.
        owned = (live.classes[kind].start.cpus & ~state.cpus).bit_count() if rules.static else 0
        asked.append(max(0, booked - 1000 * owned))
        sizes.append(pool)
    return SharedPools(asked, sizes)
