"""Amounts that grow while they are looked at.

v1.36.2 adds the overhead to the pod's own pod-level quantity where that one is in the big representation (spec
pod-level-resources 1.1: `1.5Gi`, `1Ei`), so every computation finds the pod larger than the one before. A recording
computes a pod's amounts some twenty times in a fixed order; sections say how many computations went before theirs.
"""

from __future__ import annotations

import msgspec

from podslice.core.pod.demand import is_supported_pod_level_resource
from podslice.core.pod.spec import Pod, ResourceList
from podslice.core.values.quantity import ZERO
from podslice.replay.api.case import ApiCase

replace = msgspec.structs.replace


def pod_after(case: ApiCase, *, requests: int = 0, limits: int = 0) -> Pod:
    """The case's pod after so many computations of its requests and limits with overhead."""
    pod, resources = case.pod, case.pod.spec.resources
    if resources is None or not pod.spec.overhead or not case.quirks.overhead_accumulates:
        return pod
    grown = replace(
        resources,
        requests=_grown(resources.requests, pod.spec.overhead, requests),
        limits=_grown(resources.limits, pod.spec.overhead, limits),
    )
    return replace(pod, spec=replace(pod.spec, resources=grown))


def _grown(amounts: ResourceList | None, overhead: ResourceList, times: int) -> ResourceList | None:
    if amounts is None:
        return None
    grown = dict(amounts)
    for name, amount in amounts.items():
        if not amount.small and is_supported_pod_level_resource(name):
            for _ in range(times):
                grown[name] = grown[name].add(overhead.get(name, ZERO))
    return grown
