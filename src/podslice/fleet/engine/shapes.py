"""A pod as the fleet sees it: one shape for all the pods of a trace that ask for the same.

What a row of a trace became is a shape: the pod that a kubelet decides about, the amounts that a scheduler counts, and
who makes a new one when it is refused. Traces have tens of thousands of pods and a few hundred shapes; that is what
makes a simulation cheap.
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
"""Who makes a new pod after a refusal (`refusals`)."""
Effect: TypeAlias = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
WHOLE_GPU = 1000
"""Milli of one GPU."""


class NodeTaint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"


class PodToleration(NamedTuple):
    """A toleration of a pod. `key` "" with `Exists` tolerates everything, `effect` "" all effects."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: NodeTaint) -> bool:
        """True when the pod may be on a node with this taint, as far as this one goes."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class SchedulerRequests(NamedTuple):
    """What a scheduler counts of a pod: CPUs in milli, memory in bytes, everything else in whole units.

    `asked`: its filter, of the pod that comes (`fit.filter_requests`). `taken`: what the pod takes away from others
    once it is on a node. `non_zero`: the same with defaults for what is not requested. `scored` and `balanced`: of the
    pod that comes, for LeastAllocated and its like, and for BalancedAllocation. The last three: CPU and memory only.
    """

    asked: Mapping[str, int]
    taken: Mapping[str, int]
    non_zero: Mapping[str, int]
    scored: Mapping[str, int]
    balanced: Mapping[str, int]

    @classmethod
    def of(cls, pod: Pod, gates: Mapping[str, bool], quirks: Quirks) -> SchedulerRequests:
        """What a scheduler with these gates counts."""
        return cls(
            filter_requests(pod, gates),
            accounted_requests(pod, gates),
            non_zero_requests(pod, gates),
            fit_scoring_requests(pod, gates, quirks),
            balanced_scoring_requests(pod, gates),
        )


class FleetShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a row of a trace became. Two rows that say the same have the same shape.

    `pod` is what kubelets are asked about; its UID and names count for nothing. `gpus` GPUs of `gpu_milli` milli each
    (1000: whole ones) are booked by the scheduler; whole GPUs are devices of the pod too, if it names them in its
    limits. `gpu_models`: models it may run on, none for any. `node_selector` of the pod and `tolerations` are the
    scheduler's constraints. `max_per_node`: at most so many pods with the same `group` on a node, -1 for any number.
    `priority`: higher first. `placement`: node affinity, and what it asks of other pods and they of it.
    """

    name: str
    pod: Pod
    requests: SchedulerRequests
    gpus: int = 0
    gpu_milli: int = 0
    gpu_models: tuple[str, ...] = ()
    tolerations: tuple[PodToleration, ...] = ()
    group: str = ""
    max_per_node: int = -1
    priority: int = 0
    owner: Owner = "deployment"
    placement: PlacementRules = PLAIN

    @property
    def gpu_request(self) -> int:
        """Milli of all its GPUs."""
        return self.gpus * self.gpu_milli

    @property
    def cpu_request(self) -> int:
        """Milli CPUs."""
        return self.requests.asked.get("cpu", 0)
