"""Device hints: which sets of NUMA nodes reach enough devices of one resource (spec memory-device 2.6).

Devices are bits of an int, so what a node set reaches is one union, and counting free devices on it one population
count. The unions depend only on the plugin's device list; they are worked out once per list.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from podslice.core.hints.hint import Hint
from podslice.core.hints.masks import enumerate_masks
from podslice.core.values.cpuset import Bits, iter_bits


class Coverage:
    """Where the listed devices of one resource are.

    `on_node` maps NUMA ids to the devices on them (a device with several nodes appears under each; ids need not exist
    on the machine); `machine_nodes` are the machine's NUMA ids in machine order.
    """

    def __init__(self, on_node: Mapping[int, Bits], machine_nodes: tuple[int, ...]) -> None:
        self.on_node = on_node
        self.nodes = tuple(sorted(set(on_node) & set(machine_nodes))) or machine_nodes

    def reach(self, mask: Bits) -> Bits:
        """Devices with at least one NUMA node in `mask`."""
        devices = 0
        for node in iter_bits(mask):
            devices |= self.on_node.get(node, 0)
        return devices

    @cached_property
    def placed(self) -> Bits:
        """Devices with any NUMA node at all."""
        devices = 0
        for there in self.on_node.values():
            devices |= there
        return devices

    @cached_property
    def reached(self) -> list[Bits]:
        """`reach` of every set of `nodes`, addressed by the index of `enumerate_masks`."""
        table = [0]
        for node in self.nodes:
            there = self.on_node.get(node, 0)
            table += [devices | there for devices in table]
        return table

    @cached_property
    def _most(self) -> list[int]:
        """Most devices, used or not, that a set of so many nodes reaches."""
        most = [0] * (len(self.nodes) + 1)
        for index, devices in enumerate(self.reached):
            size = index.bit_count()
            most[size] = max(most[size], devices.bit_count())
        return most

    def smallest_size(self, count: int) -> int:
        """Fewest nodes that could reach `count` devices if all were free; all nodes if none could."""
        for size in range(1, len(self.nodes)):
            if self._most[size] >= count:
                return size
        return len(self.nodes)

    def hints(self, available: Bits, count: int, *, reusable: Bits = 0) -> list[Hint]:
        """Hints for `count` devices out of `available` and `reusable`, in enumeration order (spec 2.6, generate).

        A mask must reach every reusable device; preferred are masks as small as the machine allows.
        """
        smallest = self.smallest_size(count)
        missing = count - reusable.bit_count()
        reached = self.reached
        return [
            Hint(mask, index.bit_count() == smallest)
            for index, mask in enumerate_masks(self.nodes)
            if (available & reached[index]).bit_count() >= missing and not reusable & ~reached[index]
        ]
