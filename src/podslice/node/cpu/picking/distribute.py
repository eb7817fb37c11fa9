"""Distribute CPUs evenly over NUMA nodes (option `distribute-cpus-across-numa`; cpu-topology 4.7, 4.8).

For k from the fewest nodes that could do, or from as many as the merge chose, upward: among all combinations of k
nodes, take the one whose left-overs are balanced best. Give each of its nodes the same share, and hand out the
remainder group by group.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

import msgspec

from podslice.node.cpu.picking.balance import Distribution
from podslice.node.cpu.picking.combinations import Choice, Combinations
from podslice.node.cpu.picking.packed import Accumulator, Packer, not_enough
from podslice.node.topology.search import SearchBudget, search_budget_over
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, RefusalKind, UpstreamDefectError

_TOO_FEW = RefusalKind("too-few-cpus-dealt", "accounting error, not enough CPUs allocated, remaining: {remaining}")
_TOO_MANY = RefusalKind("too-many-cpus-dealt", "accounting error, too many CPUs allocated, remaining: {remaining}")


class Pick(msgspec.Struct, frozen=True):
    """CPUs to hand out; `proven`: no search for better ones was cut short."""

    cpus: Bits
    proven: bool = True


class Distributor:
    """Picks CPUs in multiples of `group`, evenly from as few NUMA nodes as possible (cpu-topology 4.7). `packer` packs
    the CPUs of each node, and whole requests that are no multiple of `group`."""

    def __init__(self, packer: Packer, group: int) -> None:
        self._packer = packer
        self._group = group

    def take(
        self, available: Bits, count: int, search_budget: SearchBudget | None = None, *, node_count: int = 0
    ) -> Pick:
        """Pick `count` CPUs, on `node_count` nodes or more where that many have room. `search_budget` bounds the search
        for the best combination of nodes.

        Raises `AdmissionError`; `UpstreamDefectError` where upstream never ends (quirk `endless_distribution`).
        """
        # Upstream falls back to packing for a request that is not a multiple of a core.
        if count % self._group:
            return Pick(self._packer.take(available, count))
        if count < 1:
            return Pick(0)
        work = Accumulator(self._packer, available, count)
        if count > work.free.bit_count():
            raise not_enough(count, available)
        search_budget = search_budget_over(work.topology.numa_mask, search_budget)
        before = search_budget.left
        search = Combinations(work, Distribution(count, self._group), self._packer.quirks, search_budget)
        if node_count > 1 and 1 < len(search.free) <= node_count and (cpus := self._fill(available, count, search)):
            return Pick(cpus)
        choice = self._choose(search, count, node_count)
        if choice is None:
            return Pick(self._packer.take(available, count), not search_budget.has_ended_since(before))
        self._hand_out(work, choice, search)
        return Pick(work.result, not search_budget.has_ended_since(before))

    def _fill(self, available: Bits, count: int, search: Combinations) -> Bits:
        """Return CPUs of all nodes, as evenly as their free CPUs allow, where some have less than an even share; 0
        where all have it, or together too little."""
        groups, left = {node: free // self._group for node, free in search.free.items()}, count // self._group
        if min(groups.values()) >= left // len(groups) or sum(groups.values()) < left:
            return 0
        work = Accumulator(self._packer, available, count)
        for place, (node, free) in enumerate(sorted(groups.items(), key=itemgetter(1))):
            share = min(free, left // (len(groups) - place))
            self._take_from(work, work.topology.numa_nodes[node], share * self._group)
            left -= share
        return 0 if work.need else work.result

    def _choose(self, search: Combinations, count: int, node_count: int) -> Choice | None:
        """Return the best combination of the fewest nodes that can hold the request, or of `node_count` and more where
        these can; None if there is none."""
        topology, group = self._packer.topology, self._group
        # Upstream rounds up at every step; the first size to try must be the same.
        machine_groups = (topology.all_cpus.bit_count() - 1) // group + 1
        groups_per_node = (machine_groups - 1) // len(topology.numa_nodes) + 1
        groups = (count - 1) // group + 1
        fewest = (groups - 1) // groups_per_node + 1
        most = min(groups, len(search.free))
        sizes: Iterable[int] = range(fewest, most + 1)
        if node_count > fewest:
            start = max(fewest, min(node_count, most))
            sizes = (*range(start, most + 1), *range(fewest, start))
        for size in sizes:
            if sum(search.fullest[:size]) >= count and (choice := search.best(size)) is not None:
                return choice
        return None

    def _hand_out(self, work: Accumulator, choice: Choice, search: Combinations) -> None:
        """Take the shares of all nodes, then the remainder group by group. Raises `AdmissionError` where the sum is
        wrong."""
        nodes, (_, group) = work.topology.numa_nodes, search.deal
        share = search.deal.share(len(choice.nodes))
        # One share for each occurrence: a node across two sockets may be listed twice (cpu-topology 4.3).
        for node in choice.nodes:
            self._take_from(work, nodes[node], share)
        remainder = search.deal.remainder(len(choice.nodes))
        while remainder > 0:
            before = remainder
            for node in choice.remainder:
                if remainder == 0:
                    break
                if (work.free & nodes[node]).bit_count() >= group:
                    self._take_from(work, nodes[node], group)
                    remainder -= group
            if remainder == before:
                if search.endless:
                    raise UpstreamDefectError(
                        "endless_distribution",
                        "the nodes chosen for the remainder have no whole group left",
                        hangs=True,
                    )
                break
        if work.need > 0:
            raise AdmissionError(_TOO_FEW, remaining=work.need)
        if work.need < 0:
            raise AdmissionError(_TOO_MANY, remaining=work.need)

    def _take_from(self, work: Accumulator, node: Bits, count: int) -> None:
        try:
            work.take(self._packer.take(work.free & node, count))
        # Upstream ignores the error here; the accounting check in `_hand_out` then reports the CPUs that are missing.
        except AdmissionError:
            return
