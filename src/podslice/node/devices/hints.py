"""Device hints: the sets of NUMA nodes that reach enough devices of one resource (memory-device 2.6).

Devices are bits of an int, so what a node set reaches is one union, and counting free devices on it one population
count. Where no device is on several nodes, the usual case, counts per node simply add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from podslice.node.topology.hintset import HintSet
from podslice.node.topology.needs import Need, Reach, all_met
from podslice.node.topology.search import SearchBudget, Size, fewest
from podslice.values.cpuset import Bits, bits_of, iter_bits


class Coverage:
    """The NUMA nodes of the listed devices of one resource.

    `on_node` maps NUMA ids to the devices on them (a device with several nodes appears under each; ids need not exist
    on the machine); `machine_nodes` are the machine's NUMA ids in machine order. Hints are sets of the nodes that have
    devices, with `everywhere` of all nodes.
    """

    def __init__(
        self, on_node: Mapping[int, Bits], machine_nodes: tuple[int, ...], *, everywhere: bool = False
    ) -> None:
        self.on_node = on_node
        having = () if everywhere else tuple(sorted(set(on_node) & set(machine_nodes)))
        self.nodes = having or machine_nodes
        self._places = tuple((node, on_node.get(node, 0)) for node in self.nodes)
        self._mask = bits_of(self.nodes)
        self._sizes: dict[int, Size] = {}

    def reach(self, mask: Bits) -> Bits:
        """Return the devices with at least one NUMA node in `mask`."""
        if mask > 0 and not mask & (mask - 1):
            return self.on_node.get(mask.bit_length() - 1, 0)
        devices = 0
        for node, there in self.on_node.items():
            if node >= 0 and mask >> node & 1:
                devices |= there
        return devices

    @cached_property
    def _has_one_node_each(self) -> bool:
        """Whether no device is on several nodes."""
        return sum(there.bit_count() for there in self.on_node.values()) == self.placed.bit_count()

    @cached_property
    def placed(self) -> Bits:
        """Devices with any NUMA node at all."""
        devices = 0
        for there in self.on_node.values():
            devices |= there
        return devices

    def _smallest(self, count: int) -> Size:
        """Return the fewest nodes that could reach `count` devices if all were free (all nodes if none could)."""
        found = self._sizes[count] = fewest(self._mask, (self._reach(-1, count),)) or Size(len(self.nodes), True)
        return found

    def hints(
        self, available: Bits, count: int, *, reusable: Bits = 0, search_budget: SearchBudget | None = None
    ) -> HintSet | None:
        """Return the hints for `count` devices out of `available` and `reusable`; None when no set of nodes reaches as
        many (memory-device 2.6).

        A mask must reach every reusable device; preferred are masks as small as the machine allows.
        """
        needed = count - reusable.bit_count()
        reach = self._reach(available, needed)
        needs = (reach, *self._needs_for_each(reusable)) if reusable else (reach,)
        singles = 0
        for node, here in reach.values.items():
            if here >= needed and not (reusable and reusable & ~self.on_node.get(node, 0)):
                singles |= 1 << node
        if not singles and not all_met(needs, self._mask):
            return None
        open_nodes = self._mask if len(self.nodes) > 1 else 0
        smallest, proven = self._sizes.get(count) or self._smallest(count)
        return HintSet(
            self.nodes,
            smallest,
            singles,
            open_nodes=open_nodes,
            needs=needs,
            proven=proven,
            search_budget=search_budget,
        )

    def _reach(self, devices: Bits, amount: int) -> Need:
        """Return the need for `amount` of these devices: a sum per node, unless devices are on several nodes."""
        if self._has_one_node_each:
            return Need({node: (there & devices).bit_count() for node, there in self._places}, amount)
        return Reach.of({node: there & devices for node, there in self._places}, amount)

    def _needs_for_each(self, devices: Bits) -> tuple[Need, ...]:
        """Return a need for each device: one of its nodes."""
        places: set[Bits] = set()
        for device in iter_bits(devices):
            places.add(bits_of(node for node in self.nodes if self.on_node.get(node, 0) >> device & 1))
        return tuple(Need.nodes(place, 1) for place in sorted(places))
