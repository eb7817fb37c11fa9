"""Resizes of pods that a real API server stores: what it answers at the subresource, and what podslice says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from e2e.controlplane import Api
from e2e.sharedplane import prepare_namespace

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.create import as_stored
from podslice.api.server.decode import decode_error
from podslice.api.server.defaults import default_pod
from podslice.api.server.limitrange import LimitRange, apply_defaults, limit_range_from_dict
from podslice.api.server.limitrange_check import limit_range_refusals
from podslice.api.server.resize import (
    prepare_for_resize,
    validate_resize,
)
from podslice.api.server.resize_admission import ResizedPodsNode, resize_refusal
from podslice.scheduling.quota import QuotaError, ResourceQuota, check_quotas, resource_quota_from_dict
from podslice.values.errors import InputError
from podslice.values.gates import FeatureGates
from podslice.values.quantity import Quantity
from tests.conformance.compare import PROFILE, Json, Said, causes, fields
from tests.conformance.rules import with_quota


class Around(NamedTuple):
    """The objects beside the pod that the API server's plugins read."""

    node: ResizedPodsNode
    limit_ranges: tuple[LimitRange, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()


def make_node(api: Api, name: str, allocatable: Mapping[str, str], features: Sequence[str]) -> ResizedPodsNode:
    """A node with a status, as if its kubelet had reported."""
    labels = {"kubernetes.io/os": "linux"}
    status = {"allocatable": allocatable, "capacity": allocatable, "declaredFeatures": list(features)}
    kept = api.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
    amounts = {resource: Quantity.parse(amount) for resource, amount in kept["status"]["allocatable"].items()}
    return ResizedPodsNode(name, labels, amounts, kept["status"].get("declaredFeatures") or ())


LIMITS: Json = {
    "metadata": {"name": "limits"},
    "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "4", "memory": "2Gi"}, "min": {"cpu": "100m"}},
        {"type": "Pod", "max": {"cpu": "6"}, "maxLimitRequestRatio": {"memory": "8"}},
    ]},
}  # fmt: skip
QUOTA: Json = {
    "metadata": {"name": "quota"},
    "spec": {"hard": {"requests.cpu": "40", "limits.cpu": "80", "requests.memory": "40Gi", "limits.memory": "80Gi"}},
}
NOTHING = {"requests.cpu": "0", "limits.cpu": "0", "requests.memory": "0", "limits.memory": "0"}


def make_rules(api: Api, namespace: str, kind: str) -> str:
    """A namespace of that kind: `limits`, `quota` or another."""
    prepare_namespace(api, namespace)
    if kind == "limits":
        api.call("POST", f"/api/v1/namespaces/{namespace}/limitranges", LIMITS)
    elif kind == "quota":
        with_quota(api, namespace, QUOTA | {"status": {"hard": QUOTA["spec"]["hard"], "used": NOTHING}})
    return kind


def around_of(api: Api, namespace: str, node: ResizedPodsNode, kind: str) -> Around:
    """The rules as they are now: the quota counts what was created."""
    if kind == "quota":
        found = api.call("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/quota")
        return Around(node, quotas=(resource_quota_from_dict(found),))
    return Around(node, (limit_range_from_dict(LIMITS),) if kind == "limits" else ())


def server_says_of_resize(api: Api, new: Json) -> Said:
    """A dry run."""
    metadata = new["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/resize?dryRun=All"
    while (answer := api.ask("PUT", path, new)).message.endswith("not found"):
        time.sleep(0.05)  # the plugin has not heard of the new node yet
    if answer.code == 200:
        return Said("accepted", fields=fields(pod_from_dict(answer.body)))
    verdict = {422: "invalid", 403: "forbidden", 400: "unreadable"}.get(answer.code, str(answer.code))
    return Said(verdict, causes(answer) if answer.code == 422 else (answer.message,))


def podslice_says_of_resize(new: Json, old: Json, gates: FeatureGates, around: Around) -> Said:
    """Validation, then the admission plugins."""
    kept = default_pod(pod_from_dict(old), gates)
    try:
        asked = default_pod(pod_from_dict(new), gates)
    except InputError as error:
        return Said("unreadable", (decode_error(new) or str(error),))
    asked = apply_defaults(asked, around.limit_ranges, gates)
    prepared = prepare_for_resize(asked, kept, gates)
    errors = validate_resize(prepared, kept, gates)
    if errors:
        return Said("invalid", tuple(sorted(map(str, errors))))
    refusals = _refusals(prepared, kept, gates, around)
    if refusals:
        return Said("forbidden", tuple(f"plugin: {text}" for text in refusals))
    return Said("accepted", fields=fields(default_pod(as_stored(prepared), gates)))


def _refusals(new: Pod, old: Pod, gates: FeatureGates, around: Around) -> list[str]:
    """Return the message of the first plugin that refuses."""
    refusals = [text for one in around.limit_ranges for text in limit_range_refusals(new, one, gates)]
    refusal = resize_refusal(new, old, around.node)
    if refusals or refusal:
        return refusals or [refusal]
    try:
        check_quotas(new, around.quotas, gates, PROFILE, old=old)
    except QuotaError as error:
        return [str(error)]
    return []
