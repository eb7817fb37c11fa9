"""On how many NUMA nodes pods are that own something."""

from __future__ import annotations

from podslice.fleet.engine.nodes import Fleet, FleetClass
from podslice.node.answers import PodHolding
from podslice.values.cpuset import Bits, bits_of, iter_bits

_LOCAL, _REMOTE = 10, 20
"""Distances of NUMA nodes where firmware tells none."""


class Alignment:
    """Counts pods that own CPUs or devices when they are bound. `one`: all they own is on one NUMA node, `across`: not;
    `split_cores`: some of their cores are not theirs alone. `distance`: between the NUMA nodes of a pod (each of them
    with each, itself too) as the kernel tells them, in thousandths; the mean of a pod, the sum of all pods. `cpus` and
    `numa` of each pod at last, by number."""

    def __init__(self, fleet: Fleet) -> None:
        self._classes = fleet.classes
        self._known: dict[tuple[int, PodHolding], tuple[Bits, bool, int]] = {}
        self.one = self.across = self.split_cores = self.distance = 0
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
            one = self._classes[kind]
            nodes = _nodes(one, holding)
            found = self._known[kind, holding] = nodes, _splits(one, holding.cpus), _distance(one, nodes)
        nodes, splits, distance = found
        self.distance += distance
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


def _distance(one: FleetClass, nodes: Bits) -> int:
    """The mean distance within a set of NUMA nodes, in thousandths; where the machine tells none, as the kernel assumes
    them."""
    machine = one.rules.machine
    places = {node: place for place, node in enumerate(sorted(node.id for node in machine.nodes))}
    told = {node.id: node.distances for node in machine.nodes if len(node.distances or ()) == len(places)}
    total, chosen = 0, list(iter_bits(nodes))
    for first in chosen:
        row = told.get(first)
        for other in chosen:
            assumed = _LOCAL if first == other else _REMOTE
            total += assumed if row is None else row[places[other]]
    return 1000 * total // len(chosen) ** 2 if chosen else 1000 * _LOCAL


def _splits(one: FleetClass, cpus: Bits) -> bool:
    return any(0 < (core & cpus).bit_count() < core.bit_count() for core in one.rules.cpu.topology.cores.values())
