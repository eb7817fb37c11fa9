"""Choose the pods that a kubelet preempts so that a critical pod fits (memory-device 3.4). The scheduler's preemption
is in `fleet/scheduler/preemption.py`.

The rule spares the higher QoS classes: of Guaranteed pods only as many as are needed when every other candidate is
gone, then of Burstable, then of BestEffort. The decision is data; nothing is evicted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from podslice.api.pod.demand import BEST_EFFORT, BURSTABLE, GUARANTEED
from podslice.values.errors import PodsliceError

Amounts = dict[str, int]


class PreemptionError(PodsliceError):
    """Raised when even all candidates together would not free enough."""


class PreemptiblePod(NamedTuple):
    """A pod that may be preempted, and what that frees: milli CPUs, whole units of other resources, 1 of `pods`."""

    uid: str
    frees: Mapping[str, int]


def find_victims(missing: Mapping[str, int], candidates: Mapping[str, Sequence[PreemptiblePod]]) -> list[str]:
    """Return the UIDs of the pods to preempt, BestEffort ones first. `candidates` by QoS class, in order of the node's
    pods.

    Raises `PreemptionError` with upstream's text.
    """
    best_effort, burstable, guaranteed = (candidates[qos] for qos in (BEST_EFFORT, BURSTABLE, GUARANTEED))
    rest = _remaining(missing, [*best_effort, *burstable, *guaranteed])
    if rest:
        shown = "".join(f"(res: {name}, q: {amount}), " for name, amount in rest.items())
        raise PreemptionError(
            "preemption: error finding a set of pods to preempt: "
            f"no set of running pods found to reclaim resources: [{shown}]"
        )
    first = _fewest(guaranteed, _remaining(missing, [*best_effort, *burstable]))
    second = _fewest(burstable, _remaining(missing, [*best_effort, *first]))
    third = _fewest(best_effort, _remaining(missing, [*second, *first]))
    return [victim.uid for victim in (*third, *second, *first)]


def _remaining(missing: Mapping[str, int], gone: Iterable[PreemptiblePod]) -> Amounts:
    """Return what is still missing when some pods have left."""
    gone = list(gone)
    rest = {name: amount - sum(pod.frees.get(name, 0) for pod in gone) for name, amount in missing.items()}
    return {name: amount for name, amount in rest.items() if amount > 0}


def _fewest(candidates: Sequence[PreemptiblePod], missing: Amounts) -> list[PreemptiblePod]:
    """Return pods of one class that together free what is missing, always the one that comes closest next."""
    left = list(candidates)
    victims: list[PreemptiblePod] = []
    while missing and left:
        best = 0
        for i in range(1, len(left)):
            if _cost(left[i], missing) <= _cost(left[best], missing):
                best = i
        chosen = left[best]
        # Upstream removes by swapping with the last one, which changes the order that decides among equals.
        left[best] = left[-1]
        left.pop()
        victims.append(chosen)
        missing = _remaining(missing, [chosen])
    return victims


def _cost(pod: PreemptiblePod, missing: Amounts) -> tuple[float, int, int]:
    """Return the distance to what is missing, then memory, then CPU; of equals upstream takes the later pod."""
    distance = 0.0
    for name, amount in missing.items():
        short = max(0, amount - pod.frees.get(name, 0)) / amount
        distance += short * short
    return distance, pod.frees.get("memory", 0), pod.frees.get("cpu", 0)
