"""The choice of a queue for each pending pod: nominations ahead, evictions for it, or requeues."""

from __future__ import annotations

from collections.abc import Sequence

from podslice.cluster.nominate.evictor import Evictor
from podslice.cluster.nominate.nominator import Nominator
from podslice.cluster.nominate.requeuer import Requeuer
from podslice.cluster.object_table import ObjectTable
from podslice.cluster.placements import Placements
from podslice.service.clusterobjects import ScheduledPod


class PendingQueues:
    """A queue gets pods where its flag is set: `nominate`, `evict`, `requeue`."""

    def __init__(
        self,
        placing: Placements,
        nominator: Nominator,
        evictor: Evictor,
        requeuer: Requeuer,
        pods: ObjectTable[ScheduledPod],
        *,
        nominate: bool,
        evict: bool,
        requeue: bool,
    ) -> None:
        self._placing, self._nominator, self._evictor, self._requeuer, self._pods = (
            placing, nominator, evictor, requeuer, pods
        )  # fmt: skip
        self._nominate, self._evict, self._requeue = nominate, evict, requeue

    def add(self, pod: ScheduledPod) -> None:
        """Take in a pod that waits for a node. A pod of the first list that its scheduler has refused is taken for
        refused by all nodes: the service did not see the call."""
        if self._nominate and self._placing.can_nominate(pod):
            self._nominator.add(pod)
        if self._evict:
            self._evictor.consider(pod)
        if self._nominator.has(pod.uid):
            self._requeuer.drop(pod.uid)
        elif self._requeue and pod.refused and not self._pods.ready:
            self._requeuer.add_listed(pod)

    def add_refused(self, pod: ScheduledPod, names: Sequence[str]) -> None:
        """Take in a pod that none of these nodes takes; one that is nominated ahead needs no requeue."""
        self._nominator.add_refused(pod.uid)
        if self._requeue and self._placing.is_waiting(pod) and not self._nominator.has(pod.uid):
            self._requeuer.add_refused(pod, names)

    def drop_settled(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        """Drop a pod from the requeues once it is gone, bound, or belongs to another scheduler."""
        pod = new or old
        if pod is not None and (new is None or new.ended or not self._placing.is_waiting(new)):
            self._requeuer.drop(pod.uid, placed=new is not None and bool(new.node))
