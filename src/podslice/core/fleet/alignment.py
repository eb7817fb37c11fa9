"""On how many NUMA nodes pods are that own something."""

from __future__ import annotations

from podslice.core.answers import PodHolding
from podslice.core.fleet.nodes import Fleet, FleetClass
from podslice.core.values.cpuset import Bits, bits_of, iter_bits


class Alignment:
    """Counts pods that own CPUs or devices when they are bound. `one`: all they own is on one NUMA node, `across`: not;
    `split_cores`: some of their cores are not theirs alone. `cpus` and `numa` of each pod at last, by number."""

    def __init__(self, fleet: Fleet) -> None:
        self._classes = fleet.classes
        self._known: dict[tuple[int, PodHolding], tuple[Bits, bool]] = {}
        self.one = self.across = self.split_cores = 0
        self.cpus: dict[int, Bits] = {}
        self.numa: dict[int, Bits] = {}

    def note(self, kind: int, pod: int, holding: PodHolding) -> None:
        """A pod was bound and has this."""
        if not holding.owns:
            return
        if holding.uid:
            holding = holding._replace(uid="")
        found = self._known.get((kind, holding))
        if found is None:
            found = self._known[kind, holding] = (
                _nodes(self._classes[kind], holding),
                _splits(self._classes[kind], holding.cpus),
            )
        nodes, splits = found
        if nodes.bit_count() > 1:
            self.across += 1
        else:
            self.one += 1
        self.split_cores += splits
        self.cpus[pod], self.numa[pod] = holding.cpus, nodes


def _nodes(one: FleetClass, holding: PodHolding) -> Bits:
    """NUMA nodes of CPUs, memory and devices."""
    topology = one.rules.cpu.topology
    nodes = bits_of(node for node, cpus in topology.numa_nodes.items() if cpus & holding.cpus)
    for blocks in holding.blocks:
        nodes |= bits_of(node for block in blocks for node in block.numa_affinity or ())
    for pool, devices in zip(one.state.device.pools.values(), holding.devices, strict=True):
        nodes |= bits_of(node for device in iter_bits(devices) for node in pool.numa.get(device, ()))
    return nodes


def _splits(one: FleetClass, cpus: Bits) -> bool:
    return any(0 < (core & cpus).bit_count() < core.bit_count() for core in one.rules.cpu.topology.cores.values())
