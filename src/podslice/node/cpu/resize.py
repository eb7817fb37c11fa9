"""Pick the CPUs a container owns after a resize: one function for growing and for shrinking.

No upstream kubelet resizes exclusive CPUs (KEP-5554 is not merged). Growing keeps every CPU, shrinking keeps the ones
promised at admission: both are a pick that contains an *anchor* and adds from a *pool*, nearest to the anchor first.
"""

from __future__ import annotations

from collections.abc import Iterator

from podslice.machine.cores import free_cores
from podslice.machine.model import CPUTopology, whole_objects
from podslice.node.cpu.picking.packed import Packer, not_enough
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, iter_bits, union
from podslice.values.errors import AdmissionError
from podslice.values.quirks import Quirks


class ResizePicker:
    """Picks CPUs near those that are held, under the policy options. `aligned`: growth stays within the NUMA nodes of
    the affinity, because the Topology Manager's policy refuses everything else."""

    def __init__(
        self, topology: CPUTopology, options: CPUPolicyOptions, quirks: Quirks, *, aligned: bool = False
    ) -> None:
        self._topology = topology
        self._options = options
        self.aligned = aligned
        self._packer = Packer(
            topology,
            quirks,
            across_cores=options.distribute_cpus_across_cores,
            uncore=options.prefer_align_cpus_by_uncorecache and not options.distribute_cpus_across_numa,
        )
        # Where a cache is a whole NUMA node, looking for caches finds nothing that NUMA nodes do not.
        self._caches = options.prefer_align_cpus_by_uncorecache and any(
            cpus & ~cache
            for cpus in topology.numa_nodes.values()
            for cache in topology.uncore_caches.values()
            if cpus & cache
        )

    def pick(self, anchor: Bits, pool: Bits, count: int, mask: Bits | None = None) -> Bits:
        """Return `count` CPUs: the whole anchor, the others from the pool. Under `mask` (None: no preference) only CPUs
        of its NUMA nodes count, with `align-by-socket` of their sockets; under `full-pcpus-only` only whole cores of
        the pool.

        Raises `AdmissionError` where the pool is too small.
        """
        pool = self._restrict(pool & self._topology.all_cpus & ~anchor, mask)
        if self._options.full_pcpus_only:
            # The free siblings of a core that the anchor is on complete it, although no free core is whole there.
            completed = self._whole(anchor) & pool
            pool = completed | self._whole_cores(pool)
        if count < anchor.bit_count() or count > (anchor | pool).bit_count():
            raise not_enough(count, anchor | pool)
        if self._options.distribute_cpus_across_numa:
            return self._level(anchor, pool, count, mask)
        return self._fill(anchor, pool, count, self._phases(anchor))

    def more(self, held: Bits, free: Bits, count: int, affinity: Bits | None) -> Bits:
        """Return `count` CPUs for a container that holds some, from its affinity and the NUMA nodes it is on, which a
        scored affinity may leave out; from anywhere where the affinity is only a preference. Raises
        `AdmissionError`."""
        if affinity is not None:
            affinity |= self._topology.numa_nodes_of(held)
        try:
            return self.pick(held, free, count, affinity)
        except AdmissionError:
            if affinity is None or self.aligned:
                raise
            return self.pick(held, free, count)

    def _restrict(self, pool: Bits, mask: Bits | None) -> Bits:
        """Return the CPUs of the pool under the mask, with `align-by-socket` those of its sockets."""
        if mask is None:
            return pool
        near = self._topology.cpus_in_numa_nodes(mask)
        return pool & (whole_objects(self._topology.sockets, near) if self._options.align_by_socket else near)

    def _whole(self, anchor: Bits) -> Bits:
        """Return the cores that the anchor is on. It walks the anchor's CPUs: they are few, the cores of a machine are
        many."""
        cores, core_of = self._topology.cores, self._topology.core_of
        touched, left = 0, anchor & self._topology.all_cpus
        while left:
            core = cores[core_of[(left & -left).bit_length() - 1]]
            touched |= core
            left &= ~core
        return touched

    def _whole_cores(self, pool: Bits) -> Bits:
        return union(free_cores(self._topology, pool))

    # Packed: nearest to the anchor first

    def _phases(self, anchor: Bits) -> Iterator[Bits]:
        """Yield the places to take CPUs from, nearest first: cores and caches of the anchor, its NUMA nodes, its
        sockets, all."""
        topology = self._topology
        yield from self._nearest_places(anchor)
        nodes = [(-(cpus & anchor).bit_count(), node) for node, cpus in topology.numa_nodes.items() if cpus & anchor]
        for _, node in sorted(nodes):
            yield topology.numa_nodes[node]
        yield whole_objects(topology.sockets, anchor)
        yield topology.all_cpus

    def _nearest_places(self, anchor: Bits) -> Iterator[Bits]:
        """Yield the places that count as next to the anchor: its cores, and its caches where the options ask for
        them."""
        if not self._options.distribute_cpus_across_cores:
            yield self._whole(anchor)
        if self._caches:
            yield whole_objects(self._topology.uncore_caches, anchor)

    def _fill(self, chosen: Bits, pool: Bits, count: int, phases: Iterator[Bits]) -> Bits:
        """Add CPUs of the pool from one place after the other until there are `count`."""
        for place in phases:
            missing = count - chosen.bit_count()
            if not missing:
                break
            free = pool & place & ~chosen
            chosen |= free if free.bit_count() <= missing else self._packer.take(free, missing)
        return chosen

    # Distributed: as many on each NUMA node

    def _level(self, anchor: Bits, pool: Bits, count: int, mask: Bits | None) -> Bits:
        """Give one unit after the other to the NUMA node with the fewest chosen CPUs that has a free unit."""
        nodes = self._nodes_to_level(anchor, pool, count, mask)
        chosen = anchor
        while chosen.bit_count() < count:
            missing = count - chosen.bit_count()
            fitting = [
                ((cpus & chosen).bit_count(), node, unit)
                for node, cpus in nodes.items()
                if (unit := self._unit(anchor, chosen, pool & cpus & ~chosen)) and unit.bit_count() <= missing
            ]
            if not fitting:
                raise not_enough(count, anchor | pool)
            chosen |= min(fitting)[2]
        return chosen

    def _nodes_to_level(self, anchor: Bits, pool: Bits, count: int, mask: Bits | None) -> dict[int, Bits]:
        """Return the NUMA nodes of the mask; without one those of the anchor, and the fullest others until `count` CPUs
        fit."""
        numa_nodes = self._topology.numa_nodes
        if mask is not None:
            return {node: cpus for node, cpus in numa_nodes.items() if self._restrict(cpus, mask)}
        usable = anchor | pool
        chosen = {node: cpus for node, cpus in numa_nodes.items() if cpus & anchor}
        # Nodes of the anchor come first whatever they have free: their CPUs stay.
        others = sorted(numa_nodes.keys() - chosen, key=lambda node: (-(numa_nodes[node] & usable).bit_count(), node))
        for node in others:
            if (union(chosen.values()) & usable).bit_count() >= count:
                break
            chosen[node] = numa_nodes[node]
        return chosen

    def _unit(self, anchor: Bits, chosen: Bits, free: Bits) -> Bits:
        """Return the unit to take next on one node, nearest to the anchor: a CPU, or under `full-pcpus-only` a core."""
        for place in (*self._nearest_places(anchor), *self._nearest_places(chosen), self._topology.all_cpus):
            if free & place:
                if not self._options.full_pcpus_only:
                    return self._packer.take(free & place, 1)
                first = next(iter_bits(free & place))
                return self._topology.cores[self._topology.core_of[first]] & free
        return 0
