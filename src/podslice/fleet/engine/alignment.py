"""Count on how many NUMA nodes the CPUs, memory and devices of pods lie."""

from __future__ import annotations

from podslice.fleet.engine.nodes import Fleet, FleetClass
from podslice.node.answers import PodHolding
from podslice.values.cpuset import Bits, bits_of, iter_bits

_LOCAL, _REMOTE = 10, 20
"""NUMA distances that the kernel assumes where the firmware reports none (LOCAL_DISTANCE, REMOTE_DISTANCE)."""


class Alignment:
    """Counters of pods that own CPUs or devices, taken when a pod is bound.

    - `one`: pods with everything they own on one NUMA node; `across`: the others.
    - `split_cores`: pods that own only some hyperthreads of a core.
    - `distance`: sum over pods of the mean distance between all pairs of a pod's NUMA nodes (a node with itself too),
      in thousandths of the kernel's distance.
    - `cpus`, `numa`: CPU mask and NUMA mask of each pod by pod number, as of its last binding.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._classes = fleet.classes
        self._known: dict[tuple[int, PodHolding], tuple[Bits, bool, int]] = {}
        self.one = self.across = self.split_cores = self.distance = 0
        self.cpus: dict[int, Bits] = {}
        self.numa: dict[int, Bits] = {}

    def record(self, kind: int, pod: int, holding: PodHolding) -> None:
        """Count a bound pod; `kind` is the class of its node."""
        if not holding.owns:
            return
        if holding.uid:
            # Holdings of profile kubelet-1.36 have the pod's UID; without it equal ones share an entry of the memo.
            holding = holding._replace(uid="")
        found = self._known.get((kind, holding))
        if found is None:
            one = self._classes[kind]
            nodes = _numa_mask(one, holding)
            found = self._known[kind, holding] = nodes, _has_split_core(one, holding.cpus), _mean_distance(one, nodes)
        nodes, splits, distance = found
        self.distance += distance
        if nodes.bit_count() > 1:
            self.across += 1
        else:
            self.one += 1
        self.split_cores += splits
        self.cpus[pod], self.numa[pod] = holding.cpus, nodes


def _numa_mask(one: FleetClass, holding: PodHolding) -> Bits:
    """Return the NUMA mask of the pod's CPUs, memory and devices."""
    topology = one.rules.cpu.topology
    nodes = bits_of(node for node, cpus in topology.numa_nodes.items() if cpus & holding.cpus)
    for blocks in holding.blocks:
        nodes |= bits_of(node for block in blocks for node in block.numa_affinity or ())
    for pool, devices in zip(one.state.device.pools.values(), holding.devices, strict=True):
        nodes |= bits_of(node for device in iter_bits(devices) for node in pool.numa.get(device, ()))
    return nodes


def _mean_distance(one: FleetClass, nodes: Bits) -> int:
    """Return the mean distance over all pairs of NUMA nodes, in thousandths, with the kernel's defaults where the
    machine has no distances."""
    machine = one.rules.machine
    places = {node: place for place, node in enumerate(sorted(node.id for node in machine.nodes))}
    rows = {node.id: node.distances for node in machine.nodes if len(node.distances or ()) == len(places)}
    total, chosen = 0, list(iter_bits(nodes))
    for first in chosen:
        row = rows.get(first)
        for other in chosen:
            assumed = _LOCAL if first == other else _REMOTE
            total += assumed if row is None else row[places[other]]
    # All ordered pairs, each node with itself too: a pod on one node has the local distance.
    return 1000 * total // len(chosen) ** 2 if chosen else 1000 * _LOCAL


def _has_split_core(one: FleetClass, cpus: Bits) -> bool:
    """Whether the pod owns some hyperthreads of a core but not all of them."""
    return any(0 < (core & cpus).bit_count() < core.bit_count() for core in one.rules.cpu.topology.cores.values())
