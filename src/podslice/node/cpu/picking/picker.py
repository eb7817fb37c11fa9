"""Pick CPUs on a machine: the entry point, which chooses the algorithm by the policy options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from operator import or_

from podslice.machine.cores import free_cores, reachable_sums, whole_core_sums
from podslice.machine.model import CPUTopology, whole_objects
from podslice.node.cpu.picking.distribute import Distributor, Pick
from podslice.node.cpu.picking.packed import Packer
from podslice.node.topology.search import SearchBudget
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, union
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.quirks import Quirks
from podslice.values.reasons import SMT_ALIGNMENT
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

SMT_FRACTION, SMT_SHORT, SMT_SIZES = "smt-fraction", "smt-short", "smt-sizes"
_SMT_FRACTION = RefusalKind(
    SMT_FRACTION,
    "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {cpus_per_core}",
    SMT_ALIGNMENT,
)
_SMT_SIZES = RefusalKind(
    SMT_SIZES, "SMT Alignment Error: requested {requested} cpus cannot be whole cores of sizes {sizes}", SMT_ALIGNMENT
)
_SMT_SHORT = RefusalKind(
    SMT_SHORT,
    "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = "
    "{requested}, CPUs per core = {cpus_per_core}",
    SMT_ALIGNMENT,
)


class Picker:
    """Picks CPUs on one machine under the policy options. `sockets_first`: `align-by-socket` outranks few NUMA nodes.

    Picks raise `AdmissionError` with upstream's text when there are not enough CPUs, and `UpstreamDefectError` where
    upstream never ends and the quirk is on. The `search_budget` of an admission bounds the search for the best NUMA
    nodes to distribute CPUs over; without one every pick has its own.
    """

    def __init__(
        self, topology: CPUTopology, options: CPUPolicyOptions, quirks: Quirks, release: Release = DEFAULT
    ) -> None:
        self.topology = topology
        self._options, self._quirks, self._release = options, quirks, release
        self._by_socket = options.align_by_socket
        self.sockets_first = not quirks.socket_alignment_lost
        self._fewest_sockets = options.align_by_socket and self.sockets_first
        self.uneven = options.full_pcpus_only and not topology.core_size and not quirks.smt_check_uses_average
        """Whether only whole cores are given away on a machine whose cores differ in size."""

    def withheld(self, reserved: Bits, reserved_physical: Bits) -> Bits:
        """Return the CPUs that no container gets: the reserved ones, and where only whole cores are given away, their
        siblings, which upstream gives."""
        whole = self._options.full_pcpus_only and not self._quirks.half_reserved_cores_are_given
        return reserved_physical if whole else reserved

    def ownable(self, reserved: Bits, reserved_physical: Bits) -> Bits:
        """Return the CPUs that containers can own on an empty machine, given the reserved CPUs and all CPUs of their
        cores. Upstream counts the reserved ones as well."""
        if self._quirks.narrowest_set_counts_reserved:
            return self.topology.all_cpus
        # A core with a reserved CPU can never be given away as a whole.
        return self.topology.all_cpus & ~(reserved_physical if self._options.full_pcpus_only else reserved)

    @cached_property
    def _packer(self) -> Packer:
        """The packer, made at the first pick: many nodes never pick a CPU, those of policy none and most of those that
        only answer questions."""
        options = self._options
        return Packer(
            self.topology,
            self._quirks,
            across_cores=options.distribute_cpus_across_cores,
            uncore=options.prefer_align_cpus_by_uncorecache and not options.distribute_cpus_across_numa,
            odd_parts=self._release.uncore_takes_odd_numbers,
        )

    @cached_property
    def _distributor(self) -> Distributor | None:
        if not self._options.distribute_cpus_across_numa:
            return None
        return Distributor(self._packer, self.topology.cpus_per_core if self._options.full_pcpus_only else 1)

    def take(
        self, available: Bits, count: int, search_budget: SearchBudget | None = None, *, node_count: int = 0
    ) -> Pick:
        """Pick `count` of the `available` CPUs; with `align-by-socket` on as few sockets as possible, with
        `distribute-cpus-across-numa` on `node_count` NUMA nodes where they have room."""
        pick = self._take(available, count, search_budget, node_count)
        if not self._fewest_sockets:
            return pick
        sockets = fewest_sockets(self.topology, available, count)
        if _count_sockets(self.topology, pick.cpus) <= len(sockets):
            return pick
        # Packing may use more sockets than needed: pick again within the fewest, if whole cores allow it.
        try:
            fewer = self._take(available & reduce(or_, sockets, 0), count, search_budget, node_count)
        except AdmissionError:
            return pick
        return Pick(fewer.cpus, pick.proven and fewer.proven)

    def take_near(
        self,
        available: Bits,
        count: int,
        affinity: Bits | None,
        search_budget: SearchBudget | None = None,
        *,
        reusable: Bits = 0,
    ) -> Pick:
        """Pick CPUs on the NUMA nodes of `affinity` first (None: no preference), with `align-by-socket` on the sockets
        of those nodes, then anywhere. `reusable`: those of the available CPUs that stay idle unless they are picked."""
        near = self.near(available, affinity)
        idle = 0 if self._quirks.init_cpus_left_idle else reusable
        if self.uneven:
            places = (near & idle, near & ~idle, available & idle & ~near, available & ~idle & ~near)
            return Pick(self.take_cores(places if idle else (near, available & ~near), count))
        node_count = 0 if affinity is None or self._quirks.distribution_shrinks_affinity else affinity.bit_count()
        if affinity is None:
            pick = self.take(available, count, search_budget)
        else:
            pick = self.take(near, min(near.bit_count(), count), search_budget, node_count=node_count)
            # The rest comes from anywhere: an affinity of best-effort is a preference (cpu-topology 6.3).
            missing = count - pick.cpus.bit_count()
            if missing:
                rest = self.take(available & ~pick.cpus, missing, search_budget)
                pick = Pick(pick.cpus | rest.cpus, pick.proven and rest.proven)
        if idle & ~pick.cpus and pick.cpus & ~idle:
            return self._prefer_idle(pick, available, near, idle, affinity)
        return pick

    def _prefer_idle(self, pick: Pick, available: Bits, near: Bits, idle: Bits, affinity: Bits | None) -> Pick:
        """Return a pick of the same size with as many idle CPUs as possible, within the affinity, or on no more NUMA
        nodes and sockets than before."""
        topology, count = self.topology, pick.cpus.bit_count()
        if self._distributor is None:
            cpus = 0
            for place in (near, available):
                cpus |= self._take_idle(place & ~cpus, idle, count - cpus.bit_count())
            if cpus.bit_count() == count and (
                (affinity is not None and not cpus & ~near) or self._is_as_close(cpus, pick.cpus)
            ):
                return Pick(cpus, pick.proven)
        # Each NUMA node gives as many as before.
        parts = ((own & available, (own & pick.cpus).bit_count()) for own in topology.numa_nodes.values())
        cpus = union(self._take_idle(place, idle, share) for place, share in parts)
        return Pick(cpus, pick.proven) if cpus.bit_count() == count else pick

    def _is_as_close(self, cpus: Bits, others: Bits) -> bool:
        """Whether CPUs are on no more NUMA nodes and sockets than others."""
        topology = self.topology
        nodes, most = topology.numa_nodes_of(cpus).bit_count(), topology.numa_nodes_of(others).bit_count()
        return nodes <= most and _count_sockets(topology, cpus) <= _count_sockets(topology, others)

    def _take_idle(self, place: Bits, idle: Bits, count: int) -> Bits:
        """Return `count` CPUs of a place or all it has: idle ones, then those closest to them."""
        if self._options.full_pcpus_only:
            place = union(free_cores(self.topology, place))
        chosen = self._packer.take(place & idle, min((place & idle).bit_count(), count))
        node = whole_objects(self.topology.numa_nodes, chosen)
        for level in (node, whole_objects(self.topology.sockets, node), place):
            free = level & place & ~chosen
            chosen |= self._packer.take(free, min(free.bit_count(), count - chosen.bit_count()))
        return chosen

    def take_cores(self, places: Sequence[Bits], count: int) -> Bits:
        """Return whole cores that make up `count` CPUs, from the first place, then from the next. Raises
        `AdmissionError`."""
        cpus = take_units(self.topology, self._packer.take, places, count)
        if cpus is None:
            raise no_whole_cores(self.topology, count)
        return cpus

    def near(self, available: Bits, affinity: Bits | None) -> Bits:
        """Return those of the CPUs that are on the affinity; all without one."""
        if affinity is None:
            return available
        near = self.topology.cpus_in_numa_nodes(affinity)
        if self._by_socket:
            near = whole_objects(self.topology.sockets, near)
        return near & available

    def _take(self, available: Bits, count: int, search_budget: SearchBudget | None, node_count: int) -> Pick:
        if self._distributor is not None:
            return self._distributor.take(available, count, search_budget, node_count=node_count)
        return Pick(self._packer.take(available, count))


def fewest_sockets(topology: CPUTopology, available: Bits, count: int) -> list[Bits]:
    """Return the fewest sockets that have `count` of the available CPUs: those with most of them, the last one with the
    fewest that suffice."""
    rooms = [cpus for cpus in topology.sockets.values() if cpus & available]
    rooms.sort(key=lambda cpus: (cpus & available).bit_count(), reverse=True)
    chosen: list[Bits] = []
    while rooms and count > 0:
        enough = [cpus for cpus in rooms if (cpus & available).bit_count() >= count]
        best = min(enough, key=lambda cpus: (cpus & available).bit_count()) if enough else rooms[0]
        rooms.remove(best)
        chosen.append(best)
        count -= (best & available).bit_count()
    return chosen


def _count_sockets(topology: CPUTopology, cpus: Bits) -> int:
    return sum([socket & cpus != 0 for socket in topology.sockets.values()])


def no_whole_cores(topology: CPUTopology, count: int) -> AdmissionError:
    """Return the refusal of a request that free cores, whatever their sizes, cannot make up."""
    sizes = sorted({core.bit_count() for core in topology.cores.values()}, reverse=True)
    return AdmissionError(_SMT_SIZES, requested=count, sizes=", ".join(map(str, sizes)))


def check_smt_alignment(count: int, free_physical: int, cpus_per_core: int, release: Release = DEFAULT) -> None:
    """Check a request under `full-pcpus-only` (cpu-topology 6.2, step 4): `count` must fill whole cores, and as many
    CPUs must be free on cores without reserved CPUs. Raises `AdmissionError` with reason `SMTAlignmentError`."""
    if count % cpus_per_core:
        raise AdmissionError(_SMT_FRACTION, requested=count, cpus_per_core=cpus_per_core)
    if count > free_physical:
        if not (free_physical or release.smt_shortage_names_free_cores):
            raise AdmissionError(_SMT_FRACTION, requested=count, cpus_per_core=cpus_per_core)
        raise AdmissionError(_SMT_SHORT, available=free_physical, requested=count, cpus_per_core=cpus_per_core)


# Whole cores on machines whose cores differ in size. Upstream divides the number of CPUs by that of cores and takes the
# average for the size of every core (quirk `smt_check_uses_average`); so on a machine with P and E cores
# `full-pcpus-only` splits cores.


def take_units(
    topology: CPUTopology, take: Callable[[Bits, int], Bits], places: Sequence[Bits], count: int
) -> Bits | None:
    """Return whole cores that make up `count` CPUs, as many CPUs as possible from the first place, then from the next;
    within a place the largest cores first. `take` chooses among cores of one size. None where no free cores make up the
    number."""
    sums = [whole_core_sums(topology, place, count) for place in places]
    rests = _sums_after(sums, count)
    chosen, missing = 0, count
    for place, mine, rest in zip(places, sums, rests, strict=True):
        # As many CPUs as possible here, such that the later places can make up exactly the rest.
        amount = next((n for n in range(missing, -1, -1) if mine >> n & 1 and rest >> (missing - n) & 1), None)
        if amount is None:
            return None
        chosen |= _take_sizes(topology, take, place, amount)
        missing -= amount
    return None if missing else chosen


def _sums_after(sums: Sequence[Bits], limit: int) -> list[Bits]:
    """Return for each place, as bits, the numbers of CPUs that the places after it make up together."""
    rests, rest = [], 1
    for mine in reversed(sums):
        rests.append(rest)
        rest = _sum_sets(rest, mine, limit)
    return rests[::-1]


def _sum_sets(one: Bits, other: Bits, limit: int) -> Bits:
    """Return, as bits, the sums up to `limit` of a number of `one` and a number of `other`."""
    found, place = 0, 0
    while one >> place:
        if one >> place & 1:
            found |= other << place
        place += 1
    return found & (2 << limit) - 1


def _take_sizes(topology: CPUTopology, take: Callable[[Bits, int], Bits], place: Bits, amount: int) -> Bits:
    """Take `amount` CPUs in whole cores, the largest first as long as smaller ones make up the rest."""
    cores = free_cores(topology, place)
    sizes = sorted({core.bit_count() for core in cores}, reverse=True)
    chosen = 0
    for size in sizes:
        same = [core for core in cores if core.bit_count() == size]
        smaller = reachable_sums([core.bit_count() for core in cores if core.bit_count() < size], amount)
        number = next(_feasible_counts(size, min(len(same), amount // size), amount, smaller), 0)
        if number:
            chosen |= take(union(same), number * size)
            amount -= number * size
    return chosen


def _feasible_counts(size: int, most: int, amount: int, smaller: Bits) -> Iterator[int]:
    return (number for number in range(most, -1, -1) if smaller >> (amount - number * size) & 1)
