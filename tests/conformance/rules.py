"""LimitRange and ResourceQuota objects in a real API server: what it says about them, and about pods under them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from e2e.controlplane import Api

from podslice.api.pod.spec import pod_from_dict
from podslice.api.server.create import prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.limitrange import LimitRange, LimitRangeItem, limit_range_from_dict
from podslice.api.server.validate_limitrange import limit_range_errors
from podslice.scheduling.quota import QuotaError, ResourceQuota, check_quotas, resource_quota_from_dict
from podslice.values.errors import InputError
from podslice.values.gates import FeatureGates
from tests.conformance.compare import PROFILE, Json, Said, causes, podslice_says

_FIELDS = ("min", "max", "default", "default_request", "max_limit_request_ratio")


def server_says_of_limit_range(api: Api, limit_range: Json) -> Said:
    """A dry run."""
    answer = api.ask("POST", "/api/v1/namespaces/default/limitranges?dryRun=All", limit_range)
    if answer.code == 201:
        return Said("accepted", fields=limit_fields(limit_range_from_dict(answer.body)))
    if answer.code == 422:
        return Said("invalid", causes(answer))
    return Said("unreadable" if answer.code == 400 else str(answer.code), (answer.message,))


def podslice_says_of_limit_range(limit_range: Json, gates: FeatureGates) -> Said:
    try:
        found = limit_range_from_dict(limit_range)
    except InputError as error:
        return Said("unreadable", (str(error),))
    errors = limit_range_errors(found, gates)
    if errors:
        return Said("invalid", tuple(sorted(map(str, errors))))
    return Said("accepted", fields=limit_fields(found))


def limit_fields(limit_range: LimitRange) -> Mapping[str, Any]:
    """Every amount, by its path."""
    return {
        f"[{index}].{field}[{name}]": str(amount)
        for index, item in enumerate(limit_range.spec.limits)
        for field in _FIELDS
        for name, amount in (_amounts(item, field)).items()
    }


def _amounts(item: LimitRangeItem, field: str) -> Mapping[str, Any]:
    return getattr(item, field) or {}


PROBE: Json = {
    "metadata": {"name": "probe"},
    "spec": {"hard": {"count/configmaps": "0"}},
    "status": {"hard": {"count/configmaps": "0"}, "used": {"count/configmaps": "0"}},
}


def with_quota(api: Api, namespace: str, quota: Json) -> ResourceQuota:
    """The quota as the API server keeps it, with its status. Returns when the admission plugin has heard of it: it
    has once it knows a second quota, which was made later and concerns no pod."""
    base = f"/api/v1/namespaces/{namespace}"
    for one in (quota, PROBE):
        made = api.call("POST", f"{base}/resourcequotas", one)
        path = f"{base}/resourcequotas/{made['metadata']['name']}/status"
        api.call("PUT", path, {**made, "status": one["status"]})
    asked = {"metadata": {"name": "any"}}
    while "exceeded quota: probe" not in api.ask("POST", f"{base}/configmaps?dryRun=All", asked).message:
        time.sleep(0.02)
    return resource_quota_from_dict(api.call("GET", f"{base}/resourcequotas/{quota['metadata']['name']}"))


def podslice_says_with_quota(pod: Json, gates: FeatureGates, quota: ResourceQuota) -> Said:
    said = podslice_says(pod, gates)
    if said.verdict != "accepted":
        return said
    prepared = prepare_for_create(default_pod(pod_from_dict(pod), gates), gates)
    try:
        check_quotas(prepared, [quota], gates, PROFILE)
    except QuotaError as error:
        return Said("forbidden", (f"quota: {error}",))
    return said
