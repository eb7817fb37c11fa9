"""The cgroups of the QoS classes, whose values depend on every active pod of a node (pod-level-resources 8.2, 8.5).

Guaranteed pods are directly under `kubepods`, so its values are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podslice.api.pod.demand import BEST_EFFORT, BURSTABLE, GUARANTEED, pod_qos, pod_requests
from podslice.api.pod.spec import Pod
from podslice.node.effects.cpu_weight import MIN_SHARES, milli_cpu_to_shares, shares_to_weight
from podslice.node.effects.memory_qos import LOW, MIN
from podslice.node.effects.settings import EVERY_REQUEST, NO_RESERVATION, TIERED
from podslice.values.golang import wrap_int64
from podslice.values.quantity import ZERO


class QOSCgroup(NamedTuple):
    """Values of one class. `cpu_shares` None: not written by this update; `memory_qos`: bytes by file, with gate
    MemoryQoS."""

    cpu_shares: int | None
    memory_qos: Mapping[str, int]

    @property
    def cpu_weight(self) -> int | None:
        """cpu.weight on cgroup v2."""
        return None if self.cpu_shares is None else shares_to_weight(self.cpu_shares)


def qos_cgroups(
    pods: Iterable[Pod], gates: Mapping[str, bool], reservation_policy: str = NO_RESERVATION
) -> dict[str, QOSCgroup]:
    """Return the values by QoS class for the active pods of a node, overhead included.

    Memory is reserved with `reservation_policy` TieredReservation or EVERY_REQUEST only, and counts pod-level requests
    whatever their gate says.
    """
    milli_cpu = 0
    memory = {GUARANTEED: 0, BURSTABLE: 0, BEST_EFFORT: 0}
    for pod in pods:
        qos = pod_qos(pod, gates)
        requests = pod_requests(pod, pod_level=gates["PodLevelResources"])
        if qos == BURSTABLE:
            milli_cpu += requests.get("cpu", ZERO).milli_value()
        if reservation_policy in (TIERED, EVERY_REQUEST) and qos != BEST_EFFORT:
            memory[qos] = wrap_int64(memory[qos] + pod_requests(pod).get("memory", ZERO).value())
    return {
        GUARANTEED: QOSCgroup(None, {MIN: wrap_int64(memory[GUARANTEED] + memory[BURSTABLE])}),
        BURSTABLE: QOSCgroup(
            milli_cpu_to_shares(milli_cpu), {MIN if reservation_policy == EVERY_REQUEST else LOW: memory[BURSTABLE]}
        ),
        BEST_EFFORT: QOSCgroup(MIN_SHARES, {}),
    }
