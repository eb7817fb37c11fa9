"""The order in which a node under memory pressure evicts pods, and its messages (pod-level-resources 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podslice.api.pod.demand import (
    container_requests,
    containers_in_order,
    is_pod_level_resources_set,
    pod_requests,
    requests_of,
)
from podslice.api.pod.spec import Pod
from podslice.values.quantity import BINARY_SI, ZERO, Quantity
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT


class Usage(NamedTuple):
    """A pod and the bytes it uses; None when the node has no statistics of it. `containers` by name."""

    pod: Pod
    memory: int | None
    containers: Mapping[str, int] = {}


class Threshold(NamedTuple):
    """The eviction threshold that was crossed, and the amount that was still available."""

    quantity: Quantity
    available: Quantity


def eviction_requests(pod: Pod, gates: Mapping[str, bool], quirks: Quirks) -> dict[str, Quantity]:
    """Return the requests of a pod when pods are ranked for eviction or preemption, overhead included.

    In v1.36.2 any pod-level value hides all containers' requests; with the gate off pod-level requests still count,
    over the containers'. Without the quirk the effective requests count.
    """
    total = _hidden_by_pod_level(pod, gates) if quirks.eviction_pod_level_hides_containers else _effective(pod, gates)
    # Overhead counts only beside a request.
    for name, amount in (pod.spec.overhead or {}).items():
        if not total.get(name, ZERO).is_zero():
            total[name] = total[name].add(amount)
    return {name: ZERO.add(amount) for name, amount in total.items()}


def _effective(pod: Pod, gates: Mapping[str, bool]) -> dict[str, Quantity]:
    return pod_requests(pod, pod_level=gates["PodLevelResources"], overhead=False)


def _hidden_by_pod_level(pod: Pod, gates: Mapping[str, bool]) -> dict[str, Quantity]:
    hidden = gates["PodLevelResources"] and is_pod_level_resources_set(pod)
    return pod_requests(pod, overhead=False, containers=not hidden)


def rank_for_memory(pods: Sequence[Usage], gates: Mapping[str, bool], quirks: Quirks) -> list[int]:
    """Return indexes of the pods, first to be evicted first: no statistics, use above request, low priority, most
    above."""

    def key(index: int) -> tuple[bool, bool, int, int]:
        pod, memory = pods[index].pod, pods[index].memory
        request = eviction_requests(pod, gates, quirks).get("memory", ZERO).nano
        excess = 0 if memory is None else memory * 10**9 - request
        return memory is not None, excess <= 0, pod.spec.priority or 0, -excess

    return sorted(range(len(pods)), key=key)


def memory_eviction_message(
    usage: Usage, gates: Mapping[str, bool], threshold: Threshold | None = None, release: Release = DEFAULT
) -> tuple[str, dict[str, str]]:
    """Return the status message of a pod that a kubelet of a release evicts for memory, and the annotations of its
    event.

    A pod with a pod-level memory request is always named, even if it uses less; containers when they use more than they
    request themselves.
    """
    pod = usage.pod
    message = "The node was low on resource: memory. "
    annotations: dict[str, str] = {}
    if threshold is not None:
        message += f"Threshold quantity: {threshold.quantity}, available: {threshold.available}. "
    request = requests_of(pod.spec.resources).get("memory") if pod.spec.resources is not None else None
    named = release.evictions_name_pods and gates["PodLevelResources"]
    if named and request is not None and usage.memory is not None:
        used = _bytes(usage.memory)
        message += _offender("Pod", pod.metadata.name, used, request)
        annotations |= {"offending_pod": pod.metadata.name, "offending_pod_usage": str(used)}
    offenders = {}
    for container in containers_in_order(pod) if release.evictions_name_init_containers else pod.spec.containers:
        request = container_requests(container).get("memory", ZERO)
        used = _bytes(usage.containers.get(container.name, 0))
        if used > request:
            message += _offender("Container", container.name, used, request)
            offenders[container.name] = str(used)
    if offenders:
        annotations["offending_containers"] = ",".join(offenders)
        annotations["offending_containers_usage"] = ",".join(offenders.values())
    return message, annotations


def _offender(kind: str, name: str, used: Quantity, request: Quantity) -> str:
    return f"{kind} {name} was using {used}, request is {request}, has larger consumption of memory. "


def _bytes(amount: int) -> Quantity:
    return Quantity.of(amount, BINARY_SI)
