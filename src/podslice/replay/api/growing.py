"""Upstream's defect of adding a pod's overhead to the pod itself, as the recordings show it.

Effective amounts start from the pod-level ones. Upstream copies those shallowly, so where an amount is kept as a big
decimal (`1Pi`, `2.125Gi` in a manifest), adding the overhead changes the pod: every later question gets a larger
answer. The recorder asks about one pod many times; a section therefore sees what the questions before it left. Our
functions change nothing, so the sections ask for the pod as it was at their turn.
"""

from __future__ import annotations

import msgspec

from podslice.api.pod.demand import is_pod_level_requests_set, is_pod_level_resources_set
from podslice.api.pod.spec import Pod, ResourceList

replace = msgspec.structs.replace


def add_overhead(pod: Pod, requests: int, limits: int) -> Pod:
    """Return the pod after upstream has computed its effective requests and limits that many times with overhead."""
    resources, overhead = pod.spec.resources, pod.spec.overhead
    if resources is None or not overhead or not (requests or limits):
        return pod
    own_requests, own_limits = resources.requests, resources.limits
    if is_pod_level_requests_set(pod):
        own_requests = _add_overhead(own_requests, overhead, requests)
    if is_pod_level_resources_set(pod):
        own_limits = _add_overhead(own_limits, overhead, limits)
    if own_requests is resources.requests and own_limits is resources.limits:
        return pod
    changed = replace(resources, requests=own_requests, limits=own_limits)
    return replace(pod, spec=replace(pod.spec, resources=changed))


def _add_overhead(amounts: ResourceList | None, overhead: ResourceList, times: int) -> ResourceList | None:
    growing = [name for name, quantity in (amounts or {}).items() if not quantity.small and name in overhead]
    if amounts is None or not growing:
        return amounts
    result = dict(amounts)
    for name in growing:
        for _ in range(times):
            result[name] = result[name].add(overhead[name])
    return result
