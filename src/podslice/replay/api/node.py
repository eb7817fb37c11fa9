"""Sections about the node: QoS, effective amounts, cgroups, OOM scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podslice.api.pod.demand import (
    StatusUse,
    aggregate,
    compute_qos,
    container_limits,
    container_requests,
    is_pod_level_limits_set,
    is_pod_level_requests_set,
    is_pod_level_resources_set,
    pod_limits,
    pod_qos,
    pod_requests,
)
from podslice.api.pod.spec import Pod, ResourceList
from podslice.node.effects import cpu_weight
from podslice.node.effects.qos_cgroup import qos_cgroups
from podslice.node.effects.settings import RESERVATION_POLICIES
from podslice.replay.api import cgroups
from podslice.replay.api.case import ApiCase, Json
from podslice.replay.api.growing import add_overhead
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quantity import Quantity
from podslice.values.quirks import Quirks

SCORING_DEFAULTS: ResourceList = {"cpu": Quantity.parse("100m"), "memory": Quantity.of(209715200)}


_AS_KUBECTL = {"PodLevelResources": True, "PodLevelResourcesFixKubeletQOSClass": False}
"""kubectl computes the class by itself and knows no gates."""


def amount(quantity: Quantity) -> Json:
    """Return a quantity as recordings show it: text, whole units, thousandths."""
    return {"s": str(quantity), "v": quantity.value(), "m": quantity.milli_value()}


def amounts(resources: ResourceList) -> Json:
    return {name: amount(quantity) for name, quantity in resources.items()}


def _qos_class(case: ApiCase) -> Json:
    computed, stored = compute_qos(case.pod, case.gates), pod_qos(case.pod, case.gates)
    shown = {f"{side}{how}": computed for side in ("v1", "core") for how in ("Compute", "GetNoStatus")}
    return {**shown, "v1Get": stored, "coreGet": stored, "kubectl": compute_qos(case.pod, _AS_KUBECTL)}


def _status_uses(case: ApiCase) -> list[tuple[str, StatusUse]]:
    if not case.pod.status.container_statuses:
        return []
    resizable = case.gates["InPlacePodLevelResourcesVerticalScaling"]
    return [
        ("Scheduler", StatusUse.POD_LEVEL if resizable else StatusUse.CONTAINERS),
        ("Quota", StatusUse.CONTAINERS),
    ]


def _pod_requests(case: ApiCase) -> Json:
    pod, gate = case.pod, case.gates["PodLevelResources"]
    asked = 3 if gate else 1
    shown: Json = {
        **{f"status{who}": amounts(pod_requests(pod, pod_level=gate, status=use)) for who, use in _status_uses(case)},
        "default": amounts(pod_requests(pod, pod_level=gate)),
        "noOverhead": amounts(pod_requests(add_overhead(pod, gate, 0), pod_level=gate, overhead=False)),
        "skipPodLevel": amounts(pod_requests(pod, pod_level=False)),
        "skipContainers": amounts(pod_requests(add_overhead(pod, gate, 0), containers=False)),
        "nonMissing": amounts(pod_requests(add_overhead(pod, 2, 0), pod_level=gate, missing=SCORING_DEFAULTS)),
        "zeroOptions": amounts(pod_requests(add_overhead(pod, asked, 0))),
        "aggregate": amounts(aggregate(pod, container_requests)),
        "isPodLevelSet": is_pod_level_resources_set(pod),
        "isPodLevelReqs": is_pod_level_requests_set(pod),
        "isPodLevelLims": is_pod_level_limits_set(pod),
    }
    return shown


def _pod_limits(case: ApiCase) -> Json:
    pod, gate = case.pod, case.gates["PodLevelResources"]
    return {
        **{f"status{who}": amounts(pod_limits(pod, pod_level=gate, status=use)) for who, use in _status_uses(case)},
        "default": amounts(pod_limits(pod, pod_level=gate)),
        "noOverhead": amounts(pod_limits(add_overhead(pod, 0, gate), pod_level=gate, overhead=False)),
        "skipPodLevel": amounts(pod_limits(pod, pod_level=False)),
        "zeroOptions": amounts(pod_limits(add_overhead(pod, 0, gate))),
        "aggregate": amounts(aggregate(pod, container_limits)),
    }


def qos_cgroups_to_json(pods: Sequence[Pod], gates: FeatureGates) -> Json:
    """Return part `qosCgroups` of a case of type `eviction`."""
    return {
        policy: {
            qos: {
                "cpuShares": cgroup.cpu_shares,
                "cpuWeight": cgroup.cpu_weight or 0,
                "unifiedMemoryQoS": cgroups.unified_to_json(cgroup.memory_qos),
            }
            for qos, cgroup in qos_cgroups(pods, gates, policy).items()
        }
        for policy in RESERVATION_POLICIES
    }


def run_cpuconv(case: Json, quirks: Quirks) -> Json:
    """Run a case of type `cpuconv`: CPU amounts through every conversion and back."""
    gates = FeatureGates.from_overrides(case.get("featureGates") or {}, fixes=later_gates(quirks))
    milli, period = case["milliCPU"], case.get("period") or cpu_weight.DEFAULT_PERIOD_US
    shares = cpu_weight.milli_cpu_to_shares(milli)
    weight = cpu_weight.shares_to_weight(shares)
    custom = gates["CustomCPUCFSQuotaPeriod"]
    quota = cpu_weight.milli_cpu_to_quota(milli, period if custom else cpu_weight.DEFAULT_PERIOD_US)
    back = cpu_weight.weight_to_shares(weight)
    return {
        "name": case["name"],
        "type": case["type"],
        "milliCPU": milli,
        "period": period,
        "result": {
            "shares": shares,
            "quota": quota,
            "kubeletWeight": weight,
            "runtimeWeight": cpu_weight.shares_to_runtime_weight(shares),
            "sharesBackFromWeight": back,
            "milliBackFromShares": cpu_weight.shares_to_milli_cpu(shares),
            "milliBackFromWeightShares": cpu_weight.shares_to_milli_cpu(back),
            "milliBackFromQuota": cpu_weight.quota_to_milli_cpu(quota, period),
        },
    }


SECTIONS: dict[str, Callable[[ApiCase], Any]] = {
    "qosClass": _qos_class,
    "podRequests": _pod_requests,
    "podLimits": _pod_limits,
    **cgroups.SECTIONS,
}
