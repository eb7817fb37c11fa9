"""Sections about quota, scheduler and eviction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podslice.api.pod.spec import Pod, ResourceList
from podslice.api.server.defaults import default_pod
from podslice.replay.api.case import ApiCase, Json, decode_pod, effective_gates
from podslice.replay.api.growing import add_overhead
from podslice.replay.api.node import amount, amounts, qos_cgroups_to_json
from podslice.replay.api.server import gates_to_json
from podslice.scheduling import predicates, quota, scoring
from podslice.scheduling.eviction import Usage, eviction_requests, rank_for_memory
from podslice.values.quantity import ZERO, Quantity
from podslice.values.quirks import Quirks

Count = Callable[[Pod, Mapping[str, bool]], dict[str, int]]

_QUOTA, _REQUEST, _FIT, _ACCOUNTED, _PRE_SCORE, _SCORE, _EVICTION = 7, 8, 9, 10, 14, 16, 17
"""Numbers of earlier computations of the pod's requests (see `growing`)."""
_QUOTA_LIMITS = 5

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
    """Return amounts in the shape of a scheduler's `Resource`."""
    others = (name for name in counted if name not in (*predicates.BASIC_RESOURCES, predicates.PODS))
    return {
        "milliCPU": counted.get(predicates.CPU, 0),
        "memory": counted.get(predicates.MEMORY, 0),
        "ephemeralStorage": counted.get(predicates.EPHEMERAL_STORAGE, 0),
        "scalar": {name: counted[name] for name in others},
    }


def _pods_on_node(node: Json) -> list[dict[str, int]]:
    """Return the pods of the recorded node: the first holds everything, the others request nothing."""
    # A scheduler counts pods as well as amounts, so the empty ones matter for `pods`.
    count = int(node.get("podCount") or 0)
    used = predicates.amounts(_quantities(node.get("used") or {}))
    return [used, *({} for _ in range(count - 1))] if count or used else []


def _load(pods: list[dict[str, int]], allocatable: dict[str, int]) -> scoring.NodeLoad:
    defaults = scoring.scored_amounts(predicates.NON_ZERO_REQUESTS)
    return scoring.NodeLoad(
        allocatable,
        {name: sum(pod.get(name, 0) for pod in pods) for name in scoring.SCORED},
        {name: sum(pod.get(name, defaults[name]) for pod in pods) for name in scoring.SCORED},
    )


def _requests_before(case: ApiCase, computations: int, count: Count) -> dict[str, int]:
    return count(add_overhead(case.pod, computations, 0), case.gates)


def _insufficient(lack: predicates.InsufficientResource) -> Json:
    return {
        "resourceName": lack.resource,
        "reason": lack.reason,
        "requested": lack.requested,
        "used": lack.used,
        "capacity": lack.capacity,
        "unresolvable": lack.unresolvable,
    }


def _scheduler(case: ApiCase) -> Json:
    allocatable = predicates.amounts(_quantities(case.node.get("allocatable") or _ALLOCATABLE))
    pods = _pods_on_node(case.node)
    wanted, used = _requests_before(case, _FIT, predicates.filter_requests), pods[0] if pods else {}
    lacking = predicates.insufficient_resources(wanted, used, allocatable, pods=len(pods))
    non_zero = _requests_before(case, _ACCOUNTED, predicates.non_zero_requests)
    return {
        "request": _resource(_requests_before(case, _REQUEST, predicates.filter_requests)),
        "fits": not lacking,
        "insufficient": [_insufficient(lack) for lack in lacking],
        "podInfo": {
            "resource": _resource(_requests_before(case, _ACCOUNTED, predicates.accounted_requests)),
            "non0CPU": non_zero[predicates.CPU],
            "non0Mem": non_zero[predicates.MEMORY],
        },
        **_scores(case, _load(pods, allocatable), lacking),
    }


def _scores(case: ApiCase, load: scoring.NodeLoad, lacking: list[predicates.InsufficientResource]) -> Json:
    fitting = scoring.fit_scoring_requests(case.pod, case.gates, case.quirks)
    balanced = _requests_before(case, _PRE_SCORE, scoring.balanced_scoring_requests)
    scored = _requests_before(case, _SCORE, scoring.balanced_scoring_requests)
    common = {
        "filter": {"code": predicates.filter_code(lacking), "reasons": sorted(lack.reason for lack in lacking)},
        "preScore": "Success",
        "scoringRequest": fitting,
    }
    return {
        "fitLeastAllocated": {**common, "score": scoring.least_allocated_score(fitting, load)},
        "fitMostAllocated": {**common, "score": scoring.most_allocated_score(fitting, load)},
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
        "usage": amounts(quota.pod_usage(add_overhead(case.pod, _QUOTA, _QUOTA_LIMITS), case.gates, case.quirks)),
        "constraints": {
            names: quota.missing_requirements(case.pod, names.split(","), case.gates, case.quirks) or None
            for names in _REQUIRED_SETS
        },
        "scopes": {scope: quota.matches_scope(case.pod, scope, case.gates) for scope in _SCOPES},
    }


_EVICTION_RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi")


def _eviction_request(case: ApiCase) -> Json:
    requests = eviction_requests(add_overhead(case.pod, _EVICTION, 0), case.gates, case.quirks)
    return {name: amount(requests.get(name, ZERO)) for name in _EVICTION_RESOURCES}


def run_eviction(case: Json, quirks: Quirks) -> Json:
    """Run a case of type `eviction`: pods on one node, in the order of their eviction."""
    overrides = case.get("featureGates") or {}
    gates = effective_gates(overrides, quirks)
    pods = [default_pod(decode_pod(entry["pod"]), gates) for entry in case["pods"]]
    usages = [Usage(pod, entry.get("memoryUsage")) for pod, entry in zip(pods, case["pods"], strict=True)]
    requests = [eviction_requests(pod, gates, quirks).get(predicates.MEMORY, ZERO) for pod in pods]
    return {
        "name": case["name"],
        "type": case["type"],
        "gates": gates_to_json(overrides, quirks),
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
