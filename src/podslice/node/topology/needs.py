"""Needs of a request: an amount that a set of NUMA nodes must supply in total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from podslice.values.cpuset import Bits, iter_bits


class Need(msgspec.Struct, eq=False):
    """At least `amount` in total from the nodes of a set; `values` is the supply of each node."""

    values: Mapping[int, int]
    amount: int
    additive: ClassVar[bool] = True

    @classmethod
    def nodes(cls, mask: Bits, amount: int) -> Need:
        """Return the need for at least `amount` nodes of `mask`."""
        values = dict.fromkeys(iter_bits(mask), 1)
        # Nodes that must all be there need no search, so they have a type of their own.
        return AllOf(values, amount, mask) if amount == len(values) else Need(values, amount)

    def is_met_by(self, mask: Bits) -> bool:
        """Whether the nodes of `mask` supply enough."""
        return _supply(self.values, mask) >= self.amount

    def remaining_after(self, mask: Bits) -> Need:
        """Return what is still needed when the nodes of `mask` are used anyway."""
        return Need(self.values, self.amount - _supply(self.values, mask))


def _supply(values: Mapping[int, int], mask: Bits) -> int:
    """Return the total supply of a mask's nodes. Called so often that a walk by `iter_bits` would show in the
    benchmarks."""
    total = 0
    while mask:
        low = mask & -mask
        total += values.get(low.bit_length() - 1, 0)
        mask ^= low
    return total


class AllOf(Need, eq=False):
    """The need for all nodes of `mask`: no search has to decide about them."""

    mask: Bits

    def is_met_by(self, mask: Bits) -> bool:
        return not self.mask & ~mask

    def remaining_after(self, mask: Bits) -> Need:
        left = self.mask & ~mask
        return self if left == self.mask else AllOf(dict.fromkeys(iter_bits(left), 1), left.bit_count(), left)


def split_named(needs: Iterable[Need]) -> tuple[Bits, list[Need]]:
    """Return the nodes that some needs name one by one, and the other needs that remain beside them."""
    named, others = 0, []
    for need in needs:
        if isinstance(need, AllOf):
            named |= need.mask
        else:
            others.append(need)
    if named:
        others = [left for need in others if (left := need.remaining_after(named)).amount > 0]
    return named, others


class Reach(Need, eq=False):
    """At least `amount` different `devices` on the nodes of a set, where one device can be on several nodes."""

    devices: Mapping[int, Bits]
    additive: ClassVar[bool] = False

    @classmethod
    def of(cls, devices: Mapping[int, Bits], amount: int) -> Reach:
        """Return the need for `amount` of the devices, which are given by node."""
        return cls({node: there.bit_count() for node, there in devices.items()}, amount, devices)

    def devices_on(self, mask: Bits) -> Bits:
        """Return the devices on the nodes of `mask`."""
        reached = 0
        for node in iter_bits(mask):
            reached |= self.devices.get(node, 0)
        return reached

    def is_met_by(self, mask: Bits) -> bool:
        return self.devices_on(mask).bit_count() >= self.amount

    def remaining_after(self, mask: Bits) -> Need:
        reached = self.devices_on(mask)
        rest = {node: there & ~reached for node, there in self.devices.items()}
        return Reach.of(rest, self.amount - reached.bit_count())


def all_met(needs: Iterable[Need], mask: Bits) -> bool:
    """Whether a set of nodes meets every need."""
    for need in needs:  # noqa: SIM110 - a generator for each set of nodes takes longer than the answer
        if not need.is_met_by(mask):
            return False
    return True


def pick_enough(nodes: Bits, needs: Iterable[Need]) -> Bits:
    """Return some of the `nodes` that meet all needs, found by adding the node that supplies most of what is missing;
    all of them where even those do not."""
    chosen = 0
    left = list(needs)
    while nodes & ~chosen:
        left = [need for need in (need.remaining_after(chosen) for need in needs) if need.amount > 0]
        if not left:
            break
        chosen |= 1 << max(iter_bits(nodes & ~chosen), key=lambda node: _share(left, node))
    return chosen


def _share(needs: Iterable[Need], node: int) -> tuple[float, int]:
    """Return the share of the missing amounts that a node supplies; of equal nodes the lower one counts more."""
    return sum([min(1.0, need.values.get(node, 0) / need.amount) for need in needs]), -node
