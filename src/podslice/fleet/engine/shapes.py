"""A pod as the fleet sees it: one shape for all pods of a trace with the same requests.

A shape is the pod that a kubelet decides about, the amounts that a scheduler counts, and the owner that replaces it
after a refusal. Traces have tens of thousands of pods and a few hundred shapes, which is what makes a simulation cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from podslice.api.pod.spec import Pod
from podslice.fleet.scheduler.placement import PLAIN, PlacementRules
from podslice.scheduling.predicates import accounted_requests, filter_requests, non_zero_requests
from podslice.scheduling.scoring import balanced_scoring_requests, fit_scoring_requests
from podslice.values.quirks import Quirks

Owner: TypeAlias = Literal["deployment", "job", "bare", "daemonset"]
"""Kind of the owner, which decides about a new pod after a refusal (`refusals`)."""
WHOLE_GPU = 1000
"""Milli of one GPU."""


class SchedulerRequests(NamedTuple):
    """The amounts of a pod that a scheduler counts: CPU in millicores, memory in bytes, everything else in whole units.

    - `asked`: compared by the filter when the pod is scheduled (`filter_requests`).
    - `taken`: subtracted from a node once the pod is on it; `non_zero`: the same with defaults for requests that are
      missing.
    - `scored`, `balanced`: of the pod to schedule, for LeastAllocated and its like, and for BalancedAllocation.

    `non_zero`, `scored` and `balanced` have CPU and memory only.
    """

    asked: Mapping[str, int]
    taken: Mapping[str, int]
    non_zero: Mapping[str, int]
    scored: Mapping[str, int]
    balanced: Mapping[str, int]

    @classmethod
    def of(cls, pod: Pod, gates: Mapping[str, bool], quirks: Quirks) -> SchedulerRequests:
        """Return the amounts as a scheduler with these feature gates counts them."""
        return cls(
            filter_requests(pod, gates),
            accounted_requests(pod, gates),
            non_zero_requests(pod, gates),
            fit_scoring_requests(pod, gates, quirks),
            balanced_scoring_requests(pod, gates),
        )


class FleetShape(msgspec.Struct, frozen=True, kw_only=True):
    """All pods with the same requests and constraints.

    - `pod`: what kubelets decide about; its UID and names do not matter.
    - `gpus`, `gpu_milli`: GPUs of this many milli each (1000: whole ones) booked by the scheduler; whole GPUs are
      devices of the pod too, if it names them in its limits. `gpu_models`: models it may run on, empty for any.
    - `placement`, and the node selector of `pod`: the scheduler's constraints.
    - `max_per_node`: at most this many pods of the same `group` on a node, -1 for any number.
    - `priority`: higher first.
    """

    name: str
    pod: Pod
    requests: SchedulerRequests
    gpus: int = 0
    gpu_milli: int = 0
    gpu_models: tuple[str, ...] = ()
    group: str = ""
    max_per_node: int = -1
    priority: int = 0
    owner: Owner = "deployment"
    placement: PlacementRules = PLAIN

    @property
    def gpu_request(self) -> int:
        """Milli-GPUs of all its GPUs."""
        return self.gpus * self.gpu_milli

    @property
    def cpu_request(self) -> int:
        """Millicores that the scheduler's filter counts."""
        return self.requests.asked.get("cpu", 0)
