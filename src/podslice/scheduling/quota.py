"""ResourceQuota: the usage of a pod, and whether quotas admit it (pod-level-resources 12).

The texts are those of the API server's refusal, after `pods "NAME" is forbidden: `.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from podslice.api.pod.demand import (
    BEST_EFFORT,
    HUGEPAGES_PREFIX,
    StatusUse,
    containers_in_order,
    is_pod_level_resources_set,
    pod_limits,
    pod_qos,
    pod_requests,
)
from podslice.api.pod.spec import ObjectMeta, Pod, ResourceList, ResourceRequirements, from_dict
from podslice.machine.devices import is_extended_resource_name
from podslice.values.errors import InputError, PodsliceError
from podslice.values.quantity import ZERO, Quantity
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

REQUESTS_PREFIX, LIMITS_PREFIX = "requests.", "limits."
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_REQUIRED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_ONE = Quantity.of(1)
SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort")
"""Scopes that depend on the pod alone."""


class QuotaError(PodsliceError):
    """Raised when the quota refuses the pod; the text is the API server's."""


class _QuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    hard: ResourceList = {}
    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, Any] | None = None


class _QuotaStatus(msgspec.Struct, frozen=True):
    used: ResourceList | None = None


class _QuotaObject(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _QuotaSpec = _QuotaSpec()
    status: _QuotaStatus = _QuotaStatus()


class ResourceQuota(msgspec.Struct, frozen=True):
    """A ResourceQuota: `hard` limits, the amounts `used` of them (None: not counted yet), and its scopes."""

    name: str
    hard: ResourceList
    used: ResourceList | None = None
    scopes: tuple[str, ...] = ()


def resource_quota_from_dict(data: Any) -> ResourceQuota:
    """Decode a v1 ResourceQuota from plain JSON or YAML data. Raises `InputError`, also for scopes that are not
    supported: `scopeSelector` and scopes by priority class or affinity."""
    quota = from_dict(data, _QuotaObject)
    if quota.spec.scope_selector is not None:
        raise InputError("scope selectors are not supported", path="spec.scopeSelector", remedy="use spec.scopes")
    for position, scope in enumerate(quota.spec.scopes):
        if scope not in SCOPES:
            raise InputError(
                f"{scope!r} is not a scope known here",
                path=f"spec.scopes[{position}]",
                remedy=f"use one of: {', '.join(SCOPES)}",
            )
    return ResourceQuota(quota.metadata.name, quota.spec.hard, quota.status.used, quota.spec.scopes)


def pod_usage(pod: Pod, gates: Mapping[str, bool], quirks: Quirks, release: Release = DEFAULT) -> dict[str, Quantity]:
    """Return what a pod uses of every resource a quota can name, as an API server of a release counts it.

    A pod that has ended only counts as an object. Resources in use after a resize count until they are given back.
    """
    usage = {"count/pods": _ONE}
    if pod.status.phase in ("Succeeded", "Failed"):
        return usage
    usage["pods"] = _ONE
    pod_level = gates["PodLevelResources"]
    status = _status_use(gates, quirks)
    requests = pod_requests(pod, pod_level=pod_level, status=status, by_container=release.running_sums_by_container)
    limits = pod_limits(pod, pod_level=pod_level, status=status)
    for name, amount in requests.items():
        # Extended resources cannot be overcommitted, so quotas count their requests only.
        if name in _COMPUTE or name.startswith(HUGEPAGES_PREFIX):
            usage[name] = usage[REQUESTS_PREFIX + name] = amount
        elif is_extended_resource_name(name):
            usage[REQUESTS_PREFIX + name] = amount
    usage |= {LIMITS_PREFIX + name: amount for name, amount in limits.items() if name in _COMPUTE}
    return usage


def _status_use(gates: Mapping[str, bool], quirks: Quirks) -> StatusUse:
    if quirks.quota_frees_pod_level_early or not gates["InPlacePodLevelResourcesVerticalScaling"]:
        return StatusUse.CONTAINERS
    return StatusUse.POD_LEVEL


def missing_requirements(pod: Pod, required: Iterable[str], gates: Mapping[str, bool], quirks: Quirks) -> str:
    """Return what the pod lacks for a quota on `required` resources, in the API server's words; empty when all
    containers or the pod level name them."""
    pod_level = pod.spec.resources if gates["PodLevelResources"] and is_pod_level_resources_set(pod) else None
    if pod_level is not None and quirks.quota_requires_nothing_of_pod_level:
        return ""
    lacking = {
        name: _containers_without(pod, name)
        for name in sorted(required)
        if name in _REQUIRED and not (pod_level is not None and _names(pod_level, name))
    }
    shown = [f"{name} for: {','.join(containers)}" for name, containers in lacking.items() if containers]
    return f"must specify {'; '.join(shown)}" if shown else ""


def _containers_without(pod: Pod, name: str) -> list[str]:
    return sorted(one.name for one in containers_in_order(pod) if not _names(one.resources, name))


def _names(resources: ResourceRequirements, name: str) -> bool:
    """Whether there is a value for a quota resource such as `cpu`, `requests.cpu` or `limits.cpu`."""
    if name.startswith(LIMITS_PREFIX):
        return name.removeprefix(LIMITS_PREFIX) in (resources.limits or {})
    return name.removeprefix(REQUESTS_PREFIX) in (resources.requests or {})


def matches_scope(pod: Pod, scope: str, gates: Mapping[str, bool]) -> bool:
    """Whether the pod belongs to a scope of `SCOPES`."""
    if scope in ("Terminating", "NotTerminating"):
        return (pod.spec.active_deadline_seconds is not None) == (scope == "Terminating")
    return (pod_qos(pod, gates) == BEST_EFFORT) == (scope == "BestEffort")


def check_quotas(
    pod: Pod,
    quotas: Sequence[ResourceQuota],
    gates: Mapping[str, bool],
    quirks: Quirks,
    *,
    old: Pod | None = None,
    limited: Collection[str] = (),
) -> None:
    """Check that the pod may be created, or resized from `old`, in a namespace with these quotas. Raises `QuotaError`.

    `limited` names resources that the cluster gives out only where a quota covers them.
    """
    matching = [quota for quota in quotas if all(matches_scope(pod, scope, gates) for scope in quota.scopes)]
    usage = pod_usage(pod, gates, quirks)
    # The checks in upstream's order: the first refusal is the one that the user sees.
    for quota in matching:
        missing = missing_requirements(pod, quota.hard, gates, quirks)
        if missing:
            raise QuotaError(f"failed quota: {quota.name}: {missing}")
    negative = sorted(name for name, amount in usage.items() if amount.sign() < 0)
    if negative:
        raise QuotaError(f"quota usage is negative for resource(s): {','.join(negative)}")
    covered = {name for quota in matching for name in quota.hard}
    uncovered = sorted(name for name in usage if name in limited and name not in covered)
    if uncovered:
        raise QuotaError(f"insufficient quota to consume: {','.join(uncovered)}")
    growth = _growth(usage, pod_usage(old, gates, quirks) if old is not None else {})
    for quota in matching:
        _check_quota(quota, {name: amount for name, amount in growth.items() if name in quota.hard})


def _growth(new: ResourceList, old: ResourceList) -> dict[str, Quantity]:
    """Return the additional usage; a decrease frees nothing yet."""
    growth = {name: amount.sub(old[name]) if name in old else amount for name, amount in new.items()}
    return {name: amount for name, amount in growth.items() if amount.sign() > 0}


def _check_quota(quota: ResourceQuota, growth: ResourceList) -> None:
    """Check one quota's limits against the growth. Raises `QuotaError`."""
    if not growth:
        return
    used = quota.used
    # A quota that was just created has no status yet; admitting by guess could exceed it.
    unknown = sorted(name for name in growth if used is None or name not in used)
    if unknown or used is None:
        raise QuotaError(f"status unknown for quota: {quota.name}, resources: {','.join(unknown)}")
    over = sorted(name for name, amount in growth.items() if amount.add(used[name]) > quota.hard[name])
    if over:
        raise QuotaError(
            f"exceeded quota: {quota.name}, requested: {_format(growth, over)}, "
            f"used: {_format(used, over)}, limited: {_format(quota.hard, over)}"
        )


def _format(amounts: ResourceList, names: Sequence[str]) -> str:
    return ",".join(f"{name}={amounts.get(name, ZERO)}" for name in names)
