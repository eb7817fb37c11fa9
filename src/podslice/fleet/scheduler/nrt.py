"""The knowledge of a scheduler with NodeResourceTopologyMatch: sums of each NUMA node, with a delay.

Its filter considers nodes with policy single-numa-node only, takes the lowest NUMA node where everything of a container
(scope `pod`: of the pod) is free, and passes nothing of an init container on to the next one. It knows neither whole
cores nor groups of memory, and sidecars reserve nothing (cluster-integration B.3). Its cache of reserved amounts is
off, which is its default.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from podslice.api.pod.demand import BEST_EFFORT, pod_requests
from podslice.api.pod.eligibility import AdmissionContainer
from podslice.config.mixed import make_admission_pod
from podslice.fleet.engine.nodes import FleetClass
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.loads import Ints
from podslice.node.answers import FleetState
from podslice.scheduling.predicates import CPU, MEMORY, amounts
from podslice.values.cpuset import iter_bits

Zone = dict[str, int]
_MOST_KNOWN = 200_000


class NRTView:
    """The states of nodes as the scheduler has seen them, each `delay` milliseconds late."""

    def __init__(
        self,
        classes: Sequence[FleetClass],
        kinds: Sequence[int],
        states: Sequence[FleetState],
        shapes: Sequence[FleetShape],
        delay: int,
    ) -> None:
        self._classes = classes
        self._kinds = kinds
        self._delay = delay
        self.coming: deque[tuple[int, int, FleetState]] = deque()
        """States on their way: (time at which the scheduler sees it, node, state)."""
        self.seen = list(states)
        self.numbers: Ints = np.array([state.number for state in states], dtype=np.int64)
        """Number of the seen state of each node."""
        self._asked = [[_filter_requests(one, shape) for shape in shapes] for one in classes]
        self._known: dict[tuple[int, int], bool] = {}

    def record(self, now: int, node: int, state: FleetState) -> None:
        """Record a change of a node, which the scheduler sees after the delay."""
        self.coming.append((now + self._delay, node, state))

    def restore(self, seen: list[FleetState], coming: deque[tuple[int, int, FleetState]]) -> None:
        """Set the seen states and those on their way."""
        self.seen, self.coming = seen, coming
        self.numbers[:] = [state.number for state in seen]

    def deliver_until(self, now: int) -> None:
        """Deliver the delayed states that are due at `now`."""
        # In order of time: every state is recorded with the same delay.
        while self.coming and self.coming[0][0] <= now:
            _, node, state = self.coming.popleft()
            self.seen[node] = state
            self.numbers[node] = state.number

    def passes(self, shape: int, node: int) -> bool:
        """Whether the filter passes a node."""
        kind = self._kinds[node]
        asked = self._asked[kind][shape]
        if asked is None:
            return True
        state = self.seen[node]
        key = (state.number, shape)
        found = self._known.get(key)
        if found is None:
            # Dropped as a whole: finding the least used answer would cost more than computing it again.
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = _fits(_zones(self._classes[kind], state), *asked)
        return found


def _filter_requests(one: FleetClass, shape: FleetShape) -> tuple[list[Zone], list[Zone]] | None:
    """Return the requests that are checked each alone (init containers), and those that are subtracted one after the
    other; None where the plugin ignores the pod or the node."""
    merger = one.rules.merger
    if merger is None or not merger.single_numa_node:
        return None
    pod = make_admission_pod(one.rules.policy, shape.pod, one.rules.gates, release=one.rules.release)
    if pod.qos == BEST_EFFORT and not any(container.limits for container in pod.containers):
        return None
    if one.rules.config.topology_manager_scope == "pod":
        return [], [_checked_part(amounts(pod_requests(shape.pod)), guaranteed=pod.guaranteed)]
    alone = [
        _container_requests(container, guaranteed=pod.guaranteed) for container in pod.containers if container.init
    ]
    return alone, [_container_requests(one, guaranteed=pod.guaranteed) for one in pod.containers if not one.init]


def _container_requests(container: AdmissionContainer, *, guaranteed: bool) -> Zone:
    requests = container.spec.resources.requests or {}
    return _checked_part(amounts({**requests}), guaranteed=guaranteed)


def _checked_part(asked: Mapping[str, int], *, guaranteed: bool) -> Zone:
    """Return the amounts that the filter checks. CPU, memory and huge pages of pods that are not Guaranteed always
    fit."""
    if guaranteed:
        return {name: amount for name, amount in asked.items() if amount > 0}
    native = (CPU, MEMORY, "hugepages-")
    return {name: amount for name, amount in asked.items() if amount > 0 and not name.startswith(native)}


def _zones(one: FleetClass, state: FleetState) -> list[Zone]:
    """Return the free amounts of each NUMA node, by ascending id, as NRT objects have them."""
    rules = one.rules
    zones = []
    for node in sorted(rules.machine.nodes, key=lambda found: found.id):
        cpus = rules.cpu.topology.numa_nodes.get(node.id, 0) & ~rules.cpu.reserved
        zone = {CPU: 1000 * ((state.cpus & cpus) if rules.cpu.static else cpus).bit_count()}
        if node.id in state.machine and rules.memory.policy == "Static":
            zone |= {name: table.free for name, table in (state.machine[node.id].memory_map or {}).items()}
        else:
            # Without the Static policy the Memory Manager allocates nothing: all memory of the zone is free.
            zone[MEMORY] = node.memory
        for (name, pool), used in zip(one.state.device.pools.items(), state.used, strict=True):
            free = [device for device in iter_bits(pool.healthy & ~used) if node.id in pool.numa.get(device, ())]
            # A resource whose devices have no NUMA nodes is in no zone, and the filter then ignores it.
            if any(pool.numa.values()):
                zone[name] = len(free)
        zones.append(zone)
    return zones


def _fits(zones: list[Zone], alone: Iterable[Zone], together: Iterable[Zone]) -> bool:
    """Whether all requests fit; `together` takes its amounts out of `zones`."""
    if not all(any(_has(zone, asked) for zone in zones) for asked in alone):
        return False
    for asked in together:
        zone = next((one for one in zones if _has(one, asked)), None)
        if zone is None:
            return False
        for name, amount in asked.items():
            if name in zone:
                zone[name] -= amount
    return True


def _has(zone: Zone, asked: Zone) -> bool:
    """Whether the zone has enough. Resources without a figure in the zone do not count."""
    return all(zone[name] >= amount for name, amount in asked.items() if name in zone)
