"""Amounts that the parts of a cluster count for a pod (pod-level-resources 10 to 14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.advise.inspect.facts import Gates, KnownNode
from podslice.advise.inspect.page import Count
from podslice.advise.inspect.stages import in_order
from podslice.api.pod.demand import BEST_EFFORT, is_pod_level_resources_set, pod_qos
from podslice.api.pod.spec import Pod
from podslice.api.server.limitrange_check import pod_totals
from podslice.scheduling.autoscaling import MetricsError, cluster_autoscaler_requests, hpa_request
from podslice.scheduling.eviction import eviction_requests
from podslice.scheduling.predicates import amounts, filter_requests, insufficient_resources
from podslice.scheduling.quota import LIMITS_PREFIX, REQUESTS_PREFIX, pod_usage
from podslice.scheduling.scoring import balanced_scoring_requests, fit_scoring_requests
from podslice.values.quantity import BINARY_SI, Quantity
from podslice.values.quirks import Quirks

# The kubelet's default of maxPods, where the node's object is not known.
_PODS = Quantity.of(110)
_SCORED = ("cpu", "memory")


def counts(pod: Pod, gates: Gates, quirks: Quirks, node: KnownNode) -> tuple[Count, ...]:
    """Return the counts of scheduler, quota, LimitRange, eviction and autoscalers, in this order."""
    return tuple(_counts(pod, gates, quirks, node))


def _counts(pod: Pod, gates: Gates, quirks: Quirks, node: KnownNode) -> Iterator[Count]:
    requests = filter_requests(pod, gates)
    yield Count("scheduler: filter", _texts_of(requests), _fits(requests, node))
    scored = fit_scoring_requests(pod, gates, quirks)
    yield Count("scheduler: score", _texts_of(scored), _score_note(pod, gates, quirks, scored, requests))
    yield Count("scheduler: balance", _texts_of(balanced_scoring_requests(pod, gates, node.release)))
    usage = pod_usage(pod, gates, quirks, node.release)
    yield Count("quota: requests", _quota(usage, REQUESTS_PREFIX), _scope(pod, gates))
    yield Count("quota: limits", _quota(usage, LIMITS_PREFIX), _missing_limits(pod, usage))
    minimum, maximum = pod_totals(pod, gates)
    yield Count("LimitRange: request", _texts(minimum))
    yield Count("LimitRange: limit", _texts(maximum))
    yield _eviction(pod, gates, quirks)
    yield _hpa(pod, gates, quirks)
    yield Count("Cluster Autoscaler", _texts_of(cluster_autoscaler_requests(pod, gates)))


def _fits(requests: Mapping[str, int], node: KnownNode) -> str:
    """Return whether the scheduler's filter passes on the empty node, with what is short; empty where the node is
    unknown."""
    if node.allocatable is None:
        return ""
    known = {name: amount for name, amount in requests.items() if node.complete or name in node.allocatable}
    lacking = insufficient_resources(known, {}, amounts({"pods": _PODS, **node.allocatable}), pods=0)
    if not lacking:
        return "fits the empty node"
    return "does not fit the empty node: " + ", ".join(
        f"{one.reason} ({_amount_text(one.resource, one.requested)} of {_amount_text(one.resource, one.capacity)})"
        for one in lacking
    )


def _score_note(pod: Pod, gates: Gates, quirks: Quirks, scored: Mapping[str, int], requests: Mapping[str, int]) -> str:
    """Return why LeastAllocated and similar plugins count other amounts than the filter does; empty if they do not."""
    if all(scored.get(name, 0) == requests.get(name, 0) for name in _SCORED):
        return ""
    if quirks.fit_score_ignores_pod_level and is_pod_level_resources_set(pod) and gates["PodLevelResources"]:
        return "does not look at spec.resources; containers without a request count as 100m, 200Mi"
    return "containers without a request count as 100m, 200Mi"


def _scope(pod: Pod, gates: Gates) -> str:
    scope = "BestEffort" if pod_qos(pod, gates) == BEST_EFFORT else "NotBestEffort"
    deadline = "NotTerminating" if pod.spec.active_deadline_seconds is None else "Terminating"
    return f"scopes {scope}, {deadline}"


def _missing_limits(pod: Pod, usage: Mapping[str, Quantity]) -> str:
    missing = [name for name in _SCORED if LIMITS_PREFIX + name not in usage]
    return f"a quota on {' or '.join('limits.' + name for name in missing)} finds none" if missing else ""


def _quota(usage: Mapping[str, Quantity], prefix: str) -> dict[str, str]:
    return _texts({name.removeprefix(prefix): amount for name, amount in usage.items() if name.startswith(prefix)})


def _eviction(pod: Pod, gates: Gates, quirks: Quirks) -> Count:
    counted = eviction_requests(pod, gates, quirks)
    memory = counted.get("memory")
    note = "more use than this ranks first" if memory is not None else "any use ranks above the request"
    if quirks.eviction_pod_level_hides_containers and is_pod_level_resources_set(pod) and memory is None:
        note = "spec.resources without memory hides the containers' requests"
    return Count("eviction", _texts({"memory": memory}) if memory is not None else {}, note)


def _hpa(pod: Pod, gates: Gates, quirks: Quirks) -> Count:
    """Return the requests by which a HorizontalPodAutoscaler divides usage, or why it has none."""
    found: dict[str, Quantity] = {}
    problems = []
    for name in _SCORED:
        try:
            milli = hpa_request(pod, name, gates, quirks)
        except MetricsError as error:
            problems.append(error.problem)
        else:
            found[name] = Quantity(milli * 10**6, "DecimalSI" if name == "cpu" else BINARY_SI)
    return Count("HPA", _texts(found), "; ".join(problems))


def _texts_of(counted: Mapping[str, int]) -> dict[str, str]:
    return {
        name: _amount_text(name, counted[name]) for name in in_order({*counted}) if counted[name] or name in _SCORED
    }


def _amount_text(name: str, amount: int) -> str:
    if name == "cpu":
        return str(Quantity.milli(amount))
    if name == "memory" or name == "ephemeral-storage" or name.startswith("hugepages-"):
        return Quantity.of(amount, BINARY_SI).canonical()
    return str(amount)


def _texts(quantities: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(quantities[name]) for name in in_order({*quantities})}
