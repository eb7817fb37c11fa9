"""Rules for one `resources` stanza, of a container or of a pod (pod-level-resources 5.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from podslice.api.pod.demand import is_supported_pod_level_resource
from podslice.api.pod.field_error import FieldError, forbidden, invalid, not_supported, required
from podslice.api.pod.resource_names import (
    container_name_problems,
    hugepage_size,
    is_hugepages,
    is_integer,
    is_overcommittable,
    name_problems,
)
from podslice.api.pod.spec import ResourceList, ResourceRequirements
from podslice.api.server.validate_claims import claim_errors
from podslice.values.quantity import Quantity

SUPPORTED_AT_POD_LEVEL = ("cpu", "hugepages-", "memory")
LONE_HUGEPAGES = "HugePages require cpu or memory"
_PLAIN = frozenset({"cpu", "memory"})


def is_plain(resources: ResourceRequirements) -> bool:
    """Whether a stanza has only cpu and memory and breaks no rule; most do, and need no closer look."""
    limits, requests = resources.limits, resources.requests
    if resources.claims is not None:
        return False
    if limits:
        for name, limit in limits.items():
            if name not in _PLAIN or limit.nano < 0:
                return False
    if requests:
        for name, request in requests.items():
            if name not in _PLAIN or request.nano < 0:
                return False
            if limits and name in limits and request.nano > limits[name].nano:
                return False
    return True


def requirements_errors(
    resources: ResourceRequirements,
    path: str,
    *,
    pod_level: bool = False,
    claims: Collection[str] = (),
    whole_pages: bool = True,
) -> list[FieldError]:
    """Return all violations of a stanza at `path`.

    `claims` names the entries of `spec.resourceClaims`. `whole_pages` False accepts amounts that are not a multiple of
    the huge page size, as for an update of a pod that already has such.
    """
    if is_plain(resources):
        return []
    limits, requests = resources.limits or {}, resources.requests or {}
    errors = [*claim_errors(resources, path, claims)]
    for name, limit in limits.items():
        errors += _amount_errors(name, limit, f"{path}.limits[{name}]", pod_level=pod_level, whole_pages=whole_pages)
    for name, request in requests.items():
        errors += _amount_errors(
            name, request, f"{path}.requests[{name}]", pod_level=pod_level, whole_pages=whole_pages
        )
        errors += _request_errors(name, request, limits.get(name), path)
    if lacks_base_for_hugepages(limits, requests):
        # Once for the stanza, whichever of the two maps names the pages.
        errors.append(forbidden(path, LONE_HUGEPAGES))
    return errors


def lacks_base_for_hugepages(limits: ResourceList, requests: ResourceList) -> bool:
    """Whether huge pages are named without cpu or memory beside them."""
    names = limits.keys() | requests.keys()
    return any(map(is_hugepages, names)) and not names & _PLAIN


def _amount_errors(
    name: str, amount: Quantity, path: str, *, pod_level: bool, whole_pages: bool
) -> Iterator[FieldError]:
    problems = name_problems(name) if pod_level else container_name_problems(name)
    for problem in problems:
        yield invalid(path, name, problem)
    if pod_level and not problems and not is_supported_pod_level_resource(name):
        yield not_supported(path, name, SUPPORTED_AT_POD_LEVEL)
    if amount.nano < 0:
        yield invalid(path, amount, "must be greater than or equal to 0")
    if is_integer(name) and amount.milli_value() % 1000:
        yield invalid(path, amount, "must be an integer")
    if whole_pages and is_hugepages(name) and not is_whole_pages(name, amount):
        yield invalid(path, amount, f"{amount} is not positive integer multiple of {name}")


def is_whole_pages(name: str, amount: Quantity) -> bool:
    """Whether an amount of a huge page resource is a multiple of its page size."""
    size = hugepage_size(name)
    return size is not None and amount.value() % size == 0


def _request_errors(name: str, request: Quantity, limit: Quantity | None, path: str) -> Iterator[FieldError]:
    if limit is None:
        if not is_overcommittable(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif not is_overcommittable(name):
        if request != limit:
            # These paths lack the resource name: upstream's do.
            yield invalid(f"{path}.requests", request, f"must be equal to {name} limit of {limit}")
    elif request > limit:
        yield invalid(f"{path}.requests", request, f"must be less than or equal to {name} limit of {limit}")
