"""Search for the devices that all claims of a pod get together on one node: depth-first, and the first solution wins
(cluster-integration A.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from podslice.dra.allocation.equivalence import AbleDevice, EquivalenceKey, EquivalentDevices, backtracks_cleanly
from podslice.dra.allocation.pools import OfferedDevice, Pool
from podslice.dra.allocation.selectors import SelectorCache, SelectorError
from podslice.dra.allocation.usage import DeviceGrant, DeviceUsage, can_serve, consumption_of
from podslice.dra.objects import ALL, DeviceClaim, DeviceConstraint, DeviceSubRequest, TypedValue
from podslice.scheduling.taints import Tolerations
from podslice.values.errors import PodsliceError

MOST_RESULTS = 32
"""Most devices of one claim."""
MOST_STEPS = 200_000
"""Most devices tried before a search is given up."""
STEPS_BEFORE_PRUNING = 64
"""After this many tries a search skips devices that are equivalent to one that led nowhere. Before, computing the
equivalence would cost more than it saves."""
MOST_PRUNED = 10 * MOST_STEPS


class SearchLimitError(PodsliceError):
    """Raised at the step limit. The scheduler would give up too, after ten seconds, and try again."""

    def __init__(self) -> None:
        super().__init__(f"no answer after {MOST_STEPS} tries")


class RequestedClaim(NamedTuple):
    """A claim by the name under which messages mention it."""

    name: str
    devices: DeviceClaim


class Deepest(NamedTuple):
    """The farthest state of a search: its grants, and the request for which it found no device then."""

    grants: tuple[DeviceGrant, ...] = ()
    claim: int = 0
    request: str = ""


Refusal = Literal["", "room", "taint", "constraint"]
"""The kind of obstacle between a device and a request; empty for none."""


FormKey = tuple[int, str]
"""The claim's place, and the request's name with that of its form."""
AbleDevices = dict[FormKey, tuple[AbleDevice, ...]]
"""Devices that can serve each form; equal for nodes whose pools have the same shape."""


class AbandonedError(PodsliceError):
    """Raised where the scheduler gives up the whole pod, in its words."""


class _Constraint:
    """State of one constraint: the attribute values of the devices taken so far, and those that they have in common.

    Of a request with several devices v1.36.2 keeps the value of the last one only, and none after that one was taken
    back or refused by a later constraint: `distinctAttribute` guarantees less than it promises (docs/dra.md).
    """

    def __init__(self, rule: DeviceConstraint) -> None:
        self.rule = rule
        self._name = rule.match_attribute or rule.distinct_attribute or ""
        self._common: list[frozenset[object]] = []
        self._distinct: dict[str, frozenset[object]] = {}

    def admits(self, offered: OfferedDevice) -> bool:
        value = offered.attributes.get(self._name)
        if value is None:
            return False
        values = _values(value)
        if self.rule.match_attribute is not None:
            return not self._common or not self._common[-1].isdisjoint(values)
        return all(values.isdisjoint(others) for others in self._distinct.values())

    def add(self, grant: DeviceGrant) -> None:
        values = _values(grant.offered.attributes[self._name])
        self._common.append(values & self._common[-1] if self._common else values)
        self._distinct[grant.request] = values

    def remove(self, grant: DeviceGrant) -> None:
        self._common.pop()
        self._distinct.pop(grant.request, None)


def _values(value: TypedValue) -> frozenset[object]:
    """Return the values of an attribute with their type: a list is a set, and one value is a set of it (KEP-5491)."""
    kind, own = value
    return frozenset((kind, one) for one in (own if isinstance(own, tuple) else (own,)))


class _Taken(NamedTuple):
    """A grant of a claim; `first` where the device was not in use before."""

    claim: int
    grant: DeviceGrant
    first: bool


class Search:
    """A search on one node for the claims of one pod. `usage` changes while it runs and is restored afterwards.
    `candidates` come from a search for the same claims on a node of the same shape; missing ones are added."""

    def __init__(
        self,
        pools: Sequence[Pool],
        usage: DeviceUsage,
        selectors: SelectorCache,
        claims: Sequence[RequestedClaim],
        candidates: AbleDevices | None = None,
    ) -> None:
        self._pools = pools
        self._usage = usage
        self._selectors = selectors
        self._claims = claims
        self._constraints = [[_Constraint(rule) for rule in one.devices.constraints] for one in claims]
        self._taken: list[_Taken] = []
        self._counts = [0] * len(claims)
        self._steps = 0
        self._pruned = 0
        self._regular = False
        self._equivalent: EquivalentDevices | None = None
        self._candidates: AbleDevices = {} if candidates is None else candidates
        self._every: dict[FormKey, list[AbleDevice]] = {}
        """The devices of each form of mode All."""
        self._leaked: list[OfferedDevice] = []
        self.deepest = Deepest()

    def run(self) -> list[tuple[DeviceGrant, ...]] | None:
        """Return the grants of each claim, None where there is no room for all. Raises `SelectorError`,
        `UnknownClassError`, `AbandonedError` and `SearchLimitError`."""
        for number, claim in enumerate(self._claims):
            for request in claim.devices.requests:
                for name, form in request.forms():
                    self._selectors.expressions(form, name)
                    if form.allocation_mode == ALL:
                        self._every[number, name] = self._find_all(number, name, form)
        # The API server stores at most 32 results, so the scheduler does not even look.
        if any(_fewest_devices(claim.devices) > MOST_RESULTS for claim in self._claims):
            return None
        self._regular = all(backtracks_cleanly(one.devices) for one in self._claims)
        try:
            found = self._allocate_request(0, 0)
            taken = tuple(self._taken)
        finally:
            while self._taken:
                self._undo()
            while self._leaked:
                self._usage.count(self._leaked.pop(), -1)
        if not found:
            return None
        return [tuple(one.grant for one in taken if one.claim == number) for number in range(len(self._claims))]

    def _find_all(self, claim: int, name: str, form: DeviceSubRequest) -> list[AbleDevice]:
        """Return the devices that mode All means: those with room for the request, as it is before the pod. Every pool
        that the scheduler sees on this node must be complete. Raises `AbandonedError`."""
        for pool in self._pools:
            if not pool.complete:
                raise AbandonedError(
                    f"claim {self._claims[claim].name}, request {name.rpartition('/')[2]}: asks for all devices, but "
                    f"resource pool {pool.driver}/{pool.name} is currently being updated"
                )
        return [one for one in self._candidates_of(claim, name, form) if self._has_room(one)]

    def _has_room(self, one: AbleDevice) -> bool:
        pool = self._pools[one.pool]
        offered = pool.devices[one.place]
        return not offered.shared or self._usage.fits(offered, one.consumed, pool.counters)

    def _candidates_of(self, claim: int, name: str, form: DeviceSubRequest) -> tuple[AbleDevice, ...]:
        """Return the candidates of a form, in order. Raises `SelectorError`."""
        found = self._candidates.get((claim, name))
        if found is None:
            found = self._candidates[claim, name] = tuple(self._find_able(name, form))
        return found

    def _find_able(self, name: str, form: DeviceSubRequest) -> Iterator[AbleDevice]:
        """Yield the devices that the selectors match and that have the requested amounts."""
        expressions = self._selectors.expressions(form, name)
        for number, pool in enumerate(self._pools):
            if not pool.complete or pool.problem:
                continue
            for place, offered in enumerate(pool.devices):
                if self._selectors.first_unmet(expressions, offered) is not None or not can_serve(offered, form):
                    continue
                consumed = consumption_of(offered, form) if offered.shared else None
                if consumed is not None or not offered.shared:
                    yield AbleDevice(number, place, consumed)

    def _allocate_request(self, claim: int, index: int) -> bool:
        """Allocate from this request on, and return whether all could be met."""
        if claim == len(self._claims):
            return True
        requests = self._claims[claim].devices.requests
        if index == len(requests):
            return self._allocate_request(claim + 1, 0)
        return any(
            self._allocate_all(claim, index, name, form)
            if form.allocation_mode == ALL
            else self._allocate_devices(_FormPlace(claim, index, name, form), 0, form.count)
            for name, form in requests[index].forms()
        )

    def _allocate_all(self, claim: int, index: int, name: str, form: DeviceSubRequest) -> bool:
        """Take every device that the selectors match, then go on; return whether all requests could be met."""
        before = len(self._taken)
        chosen = self._every[claim, name]
        for one in chosen:
            offered = self._pools[one.pool].devices[one.place]
            refusal = self._take(claim, name, form, one)
            if refusal == "room" and offered.shared and tolerates(form, offered):
                # v1.36.2 adds the device to the constraints before it checks the room, and does not remove it
                refusal = (
                    "room"
                    if self._add_to_constraints(claim, DeviceGrant(name, offered, one.consumed))
                    else "constraint"
                )
            if refusal == "constraint":
                raise AbandonedError(
                    f"claim {self._claims[claim].name}, request {name.rpartition('/')[2]}: cannot add device "
                    f"{'/'.join(offered.id)} because a claim constraint would not be satisfied"
                )
            if refusal:
                break
        else:
            if chosen and self._allocate_request(claim, index + 1):
                return True
        while len(self._taken) > before:
            self._undo()
        return False

    def _allocate_devices(self, at: _FormPlace, start: int, missing: int) -> bool:
        """Take `missing` more devices from place `start` on: their order makes no difference."""
        if not missing:
            return self._allocate_request(at.claim, at.number + 1)
        self._note_deepest(at)
        candidates = self._candidates_of(at.claim, at.name, at.form)
        in_vain: set[EquivalenceKey] = set()
        for place in range(start, len(candidates)):
            one, leaked = candidates[place], len(self._leaked)
            likeness = self._equivalence_key(one)
            if likeness in in_vain:
                self._count_pruned()
                continue
            if not self._take(at.claim, at.name, at.form, one):
                if self._allocate_devices(at, place + 1, missing - 1):
                    return True
                self._undo()
            if likeness is not None and len(self._leaked) == leaked:
                in_vain.add(likeness)
        return False

    def _equivalence_key(self, one: AbleDevice) -> EquivalenceKey | None:
        """Return a key that equivalent devices share; None while the search is short."""
        if self._steps <= STEPS_BEFORE_PRUNING or not self._regular:
            return None
        if self._equivalent is None:
            try:
                able = {
                    (number, name): self._candidates_of(number, name, form)
                    for number, claim in enumerate(self._claims)
                    for request in claim.devices.requests
                    for name, form in request.forms()
                }
            except SelectorError:
                # The form may be one that the search never reaches, so the error must not end it here.
                self._regular = False
                return None
            self._equivalent = EquivalentDevices(
                self._pools, self._usage, [claim.devices for claim in self._claims], able
            )
        return self._equivalent.key(one)

    def _count_pruned(self) -> None:
        self._pruned += 1
        if self._pruned > MOST_PRUNED:
            raise SearchLimitError

    def _note_deepest(self, at: _FormPlace) -> None:
        if len(self._taken) > len(self.deepest.grants) or not self.deepest.request:
            self.deepest = Deepest(tuple(one.grant for one in self._taken), at.claim, at.name)

    def _take(self, claim: int, name: str, form: DeviceSubRequest, one: AbleDevice) -> Refusal:
        """Take the device, and return what forbids it, empty for nothing."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise SearchLimitError
        if self._counts[claim] == MOST_RESULTS:
            return "room"
        pool, consumed = self._pools[one.pool], one.consumed
        offered = pool.devices[one.place]
        if not form.admin_access and not self._usage.fits(offered, consumed, pool.counters):
            return "room"
        grant = DeviceGrant(name, offered, consumed, form.admin_access)
        refusal: Refusal = "" if tolerates(form, offered) else "taint"
        if not refusal and not self._add_to_constraints(claim, grant):
            refusal = "constraint"
        if refusal:
            self._leak(offered)
            return refusal
        self._taken.append(_Taken(claim, grant, not self._usage.is_used(offered.id)))
        self._usage.take(grant, self._claims[claim].name)
        self._counts[claim] += 1
        return ""

    def _add_to_constraints(self, claim: int, grant: DeviceGrant) -> bool:
        """Add the device to all constraints; where one refuses, remove it from those before, and return False."""
        added: list[_Constraint] = []
        for one in self._constraints[claim]:
            if one.rule.applies_to(grant.request):
                if not one.admits(grant.offered):
                    for earlier in added:
                        earlier.remove(grant)
                    return False
                one.add(grant)
                added.append(one)
        return True

    def _leak(self, offered: OfferedDevice) -> None:
        """Count the counters of a refused device. v1.36.2 counts them before it checks taints and constraints, and
        gives nothing back until the search is over (docs/dra.md)."""
        if offered.counters:
            self._leaked.append(offered)
            self._usage.count(offered, 1)

    def _undo(self) -> None:
        claim, grant, first = self._taken.pop()
        self._usage.give_back(grant, first=first)
        self._counts[claim] -= 1
        for one in self._constraints[claim]:
            if one.rule.applies_to(grant.request):
                one.remove(grant)


class _FormPlace(NamedTuple):
    """The form of a request that is being met."""

    claim: int
    number: int
    name: str
    form: DeviceSubRequest


def _fewest_devices(devices: DeviceClaim) -> int:
    """Return the fewest devices with which a claim can be met."""
    return sum(
        min(1 if form.allocation_mode == ALL else form.count for _, form in request.forms())
        for request in devices.requests
    )


def tolerates(form: DeviceSubRequest, offered: OfferedDevice) -> bool:
    """Whether the request tolerates all taints that keep claims away."""
    taints = [taint for taint in offered.taints if taint.excludes]
    return not taints or all(map(Tolerations.of(form.tolerations).tolerate, taints))
