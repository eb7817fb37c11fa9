"""Sections about quota, scheduler and eviction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podslice.core.pod.spec import ResourceList
from podslice.core.scheduling import eviction, fit, quota, scoring
from podslice.core.values.quantity import ZERO, Quantity
from podslice.replay.api.case import ApiCase, Json
from podslice.replay.api.node import amount, amounts

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
    pod, gates = case.pod, case.gates
    allocatable = fit.amounts(_quantities(case.node.get("allocatable") or _ALLOCATABLE))
    pods = _pods_on_node(case.node)
    requests = fit.filter_requests(pod, gates)
    lacking = fit.insufficient_resources(requests, pods, allocatable)
    load = _load(pods, allocatable)
    non_zero = fit.non_zero_requests(pod, gates)
    fitting = scoring.fit_scoring_requests(pod, gates, case.quirks)
    balanced = scoring.balanced_scoring_requests(pod, gates)
    answer = {"code": fit.filter_code(lacking), "reasons": sorted(lack.reason for lack in lacking)}
    return {
        "request": _resource(requests),
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
            "resource": _resource(fit.accounted_requests(pod, gates)),
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
            "score": scoring.balanced_allocation_score(balanced, load) if any(balanced.values()) else 0,
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
        "usage": amounts(quota.pod_usage(case.pod, case.gates, case.quirks)),
        "constraints": {
            names: quota.missing_requirements(case.pod, names.split(","), case.gates, case.quirks) or None
            for names in _REQUIRED_SETS
        },
        "scopes": {scope: quota.matches_scope(case.pod, scope, case.gates) for scope in _SCOPES},
    }


_EVICTION_RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi")


def _eviction_request(case: ApiCase) -> Json:
    requests = eviction.eviction_requests(case.pod, case.gates, case.quirks)
    return {name: amount(requests.get(name, ZERO)) for name in _EVICTION_RESOURCES}


SECTIONS: dict[str, Callable[[ApiCase], Any]] = {
    "quotaUsage": _quota_usage,
    "scheduler": _scheduler,
    "evictionRequest": _eviction_request,
}
