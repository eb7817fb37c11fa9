"""Sections about quota, scheduler and eviction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podslice.core.pod.spec import ResourceList
from podslice.core.quirks import Quirks
from podslice.core.scheduling import fit, quota, scoring
from podslice.core.scheduling.eviction import Usage, eviction_requests, rank_for_memory
from podslice.core.values.quantity import ZERO, Quantity
from podslice.replay.api.case import ApiCase, Json
from podslice.replay.api.node import amount, amounts, qos_cgroups_to_json
from podslice.replay.api.repeated import pod_after

_ALLOCATABLE = {
    "cpu": "4",
    "memory": "16Gi",
    "pods": "110",
    "ephemeral-storage": "100Gi",
    "hugepages-2Mi": "1Gi",
    "hugepages-1Gi": "4Gi",
}


def _quantities(texts: Mapping[str, Any]) -> ResourceList:
    return {name: Quantity.parse(str(text)) for name, text in texts.items()}


def _resource(counted: Mapping[str, int]) -> Json:
    """Amounts in the shape of a scheduler's `Resource`."""
    others = (name for name in counted if name not in (*fit.BASIC_RESOURCES, fit.PODS))
    return {
        "milliCPU": counted.get(fit.CPU, 0),
        "memory": counted.get(fit.MEMORY, 0),
        "ephemeralStorage": counted.get(fit.EPHEMERAL_STORAGE, 0),
        "scalar": {name: counted[name] for name in others},
    }


def _pods_on_node(node: Json) -> list[dict[str, int]]:
    """The recorded node: its first pod holds everything, the others request nothing."""
    count = int(node.get("podCount") or 0)
    used = fit.amounts(_quantities(node.get("used") or {}))
    return [used, *({} for _ in range(count - 1))] if count or used else []


def _load(pods: list[dict[str, int]], allocatable: dict[str, int]) -> scoring.NodeLoad:
    defaults = scoring.scored_amounts(fit.NON_ZERO_REQUESTS)
    return scoring.NodeLoad(
        allocatable,
        {name: sum(pod.get(name, 0) for pod in pods) for name in scoring.SCORED},
        {name: sum(pod.get(name, defaults[name]) for pod in pods) for name in scoring.SCORED},
    )


def _scheduler(case: ApiCase) -> Json:
    gates = case.gates
    allocatable = fit.amounts(_quantities(case.node.get("allocatable") or _ALLOCATABLE))
    pods = _pods_on_node(case.node)
    lacking = fit.insufficient_resources(fit.filter_requests(pod_after(case, requests=9), gates), pods, allocatable)
    load = _load(pods, allocatable)
    non_zero = fit.non_zero_requests(pod_after(case, requests=10), gates)
    fitting = scoring.fit_scoring_requests(case.pod, gates, case.quirks)
    balanced = scoring.balanced_scoring_requests(pod_after(case, requests=14), gates)
    scored = scoring.balanced_scoring_requests(pod_after(case, requests=16), gates)
    answer = {"code": fit.filter_code(lacking), "reasons": sorted(lack.reason for lack in lacking)}
    return {
        "request": _resource(fit.filter_requests(pod_after(case, requests=8), gates)),
        "fits": not lacking,
        "insufficient": [
            {
                "resourceName": lack.resource,
                "reason": lack.reason,
                "requested": lack.requested,
                "used": lack.used,
                "capacity": lack.capacity,
                "unresolvable": lack.unresolvable,
            }
            for lack in lacking
        ],
        "podInfo": {
            "resource": _resource(fit.accounted_requests(pod_after(case, requests=10), gates)),
            "non0CPU": non_zero[fit.CPU],
            "non0Mem": non_zero[fit.MEMORY],
        },
        "fitLeastAllocated": {
            "filter": answer,
            "preScore": "Success",
            "score": scoring.least_allocated_score(fitting, load),
            "scoringRequest": fitting,
        },
        "fitMostAllocated": {
            "filter": answer,
            "preScore": "Success",
            "score": scoring.most_allocated_score(fitting, load),
            "scoringRequest": fitting,
        },
        "balancedAllocation": {
            "preScore": "Success" if any(balanced.values()) else "Skip",
            "score": scoring.balanced_allocation_score(scored, load) if any(balanced.values()) else 0,
            "scoringRequest": balanced,
        },
    }


_REQUIRED_SETS = (
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
    "cpu,memory,limits.cpu,limits.memory,pods",
)
_SCOPES = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating")


def _quota_usage(case: ApiCase) -> Json:
    return {
        "usage": amounts(quota.pod_usage(pod_after(case, requests=7, limits=5), case.gates, case.quirks)),
        "constraints": {
            names: quota.missing_requirements(case.pod, names.split(","), case.gates, case.quirks) or None
            for names in _REQUIRED_SETS
        },
        "scopes": {scope: quota.matches_scope(case.pod, scope, case.gates) for scope in _SCOPES},
    }


_EVICTION_RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi")


def _eviction_request(case: ApiCase) -> Json:
    requests = eviction_requests(pod_after(case, requests=17), case.gates, case.quirks)
    return {name: amount(requests.get(name, ZERO)) for name in _EVICTION_RESOURCES}


def run_eviction(case: Json, quirks: Quirks) -> Json:
    """A case of type `eviction`: pods on one node, in the order they are evicted."""
    shared = {"featureGates": case.get("featureGates") or {}}
    gates = ApiCase(shared, quirks).gates
    pods = [ApiCase({**shared, "pod": entry["pod"]}, quirks).pod for entry in case["pods"]]
    usages = [Usage(pod, entry.get("memoryUsage")) for pod, entry in zip(pods, case["pods"], strict=True)]
    requests = [eviction_requests(pod, gates, quirks).get(fit.MEMORY, ZERO) for pod in pods]
    return {
        "name": case["name"],
        "type": case["type"],
        "rank": {
            "order": [str(index) for index in rank_for_memory(usages, gates, quirks)],
            "requests": {str(index): amount(request) for index, request in enumerate(requests)},
        },
        "qosCgroups": qos_cgroups_to_json(pods, gates),
    }


SECTIONS: dict[str, Callable[[ApiCase], Any]] = {
    "quotaUsage": _quota_usage,
    "scheduler": _scheduler,
    "evictionRequest": _eviction_request,
}
