"""Equivalence of devices in a search: where one of them leads nowhere, neither does another.

The scheduler tries them all, and has no answer after ten seconds where there are many (devices for each CPU of a NUMA
node, and a request for one more than there are). It would find the same: of equivalent devices the first is tried
first, and whatever could be done with a later one could be done with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from podslice.dra.allocation.pools import Amounts, Pool
from podslice.dra.allocation.usage import DeviceUsage
from podslice.dra.objects import ALL, DeviceClaim

Place = tuple[int, int]
"""A device by its pool's place and its own place in the pool."""
EquivalenceKey = tuple[int, bool, tuple[tuple[str, int], ...]]
"""Equal for devices that are equivalent and used equally."""


class AbleDevice(NamedTuple):
    """A device that can serve a request while it is free, by its pool's place and its own there; `consumed` is the
    amount that the request takes of one that serves many."""

    pool: int
    place: int
    consumed: Amounts | None


class EquivalentDevices:
    """Equivalence of devices for these claims: they serve the same forms of requests with the same amounts, and have
    the same values of the attributes that constraints compare. `able`: the devices of every form of the claims."""

    def __init__(
        self,
        pools: Sequence[Pool],
        usage: DeviceUsage,
        claims: Iterable[DeviceClaim],
        able: Mapping[tuple[int, str], Iterable[AbleDevice]],
    ) -> None:
        self._pools = pools
        self._usage = usage
        serves: dict[Place, list[object]] = {}
        for form, devices in able.items():
            for one in devices:
                serves.setdefault((one.pool, one.place), []).append((form, _freeze(one.consumed)))
        names = sorted({rule.match_attribute or "" for claim in claims for rule in claim.constraints})
        kinds: dict[object, int] = {}
        self._kinds = {
            where: kinds.setdefault((tuple(forms), self._look(where, names)), len(kinds))
            for where, forms in serves.items()
        }

    def _look(self, where: Place, names: Iterable[str]) -> object:
        """Return the other properties of a device that decide."""
        pool = self._pools[where[0]]
        offered = pool.devices[where[1]]
        counters = tuple((which, _freeze(amounts)) for which, amounts in offered.counters)
        return (
            tuple(offered.attributes.get(name) for name in names),
            tuple(sorted(offered.capacity.items())),
            (where[0], counters) if counters else (),
            offered.taints,
            offered.shared,
        )

    def key(self, one: AbleDevice) -> EquivalenceKey:
        """Return the equivalence key of a device as it is used now."""
        device = self._pools[one.pool].devices[one.place].id
        held = self._usage.consumed.get(device)
        return self._kinds[one.pool, one.place], device in self._usage.owned, () if held is None else _freeze(held)


def backtracks_cleanly(claim: DeviceClaim) -> bool:
    """Whether a search for this claim leaves no trace where it backtracks: `All` and `distinctAttribute` do leave one
    in v1.36.2 (docs/dra.md)."""
    forms = (form for request in claim.requests for _, form in request.forms())
    distinct = any(rule.distinct_attribute is not None for rule in claim.constraints)
    return not distinct and all(form.allocation_mode != ALL for form in forms)


def _freeze(amounts: Amounts | None) -> tuple[tuple[str, int], ...]:
    return () if amounts is None else tuple(sorted(amounts.items()))
