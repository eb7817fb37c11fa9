"""Packed picking: whole NUMA nodes and sockets, then caches, cores and single CPUs (cpu-topology 4.2 to 4.6).

Everything is a set of bits, and every object (NUMA node, socket, uncore cache, core) is a mask, so "how many CPUs of
this socket are free" is one AND and one popcount. Sort orders are only worked out for the levels a request reaches:
most requests are smaller than a NUMA node and never look at more than one core list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from podslice.machine.model import CPUTopology
from podslice.values.cpuset import Bits, iter_bits, lowest_bits
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.quirks import Quirks

_NONE_FOUND = RefusalKind("no-cpus-found", "failed to allocate cpus")
_NOT_ENOUGH = RefusalKind(
    "not-enough-cpus", "not enough cpus available to satisfy request: requested={requested}, available={available}"
)


class Packer:
    """Packs CPUs on one machine: whole NUMA nodes and sockets, with `uncore` whole caches, whole cores unless
    `across_cores`, then single CPUs (cpu-topology 4.6). `odd_parts`: a part of a cache may end within a core, where
    upstream picks it.
    """

    def __init__(
        self,
        topology: CPUTopology,
        quirks: Quirks,
        *,
        across_cores: bool = False,
        uncore: bool = False,
        odd_parts: bool = True,
    ) -> None:
        self.topology = topology
        self.quirks = quirks
        self.across_cores = across_cores
        self.uncore = uncore
        self.odd_parts = odd_parts
        # The level order of upstream: NUMA nodes before sockets, unless a socket holds several (cpu-topology 4.2).
        self.numa_first = topology.num_sockets >= len(topology.numa_nodes)
        self.core_parents = topology.sockets if self.numa_first else topology.numa_nodes
        self.core_parent_of = topology.socket_of if self.numa_first else topology.numa_of
        self.cores_of = topology.children("sockets" if self.numa_first else "numa_nodes", "cores")
        self.smallest_package = min(topology.smallest_numa_node, topology.smallest_socket)
        self.lists_twice = quirks.straddling_objects
        self.lists_cores_again = not topology.cores_nest or (self.lists_twice and not topology.packages_nest)
        self.even_cores = topology.core_size > 0 and not self.lists_cores_again
        self.socket_size: int | None = None
        self.core_size: int | None = None
        if quirks.average_sizes:
            self.socket_size, self.core_size = topology.cpus_per_socket, topology.cpus_per_core

    def take(self, available: Bits, count: int) -> Bits:
        """Pick `count` of the `available` CPUs. Raises `AdmissionError` with upstream's text."""
        if count < 1:
            return 0
        work = Accumulator(self, available, count)
        if work.need > work.free.bit_count():
            raise not_enough(count, available)
        # Upstream tries both levels for small requests too, and finds nothing.
        if count >= self.smallest_package:
            levels = (work.take_whole_numa_nodes, work.take_whole_sockets)
            for take_level in levels if self.numa_first else reversed(levels):
                take_level()
                if work.need < 1:
                    return work.result
        if self.uncore:
            work.take_uncore_caches()
            if work.need < 1:
                return work.result
        if not self.across_cores:
            if self.even_cores:
                work.take_whole_even_cores()
            else:
                work.take_whole_cores()
            if work.need < 1:
                return work.result
        work.take_single_cpus()
        if work.need < 1:
            return work.result
        raise AdmissionError(_NONE_FOUND)


def not_enough(count: int, available: Bits) -> AdmissionError:
    """Return the refusal of a request that no set of CPUs could satisfy."""
    return AdmissionError(_NOT_ENOUGH, requested=count, available=available.bit_count())


class Accumulator:
    """A pick in progress: `free` CPUs, `result` so far, and how many CPUs it still `need`s (cpu-topology 4.2)."""

    __slots__ = ("free", "need", "packer", "result", "topology")

    def __init__(self, packer: Packer, available: Bits, count: int) -> None:
        self.packer = packer
        self.topology = packer.topology
        self.free: Bits = available & packer.topology.all_cpus
        self.result: Bits = 0
        self.need = count

    def take(self, cpus: Bits) -> None:
        """Move CPUs from free to result; all of them count, even ones that were not free."""
        self.result |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()

    # Sort orders (cpu-topology 4.3)

    def numas(self) -> list[int]:
        """Return the NUMA nodes with free CPUs, fewest free first; socket by socket where a socket holds several."""
        if self.packer.numa_first:
            return self._order(self.topology.numa_nodes.items())
        return self._order_by_parent(self.sockets(), "sockets", "numa_nodes")

    def sockets(self) -> list[int]:
        """Return the sockets with free CPUs, fewest free first; NUMA node by NUMA node where a node holds several."""
        if self.packer.numa_first:
            return self._order_by_parent(self.numas(), "numa_nodes", "sockets")
        return self._order(self.topology.sockets.items())

    def _cores_by_parent(self) -> Iterator[list[int]]:
        """Yield cores in order, one socket or NUMA node at a time, so that only those parents are sorted that a pick
        reaches.

        Where a core is listed several times, because it or its parent has several parents, all are sorted before the
        first is used, as taking it changes the others.
        """
        if self.packer.lists_cores_again:
            if self.packer.numa_first:
                yield self._order_by_parent(self.sockets(), "sockets", "cores")
            else:
                yield self._order_by_parent(self.numas(), "numa_nodes", "cores")
            return
        for parent in self._parents_of_cores():
            yield self._order(self.packer.cores_of[parent])

    def _parents_of_cores(self) -> list[int]:
        """Return sockets or NUMA nodes in order. Where only one has free CPUs, the usual case under an affinity,
        nothing is sorted."""
        free = self.free
        if free:
            parent = self.packer.core_parent_of[(free & -free).bit_length() - 1]
            if not free & ~self.packer.core_parents[parent]:
                return [parent]
        return self.sockets() if self.packer.numa_first else self.numas()

    def uncores(self) -> list[int]:
        """Return the uncore caches with free CPUs, in the order of their NUMA nodes, fewest free first."""
        return self._order_by_parent(self.numas(), "numa_nodes", "uncore_caches")

    def _order(self, objects: Iterable[tuple[int, Bits]], within: Bits = -1) -> list[int]:
        """Return the ids of objects with free CPUs, fewest free first, then by id."""
        free = self.free
        inside = free & within
        # The key counts an object's free CPUs on the whole machine, not only within the parent (cpu-topology 4.3).
        keyed = [((free & cpus).bit_count(), key) for key, cpus in objects if cpus & inside]
        keyed.sort()
        return [key for _, key in keyed]

    def _order_by_parent(self, parents: Iterable[int], parent_level: str, level: str) -> list[int]:
        """Return the ids of objects below each parent in turn, each parent's in the order of `_order`."""
        children = self.topology.children(parent_level, level)
        parent_cpus: Mapping[int, Bits] = getattr(self.topology, parent_level)
        ordered: list[int] = []
        for parent in parents:
            ordered += self._order(children[parent], parent_cpus[parent])
        # Upstream lists an object under each of its parents, and takes it twice (cpu-topology 11.10).
        if not self.packer.lists_twice:
            return list(dict.fromkeys(ordered))
        return ordered

    # Whole objects (cpu-topology 4.4)

    def take_whole_numa_nodes(self) -> None:
        """Take wholly free NUMA nodes while they fit the need."""
        nodes = self.topology.numa_nodes
        if self.need >= self.topology.smallest_numa_node and self._any_fits(nodes):
            self._take_whole(self.numas(), nodes)

    def take_whole_sockets(self) -> None:
        """Take wholly free sockets while they fit the need."""
        sockets = self.topology.sockets
        average = self.packer.socket_size
        if self.need >= self.topology.smallest_socket and self._any_fits(sockets, average):
            self._take_whole(self.sockets(), sockets, average)

    def take_whole_uncore_caches(self) -> None:
        """Take wholly free uncore caches while they fit the need."""
        self._take_whole(self.uncores(), self.topology.uncore_caches)

    def take_whole_cores(self) -> None:
        """Take wholly free cores while they fit the need."""
        average = self.packer.core_size
        for cores in self._cores_by_parent():
            self._take_whole(cores, self.topology.cores, average)
            if self.need < 1:
                return

    def take_whole_even_cores(self) -> None:
        """Take wholly free cores where all cores have the same number of threads: then the cores of one parent come in
        id order."""
        topology = self.topology
        size, step = topology.core_size, topology.sibling_step
        free, need, result = self.free, self.need, self.result
        for parent in self._parents_of_cores() if need >= size else ():
            # Siblings at one distance: a shift finds the first threads of all free cores at once.
            if step >= 0:
                firsts = free & free >> step & topology.first_threads & self.packer.core_parents[parent]
                firsts = lowest_bits(firsts, need // size)
                cpus = firsts | firsts << step
                result |= cpus
                free ^= cpus
                need -= cpus.bit_count()
                if need < size:
                    break
                continue
            for _, cpus in self.packer.cores_of[parent]:
                if need < size:
                    break
                if cpus & free == cpus:
                    result |= cpus
                    free ^= cpus
                    need -= size
        self.free, self.need, self.result = free, need, result

    def _is_whole(self, cpus: Bits, average: int | None) -> bool:
        """Whether an object is wholly free; with `average` whether as many CPUs of it are free."""
        free = cpus & self.free
        # Upstream compares with the machine's average size, which is wrong where sizes differ (quirk `average_sizes`).
        return free == cpus if average is None else free.bit_count() == average

    def _any_fits(self, objects: Mapping[int, Bits], average: int | None = None) -> bool:
        need = self.need
        return any(cpus.bit_count() <= need and self._is_whole(cpus, average) for cpus in objects.values())

    def _take_whole(self, order: list[int], objects: Mapping[int, Bits], average: int | None = None) -> None:
        """Take the wholly free objects in this order that still fit the need."""
        free, need, result = self.free, self.need, self.result
        if average is None:
            whole = [cpus for key in order if (cpus := objects[key]) & free == cpus]
        else:
            whole = [cpus for key in order if ((cpus := objects[key]) & free).bit_count() == average]
        # Free objects are listed before the walk, as upstream does: one that is listed twice is taken twice.
        for cpus in whole:
            size = cpus.bit_count()
            if need >= size:
                result |= cpus
                free &= ~cpus
                need -= size
                if need < 1:
                    break
        self.free, self.need, self.result = free, need, result

    # Uncore caches (cpu-topology 4.5)

    def take_uncore_caches(self) -> None:
        """Take whole uncore caches, then the rest from one that has enough."""
        # A whole cache that does not fit the need once never fits a smaller need, and a partial take ends the pick, so
        # one look at the whole caches is enough.
        order = self.uncores()
        if self.need >= self.topology.cpus_per_uncore:
            self.take_whole_uncore_caches()
        for uncore in order:
            if self.need < 1:
                return
            if (self.topology.uncore_caches[uncore] & self.free).bit_count() >= self.need:
                self._take_part_of_cache(uncore)

    def _take_part_of_cache(self, uncore: int) -> None:
        """Take the rest of the need from one uncore cache, if it can supply it exactly."""
        per_core = self.topology.cpus_per_core
        free = self.topology.uncore_caches[uncore] & self.free
        if not self.packer.quirks.partial_uncore_by_core_id:
            self.take(Packer(self.topology, self.packer.quirks).take(free, self.need))
            return
        wanted = -(-self.need // per_core) if self.packer.odd_parts else self.need // per_core
        cores = [core for _, core in self.topology.children("uncore_caches", "cores")[uncore] if core & free][:wanted]
        part = 0
        for core in cores:
            part |= core & self.free
        # An odd request leaves one thread of the last core, as if a core had two.
        if self.packer.odd_parts and self.need % 2 and per_core > 1 and part.bit_count() > self.need:
            part ^= 1 << part.bit_length() - 1
        if part.bit_count() == self.need:
            self.take(part)

    # Single CPUs (cpu-topology 4.6, step 7)

    def take_single_cpus(self) -> None:
        """Take what is still needed CPU by CPU: core after core, or spread, socket after socket."""
        if self.packer.across_cores:
            # Upstream's option `distribute-cpus-across-cores` takes the lowest ids of a socket, which need not be on
            # other cores.
            if self.packer.quirks.cores_spread_by_id:
                self._take_singly(self.sockets(), self.topology.sockets)
            else:
                self._take_spread()
            return
        if self.packer.even_cores and self.topology.sibling_step >= 0:
            self._take_halves()
            return
        for cores in self._cores_by_parent():
            self._take_singly(cores, self.topology.cores)
            if self.need < 1:
                return

    def _take_halves(self) -> None:
        """As `take_single_cpus`, where cores have at most two CPUs at one distance: CPUs of half-used cores first."""
        step, first = self.topology.sibling_step, self.topology.first_threads
        for parent in self._parents_of_cores():
            free, need = self.free & self.packer.core_parents[parent], self.need
            whole = free & free >> step & first if step else 0
            halves = lowest_bits((free | free >> step) & first & ~whole, need)
            cpus = (halves | halves << step) & free
            need -= cpus.bit_count()
            if need > 0 and whole:
                cores = lowest_bits(whole, (need + 1) // 2)
                # With an odd need the last core gives its first thread only: the highest bit is the last one's second.
                more = cores | cores << step
                cpus |= more ^ (1 << more.bit_length() - 1 if more.bit_count() > need else 0)
            self.take(cpus)
            if self.need < 1:
                return

    def _take_spread(self) -> None:
        """Take CPUs socket by socket, one free CPU of every core before a second one of any."""
        for socket in self.sockets():
            rounds: list[tuple[int, int]] = []
            for core in self.topology.children("sockets", "cores")[socket]:
                rounds += enumerate(iter_bits(core[1] & self.free & self.topology.sockets[socket]))
            for _, cpu in sorted(rounds)[: self.need]:
                self.take(1 << cpu)

    def _take_singly(self, order: list[int], objects: Mapping[int, Bits]) -> None:
        """Take CPUs one by one, object by object, lowest ids first."""
        free, need, result = self.free, self.need, self.result
        for key in order:
            cpus = lowest_bits(objects[key] & free, need)
            result |= cpus
            need -= cpus.bit_count()
            if need < 1:
                break
        self.free, self.need, self.result = free & ~result, need, result
