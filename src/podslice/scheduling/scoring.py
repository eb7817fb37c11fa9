"""Scores by which a scheduler compares the nodes a pod fits on: the requests that count and the two default scores
(pod-level-resources 13.3).

RequestedToCapacityRatio scores the same requests as the other two fit strategies, along a curve from the scheduler's
configuration, which is not here. The scores count CPU and memory with equal weight and run from 0 to 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.api.pod.demand import pod_requests
from podslice.api.pod.spec import Pod
from podslice.scheduling.predicates import CPU, MEMORY, NON_ZERO_REQUESTS, accounted_requests, non_zero_requests
from podslice.values.golang import divide, wrap_int64
from podslice.values.quantity import ZERO, Quantity
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

MAX_NODE_SCORE = 100
SCORED = (CPU, MEMORY)

Amounts = Mapping[str, int]


class NodeLoad(NamedTuple):
    """A node before the pod comes; CPUs in milli, memory in bytes.

    `requested` sums the pods' accounted requests, `non_zero` the same with defaults (`predicates.non_zero_requests`).
    """

    allocatable: Amounts
    requested: Amounts
    non_zero: Amounts


def fit_scoring_requests(pod: Pod, gates: Mapping[str, bool], quirks: Quirks) -> dict[str, int]:
    """Return what LeastAllocated, MostAllocated and RequestedToCapacityRatio count for the incoming pod.

    Containers that request nothing count as 100m and 200Mi. v1.36.2 sees neither the pod level nor the status here,
    although the node's own pods are counted with them.
    """
    if not quirks.fit_score_ignores_pod_level:
        return non_zero_requests(pod, gates)
    return scored_amounts(pod_requests(pod, pod_level=False, missing=NON_ZERO_REQUESTS))


def balanced_scoring_requests(pod: Pod, gates: Mapping[str, bool], release: Release = DEFAULT) -> dict[str, int]:
    """Return what BalancedAllocation counts for the incoming pod: the same as for a pod on the node, without
    defaults."""
    counted = accounted_requests(pod, gates, release)
    return {name: counted.get(name, 0) for name in SCORED}


def scored_amounts(requests: Mapping[str, Quantity]) -> dict[str, int]:
    """Return CPU in milli and memory in bytes, 0 for what is not requested."""
    return {CPU: requests.get(CPU, ZERO).milli_value(), MEMORY: requests.get(MEMORY, ZERO).value()}


def least_allocated_score(requests: Amounts, node: NodeLoad) -> int:
    """Score empty nodes higher: the free share after the pod, averaged over the resources the node has."""
    return _mean(
        node, {name: _free_share(used, node.allocatable.get(name, 0)) for name, used in _loads(requests, node)}
    )


def most_allocated_score(requests: Amounts, node: NodeLoad) -> int:
    """Score full nodes higher: the used share after the pod, averaged over the resources the node has."""
    return _mean(
        node, {name: _used_share(used, node.allocatable.get(name, 0)) for name, used in _loads(requests, node)}
    )


def balanced_allocation_score(requests: Amounts, node: NodeLoad) -> int:
    """Score nodes higher that the pod brings nearer to equal use of CPU and memory: 75, plus half of the
    improvement."""
    before = _balance({name: node.requested[name] for name in SCORED}, node)
    after = _balance({name: wrap_int64(node.requested[name] + requests[name]) for name in SCORED}, node)
    # A pod that makes no difference scores 75 on every node: half of the range, and half of the upper half.
    half = MAX_NODE_SCORE // 2
    return half + divide(half + after - before, 2)


def _mean(node: NodeLoad, shares: Mapping[str, int]) -> int:
    # A resource that the node does not have has no weight either.
    counted = [share for name, share in shares.items() if node.allocatable.get(name, 0)]
    return divide(sum(counted), len(counted)) if counted else 0


def _loads(requests: Amounts, node: NodeLoad) -> list[tuple[str, int]]:
    """Return what would be used of each resource with the pod."""
    return [(name, wrap_int64(node.non_zero[name] + requests[name])) for name in SCORED]


def _free_share(used: int, capacity: int) -> int:
    if not capacity or used > capacity:
        return 0
    return divide(wrap_int64((capacity - used) * MAX_NODE_SCORE), capacity)


def _used_share(used: int, capacity: int) -> int:
    return divide(wrap_int64(min(used, capacity) * MAX_NODE_SCORE), capacity) if capacity else 0


def _balance(requested: Amounts, node: NodeLoad) -> int:
    """Return 100 less the spread between the used shares of CPU and memory."""
    fractions = [min(1.0, requested[name] / node.allocatable[name]) for name in SCORED if node.allocatable.get(name, 0)]
    # Half of the difference is the standard deviation of two values, which upstream computes for any number.
    spread = abs(fractions[0] - fractions[1]) / 2 if len(fractions) == 2 else 0.0
    return int((1 - spread) * MAX_NODE_SCORE)
