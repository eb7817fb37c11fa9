"""The devices that all claims of a pod get together on one node: a depth-first search whose first solution wins
(cluster-integration A.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from podslice.dra.allocation.pools import OfferedDevice, Pool
from podslice.dra.allocation.selecting import Selecting, SelectorError
from podslice.dra.allocation.twins import AbleDevice, Likeness, Twins, interchangeable
from podslice.dra.allocation.usage import DeviceGrant, DeviceUsage, asked_of, can_serve
from podslice.dra.objects import ALL, DeviceClaim, DeviceConstraint, DeviceSubRequest
from podslice.values.errors import PodsliceError

MOST_RESULTS = 32
"""Devices of one claim."""
MOST_STEPS = 200_000
"""Devices that are tried before a search is given up."""
STEPS_WITHOUT_TWINS = 64
"""A search that has tried so many leaves out devices that are like one that led nowhere."""
MOST_LEFT_OUT = 10 * MOST_STEPS


class SearchLimitError(PodsliceError):
    """The scheduler would give up too, after ten seconds, and try again."""

    def __init__(self) -> None:
        super().__init__(f"no answer after {MOST_STEPS} tries")


class WantedClaim(NamedTuple):
    """A claim by the name that people know it under."""

    name: str
    devices: DeviceClaim


class Deepest(NamedTuple):
    """How far a search came: the grants it had, and the request for which it found no device then."""

    grants: tuple[DeviceGrant, ...] = ()
    claim: int = 0
    request: str = ""


Refusal = Literal["", "room", "taint", "constraint"]
"""What keeps a device from a request, empty for nothing."""


FormKey = tuple[int, str]
"""The claim's place and the request's name, with its form's."""
AbleDevices = dict[FormKey, tuple[AbleDevice, ...]]
"""Equal for nodes whose pools have the same shape."""


class AbandonedError(PodsliceError):
    """The scheduler gives the whole pod up, in its words."""


class _Constraint:
    """What one constraint has seen of the devices so far.

    Of a request with several devices v1.36.2 keeps the value of the last one, and after that was taken back, or was
    refused by a later constraint, none: `distinctAttribute` says less than it promises (docs/dra.md).
    """

    def __init__(self, rule: DeviceConstraint) -> None:
        self.rule = rule
        self._name = rule.match_attribute or rule.distinct_attribute or ""
        self._common: list[tuple[str, int | bool | str]] = []
        self._distinct: dict[str, tuple[str, int | bool | str]] = {}

    def admits(self, offered: OfferedDevice) -> bool:
        value = offered.attributes.get(self._name)
        if value is None:
            return False
        if self.rule.match_attribute is not None:
            return not self._common or self._common[0] == value
        return value not in self._distinct.values()

    def add(self, grant: DeviceGrant) -> None:
        value = grant.offered.attributes[self._name]
        self._common.append(value)
        self._distinct[grant.request] = value

    def remove(self, grant: DeviceGrant) -> None:
        self._common.pop()
        self._distinct.pop(grant.request, None)


class _Taken(NamedTuple):
    """A grant of a claim; `first` when nobody used the device before."""

    claim: int
    grant: DeviceGrant
    first: bool


class Search:
    """One node and the claims of one pod. `usage` is changed while it runs and as it was afterwards. `candidates` are
    those of a search for the same claims on a node of the same shape, and what is missing is added."""

    def __init__(
        self,
        pools: Sequence[Pool],
        usage: DeviceUsage,
        selecting: Selecting,
        claims: Sequence[WantedClaim],
        candidates: AbleDevices | None = None,
    ) -> None:
        self._pools = pools
        self._usage = usage
        self._selecting = selecting
        self._claims = claims
        self._constraints = [[_Constraint(rule) for rule in one.devices.constraints] for one in claims]
        self._taken: list[_Taken] = []
        self._counts = [0] * len(claims)
        self._steps = 0
        self._left_out = 0
        self._regular = False
        self._twins: Twins | None = None
        self._candidates: AbleDevices = {} if candidates is None else candidates
        self._every: dict[FormKey, list[AbleDevice]] = {}
        """The devices of each form that wants all."""
        self._leaked: list[OfferedDevice] = []
        self.deepest = Deepest()

    def run(self) -> list[tuple[DeviceGrant, ...]] | None:
        """The grants of each claim, None where there is no room for all. Raises `SelectorError`, `UnknownClassError`
        and `SearchLimitError`."""
        for number, claim in enumerate(self._claims):
            for request in claim.devices.requests:
                for name, form in request.forms():
                    self._selecting.expressions(form, name)
                    if form.allocation_mode == ALL:
                        self._every[number, name] = self._all_of(number, name, form)
        if any(_least(claim.devices) > MOST_RESULTS for claim in self._claims):
            return None
        self._regular = all(interchangeable(one.devices) for one in self._claims)
        try:
            found = self._request(0, 0)
            taken = tuple(self._taken)
        finally:
            while self._taken:
                self._undo()
            while self._leaked:
                self._usage.count(self._leaked.pop(), -1)
        if not found:
            return None
        return [tuple(one.grant for one in taken if one.claim == number) for number in range(len(self._claims))]

    def _all_of(self, claim: int, name: str, form: DeviceSubRequest) -> list[AbleDevice]:
        """The devices that all means: those with room for what is asked, as it is before the pod. Every pool that the
        scheduler sees on this node must be whole. Raises `AbandonedError`."""
        for pool in self._pools:
            if not pool.complete:
                raise AbandonedError(
                    f"claim {self._claims[claim].name}, request {name.rpartition('/')[2]}: asks for all devices, but "
                    f"resource pool {pool.driver}/{pool.name} is currently being updated"
                )
        return [one for one in self._of_form(claim, name, form) if self._has_room(one)]

    def _has_room(self, one: AbleDevice) -> bool:
        pool = self._pools[one.pool]
        offered = pool.devices[one.place]
        return not offered.shared or self._usage.fits(offered, one.consumed, pool.counters)

    def _of_form(self, claim: int, name: str, form: DeviceSubRequest) -> tuple[AbleDevice, ...]:
        """In order. Raises `SelectorError`."""
        found = self._candidates.get((claim, name))
        if found is None:
            found = self._candidates[claim, name] = tuple(self._able(name, form))
        return found

    def _able(self, name: str, form: DeviceSubRequest) -> Iterator[AbleDevice]:
        """Devices that the selectors mean, and that have what is asked for."""
        expressions = self._selecting.expressions(form, name)
        for number, pool in enumerate(self._pools):
            if not pool.complete or pool.problem:
                continue
            for place, offered in enumerate(pool.devices):
                if self._selecting.unmet(expressions, offered) is not None or not can_serve(offered, form):
                    continue
                consumed = asked_of(offered, form) if offered.shared else None
                if consumed is not None or not offered.shared:
                    yield AbleDevice(number, place, consumed)

    def _request(self, claim: int, index: int) -> bool:
        if claim == len(self._claims):
            return True
        requests = self._claims[claim].devices.requests
        if index == len(requests):
            return self._request(claim + 1, 0)
        return any(
            self._all(claim, index, name, form)
            if form.allocation_mode == ALL
            else self._devices(_FormPlace(claim, index, name, form), 0, form.count)
            for name, form in requests[index].forms()
        )

    def _all(self, claim: int, index: int, name: str, form: DeviceSubRequest) -> bool:
        """Every device that the selectors mean, or none."""
        before = len(self._taken)
        chosen = self._every[claim, name]
        for one in chosen:
            offered = self._pools[one.pool].devices[one.place]
            refusal = self._take(claim, name, form, one)
            if refusal == "room" and offered.shared and tolerates(form, offered):
                # v1.36.2 tells the constraints first, and does not take it back
                refusal = "room" if self._constrain(claim, DeviceGrant(name, offered, one.consumed)) else "constraint"
            if refusal == "constraint":
                raise AbandonedError(
                    f"claim {self._claims[claim].name}, request {name.rpartition('/')[2]}: cannot add device "
                    f"{'/'.join(offered.id)} because a claim constraint would not be satisfied"
                )
            if refusal:
                break
        else:
            if chosen and self._request(claim, index + 1):
                return True
        while len(self._taken) > before:
            self._undo()
        return False

    def _devices(self, at: _FormPlace, start: int, missing: int) -> bool:
        """`missing` more devices from place `start` on: which of them comes first makes no difference."""
        if not missing:
            return self._request(at.claim, at.number + 1)
        self._deeper(at)
        candidates = self._of_form(at.claim, at.name, at.form)
        in_vain: set[Likeness] = set()
        for place in range(start, len(candidates)):
            one, leaked = candidates[place], len(self._leaked)
            likeness = self._likeness(one)
            if likeness in in_vain:
                self._leave_out()
                continue
            if not self._take(at.claim, at.name, at.form, one):
                if self._devices(at, place + 1, missing - 1):
                    return True
                self._undo()
            if likeness is not None and len(self._leaked) == leaked:
                in_vain.add(likeness)
        return False

    def _likeness(self, one: AbleDevice) -> Likeness | None:
        """What a device has in common with those that are like it; None while the search is short."""
        if self._steps <= STEPS_WITHOUT_TWINS or not self._regular:
            return None
        if self._twins is None:
            try:
                able = {
                    (number, name): self._of_form(number, name, form)
                    for number, claim in enumerate(self._claims)
                    for request in claim.devices.requests
                    for name, form in request.forms()
                }
            except SelectorError:
                # Of a form that the search need not come to
                self._regular = False
                return None
            self._twins = Twins(self._pools, self._usage, [claim.devices for claim in self._claims], able)
        return self._twins.likeness(one)

    def _leave_out(self) -> None:
        self._left_out += 1
        if self._left_out > MOST_LEFT_OUT:
            raise SearchLimitError

    def _deeper(self, at: _FormPlace) -> None:
        if len(self._taken) > len(self.deepest.grants) or not self.deepest.request:
            self.deepest = Deepest(tuple(one.grant for one in self._taken), at.claim, at.name)

    def _take(self, claim: int, name: str, form: DeviceSubRequest, one: AbleDevice) -> Refusal:
        """Take the device, or say what forbids it."""
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
        if not refusal and not self._constrain(claim, grant):
            refusal = "constraint"
        if refusal:
            self._leak(offered)
            return refusal
        self._taken.append(_Taken(claim, grant, not self._usage.used(offered.id)))
        self._usage.take(grant, self._claims[claim].name)
        self._counts[claim] += 1
        return ""

    def _constrain(self, claim: int, grant: DeviceGrant) -> bool:
        """Tell all constraints of the device, or those that were told already that it is gone."""
        told: list[_Constraint] = []
        for one in self._constraints[claim]:
            if one.rule.concerns(grant.request):
                if not one.admits(grant.offered):
                    for earlier in told:
                        earlier.remove(grant)
                    return False
                one.add(grant)
                told.append(one)
        return True

    def _leak(self, offered: OfferedDevice) -> None:
        """v1.36.2 counts what a device takes of its counters before it looks at taints and constraints, and gives
        nothing back until the search is over (docs/dra.md)."""
        if offered.counters:
            self._leaked.append(offered)
            self._usage.count(offered, 1)

    def _undo(self) -> None:
        claim, grant, first = self._taken.pop()
        self._usage.give_back(grant, first=first)
        self._counts[claim] -= 1
        for one in self._constraints[claim]:
            if one.rule.concerns(grant.request):
                one.remove(grant)


class _FormPlace(NamedTuple):
    """The form of a request that is being met."""

    claim: int
    number: int
    name: str
    form: DeviceSubRequest


def _least(devices: DeviceClaim) -> int:
    """The fewest devices that a claim is content with."""
    return sum(
        min(1 if form.allocation_mode == ALL else form.count for _, form in request.forms())
        for request in devices.requests
    )


def tolerates(form: DeviceSubRequest, offered: OfferedDevice) -> bool:
    """Whether the request puts up with all taints that keep claims away."""
    return all(
        taint.effect == "None" or any(one.tolerates(taint) for one in form.tolerations) for taint in offered.taints
    )
