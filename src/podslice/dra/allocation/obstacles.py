"""Obstacles that keep claims from a node, device by device, and single changes that would let them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from podslice.dra.allocation.pools import ConsumableCapacity, OfferedDevice, Pool, full_name, quantity_of
from podslice.dra.allocation.search import AbandonedError, Deepest, RequestedClaim, Search, SearchLimitError, tolerates
from podslice.dra.allocation.selectors import SelectorCache, SelectorError
from podslice.dra.allocation.usage import DeviceUsage, can_serve, consumption_of
from podslice.dra.objects import ALL, DeviceRequest, DeviceSubRequest, DeviceToleration

replace = msgspec.structs.replace


class DeviceProblem(NamedTuple):
    """An obstacle between one device and a request; an empty problem for a device that could serve it alone."""

    device: OfferedDevice
    problem: str


class RequestProblem(NamedTuple):
    """All devices as one form of a request sees them; `wanted` is the number of devices, 0 for all that there are."""

    claim: str
    request: str
    wanted: int
    devices: tuple[DeviceProblem, ...]

    @property
    def able(self) -> int:
        """Number of devices that could serve it alone."""
        return sum(not one.problem for one in self.devices)


class ClaimChange(NamedTuple):
    """A change that was tried and lets all claims of the pod in."""

    claim: str
    path: str
    text: str


class ClaimExplanation(NamedTuple):
    """`together` says what is wrong where every request could be met alone; `abandoned` is why the scheduler gives up
    before it searches."""

    requests: tuple[RequestProblem, ...]
    together: str
    abandoned: str
    fixes: tuple[ClaimChange, ...]


Finder = Callable[[Sequence[RequestedClaim]], bool]


def explain(
    pools: Sequence[Pool], usage: DeviceUsage, selectors: SelectorCache, claims: Sequence[RequestedClaim]
) -> ClaimExplanation:
    """Explain why `Search` finds no devices for the claims."""
    search = Search(pools, usage, selectors, claims)
    abandoned = ""
    try:
        search.run()
    except (AbandonedError, SearchLimitError, SelectorError) as error:
        abandoned = str(error)
    problems: list[RequestProblem] = []
    try:
        for claim in claims:
            for request in claim.devices.requests:
                for name, form in request.forms():
                    devices = tuple(_device_problems(pools, usage, selectors, name, form))
                    wanted = 0 if form.allocation_mode == ALL else form.count
                    problems.append(RequestProblem(claim.name, name, wanted, devices))
    except SelectorError as error:
        abandoned = abandoned or str(error)
    # Where some request fails by itself, what is wrong with all together would only repeat it.
    alone = all(one.able >= max(one.wanted, 1) for one in problems)
    together = _describe_deepest(search.deepest, claims) if alone and not abandoned else ""

    def fits(changed: Sequence[RequestedClaim]) -> bool:
        try:
            return Search(pools, usage, selectors, changed).run() is not None
        except (AbandonedError, SearchLimitError, SelectorError):
            return False

    return ClaimExplanation(tuple(problems), together, abandoned, tuple(_fixes(pools, usage, claims, fits)))


def _device_problems(
    pools: Sequence[Pool], usage: DeviceUsage, selectors: SelectorCache, name: str, form: DeviceSubRequest
) -> Iterator[DeviceProblem]:
    expressions = selectors.expressions(form, name)
    for pool in pools:
        for offered in pool.devices:
            if pool.problem:
                yield DeviceProblem(offered, f"pool {pool.name} is invalid: {pool.problem}")
                continue
            if not pool.complete:
                yield DeviceProblem(offered, f"slices of pool {pool.name} are missing")
                continue
            unmet = selectors.first_unmet(expressions, offered)
            if unmet is not None:
                whose = f"class {form.device_class_name}" if unmet.of_class else "the request"
                yield DeviceProblem(offered, f"not what {whose} selects: {unmet.expression}")
                continue
            yield DeviceProblem(offered, _device_problem(pool, offered, usage, form))


def _device_problem(pool: Pool, offered: OfferedDevice, usage: DeviceUsage, form: DeviceSubRequest) -> str:
    if not tolerates(form, offered):
        taint = next(one for one in offered.taints if one.excludes)
        return f"has taint {taint.key}={taint.value}:{taint.effect}"
    if not can_serve(offered, form):
        return _capacity_problem(offered, form)
    if offered.id in usage.owned:
        return f"belongs to {usage.owned[offered.id]}"
    consumed = consumption_of(offered, form) if offered.shared else None
    if offered.shared and consumed is None:
        return "has a request policy that does not allow this amount"
    if form.admin_access or usage.fits(offered, consumed, pool.counters):
        return ""
    for name, amount in (consumed or {}).items():
        capacity = offered.capacity[name]
        free = capacity.value - usage.consumed[offered.id][name] if offered.id in usage.consumed else capacity.value
        if amount > free:
            return f"has {amount_text(free)} of {amount_text(capacity.value)} {_short(name)} left"
    return f"takes more than is left of the counters of pool {pool.name}"


def _capacity_problem(offered: OfferedDevice, form: DeviceSubRequest) -> str:
    for name, amount in form.capacity.requests.items():
        capacity = offered.capacity.get(full_name(offered.driver, name))
        if capacity is None:
            return f"has no capacity {name}"
        if amount.nano > capacity.value:
            return f"has {amount_text(capacity.value)} {_short(name)} in total"
    return ""


def amount_text(nano: int) -> str:
    """Return billionths as Kubernetes writes them."""
    whole, rest = divmod(nano, 10**9)
    if not rest and whole and whole % (1 << 20) == 0:
        return f"{whole >> 30}Gi" if whole % (1 << 30) == 0 else f"{whole >> 20}Mi"
    return str(quantity_of(nano))


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _describe_deepest(deepest: Deepest, claims: Sequence[RequestedClaim]) -> str:
    """Describe the farthest state that a search reached."""
    held = ", ".join(f"{grant.request} with {grant.offered.id[2]}" for grant in deepest.grants) or "nothing"
    rules = [
        f"{'matchAttribute' if rule.match_attribute else 'distinctAttribute'} "
        f"{rule.match_attribute or rule.distinct_attribute}"
        for rule in claims[deepest.claim].devices.constraints
        if rule.applies_to(deepest.request)
    ]
    because = f" that {' and '.join(rules)} admits" if rules else " beside what the others take"
    return f"each request can be met alone; after {held} there is no device for {deepest.request}{because}"


def _fixes(
    pools: Sequence[Pool], usage: DeviceUsage, claims: Sequence[RequestedClaim], fits: Finder
) -> Iterator[ClaimChange]:
    for index, claim in enumerate(claims):
        for path, text, changed in _changes(pools, usage, claim):
            if fits([*claims[:index], changed, *claims[index + 1 :]]):
                yield ClaimChange(claim.name, path, text)


def _changes(
    pools: Sequence[Pool], usage: DeviceUsage, claim: RequestedClaim
) -> Iterator[tuple[str, str, RequestedClaim]]:
    devices = claim.devices
    for number, rule in enumerate(devices.constraints):
        without = (*devices.constraints[:number], *devices.constraints[number + 1 :])
        what = rule.match_attribute or rule.distinct_attribute
        path = f"spec.devices.constraints[{number}]"
        yield (
            path,
            f"leave out the constraint on {what}",
            RequestedClaim(claim.name, replace(devices, constraints=without)),
        )
    for number, request in enumerate(devices.requests):
        if request.exactly is None:
            continue
        for field, text, form in _form_changes(pools, usage, request.exactly):
            changed = replace(
                devices, requests=_replace_request(devices.requests, number, replace(request, exactly=form))
            )
            yield f"spec.devices.requests[{number}].exactly.{field}", text, RequestedClaim(claim.name, changed)


def _replace_request(
    requests: tuple[DeviceRequest, ...], number: int, request: DeviceRequest
) -> tuple[DeviceRequest, ...]:
    return (*requests[:number], request, *requests[number + 1 :])


def _form_changes(
    pools: Sequence[Pool], usage: DeviceUsage, form: DeviceSubRequest
) -> Iterator[tuple[str, str, DeviceSubRequest]]:
    """Yield changes of a form: one device less, the next smaller free amount of each capacity, and a toleration of all
    taints."""
    if form.allocation_mode == ALL:
        return
    if form.count > 1:
        yield "count", f"ask for {form.count - 1} instead of {form.count}", replace(form, count=form.count - 1)
    for name, requested in form.capacity.requests.items():
        for free in _largest_free(pools, usage, name, requested.nano):
            amounts = {**form.capacity.requests, name: quantity_of(free)}
            text = f"ask for {amount_text(free)} {_short(name)} instead of {amount_text(requested.nano)}"
            yield f"capacity.requests[{name}]", text, replace(form, capacity=replace(form.capacity, requests=amounts))
    everything = DeviceToleration(operator="Exists")
    yield "tolerations", "tolerate the taints", replace(form, tolerations=(*form.tolerations, everything))


def _largest_free(pools: Sequence[Pool], usage: DeviceUsage, name: str, requested: int) -> list[int]:
    """Return the largest amount below `requested` that some device has left, in a list; empty where there is none."""
    found = set()
    for pool in pools:
        for offered in pool.devices:
            full = full_name(offered.driver, name)
            capacity: ConsumableCapacity | None = offered.capacity.get(full)
            if capacity is not None:
                held = usage.consumed[offered.id][full] if offered.id in usage.consumed else 0
                found.add(capacity.value - held)
    return sorted((free for free in found if 0 < free < requested), reverse=True)[:1]
