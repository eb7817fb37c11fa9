"""Requests of containers and pods to the Memory Manager, in bytes (memory-device 1.5).

Requests count, not limits, and only `memory` and huge pages. Amounts are unsigned 64-bit numbers, as upstream's are.
"""

from __future__ import annotations

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod, memory_request
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.quirks import Quirks

Amounts = dict[str, int]
"""Bytes by resource."""
_INT64 = 1 << 63
_NOT_INT64 = RefusalKind("not-int64", "[memorymanager] failed to represent quantity as int64")


def container_memory(pod: AdmissionPod, container: AdmissionContainer, quirks: Quirks | None = None) -> Amounts:
    """Return the container's own request in bytes by resource; empty for the containers that share a pod's memory, and
    for claims, whose memory is kept out of the ledgers.

    Raises `AdmissionError` for an amount that upstream cannot represent; with `quirks`, also for a whole amount because
    of how it was written (quirk `inexact_memory_is_refused`).
    """
    if (pod.managed and not container.guaranteed) or pod.holds_claim:
        return {}
    if container.memory is None or not container.memory_exact:
        return _require_exact(container.memory, quirks, exact=container.memory_exact)
    return container.memory


def pod_memory(pod: AdmissionPod, quirks: Quirks | None = None) -> Amounts:
    """Return the request of the pod as a whole in bytes by resource: its pod-level request, or the most its containers
    use at a time.

    `quirks` and errors as of `container_memory`.
    """
    if pod.managed:
        resources = pod.spec.spec.resources
        request, exact = memory_request(resources.requests if resources else None)
        own = _require_exact(request, quirks, exact=exact)
        # Amounts are unsigned here: a negative request has become one of at least 2**63.
        return {name: size for name, size in own.items() if 0 < size < _INT64}
    apps: Amounts = {}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.containers:
        for name, size in container_memory(pod, container, quirks).items():
            if not container.init:
                apps[name] = apps.get(name, 0) + size
            elif container.restartable:
                sidecars[name] = sidecars.get(name, 0) + size
            else:
                peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + size)
    # Resources that only init containers request are dropped, as upstream does (memory-device 1.5).
    return {name: max(size + sidecars.get(name, 0), peak.get(name, 0)) for name, size in apps.items()}


def _require_exact(request: Amounts | None, quirks: Quirks | None, *, exact: bool) -> Amounts:
    """Return the request. Raises `AdmissionError` where upstream cannot represent it, or refuses its spelling."""
    if request is None or (not exact and quirks is not None and quirks.inexact_memory_is_refused):
        raise AdmissionError(_NOT_INT64)
    return request
