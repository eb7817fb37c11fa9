"""The CPU Manager: hints, allocation, release and reconciliation of exclusive CPUs (cpu-topology 6 and 7).

It owns the CPU state of one node (`cpu_books`) and is the only one that changes it. The algorithms live in
`core.allocate` and `core.hints`; here is the order of things: clean up, decide, write, count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podslice.core.allocate import pod_level
from podslice.core.allocate.cpu_distribute import Pick
from podslice.core.allocate.picker import check_smt_alignment
from podslice.core.errors import AdmissionError
from podslice.core.hints.cpu import cpu_topology_hints
from podslice.core.hints.hint import Hint
from podslice.core.hints.hintset import ProviderHints, ResourceHints
from podslice.core.managers.context import allocation_error_series, allocation_series, assignment_series
from podslice.core.managers.cpu_books import EXCLUSIVE, SHARED_POOL, CPUBooks
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.values.cpuset import Bits
from podslice.core.values.series import series

EMPTY_NODE_SHARED_POOL = "EmptyNodeSharedPoolError"
_NOTHING_LEFT = "the last CPU of the node's shared pool would become exclusive, and strict-cpu-reservation lends none"
_REQUESTS = series("cpu_manager_pinning_requests_total")
_ERRORS = series("cpu_manager_pinning_errors_total")
_ALIGNED = "container_aligned_compute_resources_count"
_ALIGNED_UNCORE = series(_ALIGNED, boundary="uncore_cache", scope="container")
_ALIGNED_SMT = series(_ALIGNED, boundary="physical_cpu", scope="container")
_MISALIGNED_SMT = series(
    "container_aligned_compute_resources_failure_count", boundary="physical_cpu", scope="container"
)
_FROM_NODE = allocation_series("cpu", "node")
_FROM_POD = allocation_series("cpu", "pod")
_NODE_ERRORS = allocation_error_series("cpu", "node")
_POD_ERRORS = allocation_error_series("cpu", "pod")
_NODE_EXCLUSIVE = assignment_series("cpu", "node_exclusive")
_PICK_EVENTS = {
    "request": _REQUESTS,
    "exclusive": assignment_series("cpu", "pod_exclusive"),
    "shared": assignment_series("cpu", "pod_shared"),
}


class RunningContainer(NamedTuple):
    """A container as the pod status reports it to the reconcile pass; `id` None: the runtime has no such container."""

    pod: str
    container: str
    id: str | None
    running: bool


class CPUManager(CPUBooks):
    """Policies `none` and `static`; a hint provider of the Topology Manager, the second one asked."""

    name = "cpu"

    # Hints

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        """Hints for one container (cpu-topology 7.1)."""
        if not self.static:
            return None
        self.remove_stale()
        count = container.exclusive_cpus
        if not count or pod.ignored:
            return None
        assigned = self.state.assignment(pod.uid, container.name)
        if assigned is None:
            return {"cpu": self._hints(self.assignable, self._reusable.get(pod.uid, 0), count)}
        if assigned.bit_count() != count:
            return {"cpu": []}
        return {"cpu": self._hints(assigned, 0, count)}

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        """Hints for the pod as a whole (cpu-topology 7.2)."""
        if not self.static:
            return None
        self.remove_stale()
        if not pod.cpus or pod.ignored:
            return None
        if pod.managed:
            bubble = self._running_bubble(pod)
            if bubble is not None:
                return {"cpu": self._hints(bubble, 0, pod.cpus)}
            if self._runs(pod):
                return None
            try:
                self._check_shared_pool(pod)
            except AdmissionError:
                return {"cpu": []}
        held = 0
        for container in pod.containers:
            assigned = self.state.assignment(pod.uid, container.name)
            if assigned is not None:
                if assigned.bit_count() != container.exclusive_cpus:
                    return {"cpu": []}
                held |= assigned
        if held.bit_count() == pod.cpus:
            return {"cpu": self._hints(held, 0, pod.cpus)}
        return {"cpu": self._hints(self.assignable, self._reusable.get(pod.uid, 0) | held, pod.cpus)}

    def _hints(self, available: Bits, reusable: Bits, count: int) -> ResourceHints:
        hints = cpu_topology_hints(
            self.topology,
            available,
            reusable,
            count,
            align_by_socket=self.options.align_by_socket,
            sockets_first=not self.context.quirks.socket_alignment_lost,
        )
        return hints or []

    # Allocation

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Give a container its exclusive CPUs, if it is entitled to any (cpu-topology 6.2). Raises `AdmissionError`."""
        if not self.static:
            return
        self.remove_stale()
        if not container.exclusive_cpus or pod.ignored:
            return
        count = self.context.count
        count(_REQUESTS)
        try:
            cpus = self._allocate_container(pod, container, affinity)
        except AdmissionError:
            count(_ERRORS)
            if self._pod_metrics:
                count(_NODE_ERRORS)
            if self.options.full_pcpus_only:
                count(_MISALIGNED_SMT)
            raise
        if self.options.full_pcpus_only:
            count(_ALIGNED_SMT)
        self._update_reusable(pod.uid, container, cpus)

    def _allocate_container(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> Bits:
        held = self.state.assignment(pod.uid, container.name)
        reusable = self._reusable.get(pod.uid, 0)
        if self.options.full_pcpus_only and (held is None or self.context.quirks.smt_check_before_state):
            self._check_smt(container.exclusive_cpus, reusable)
        if held is not None:
            return held
        cpus = self._take_from_default(container.exclusive_cpus, affinity, reusable)
        self.state.assign(pod.uid, container.name, cpus)
        if self._pod_metrics:
            self.context.count(_FROM_NODE)
            self.context.count(_NODE_EXCLUSIVE)
        return cpus

    def _check_smt(self, count: int, reusable: Bits) -> None:
        free = self.state.default & ~self.reserved_physical
        if not self.context.quirks.smt_check_ignores_reusable:
            free |= reusable
        check_smt_alignment(count, free.bit_count(), self.topology.cpus_per_core)

    def _take_from_default(self, count: int, affinity: Hint, reusable: Bits) -> Bits:
        pool = self.assignable | reusable
        cpus = self._noted(self.picker.take_near(pool, count, affinity.mask, self.context.purse))
        left = self.state.default & ~cpus
        if not left and not self.context.quirks.strict_reservation_empties_pool:
            raise AdmissionError(_NOTHING_LEFT, EMPTY_NODE_SHARED_POOL)
        self.state.set_default(left)
        if self.topology.is_uncore_aligned(cpus):
            self.context.count(_ALIGNED_UNCORE)
        self.context.count(SHARED_POOL, -1000 * cpus.bit_count())
        self.context.count(EXCLUSIVE, cpus.bit_count())
        return cpus

    def _update_reusable(self, uid: str, container: AdmissionContainer, cpus: Bits) -> None:
        reusable = self._reusable.get(uid, 0)
        self._reusable = {uid: reusable | cpus if container.plain_init else reusable & ~cpus}

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Give a pod with pod-level resources its bubble and divide it (cpu-topology 6.4). Raises `AdmissionError`."""
        if not self.static:
            return
        self.remove_stale()
        if not pod.cpus or self._runs(pod):
            return
        try:
            self._allocate_bubble(pod, affinity)
        except AdmissionError:
            self.context.count(_ERRORS)
            if self._pod_metrics:
                self.context.count(_POD_ERRORS)
            raise

    def _allocate_bubble(self, pod: AdmissionPod, affinity: Hint) -> None:
        self._check_shared_pool(pod)
        if self.options.full_pcpus_only:
            self._check_smt(pod.cpus, 0)
        bubble = self._take_from_default(pod.cpus, affinity, 0)
        self.state.set_bubble(pod.uid, bubble)
        slices = pod_level.partition(pod, bubble, self._take, self._count_pick)
        for part in slices:
            self.state.assign(pod.uid, part.container, part.cpus)
        if self._pod_metrics:
            shared_too = self.context.quirks.assignment_metrics_drift
            self.context.count(_FROM_POD, sum(part.exclusive or shared_too for part in slices))

    def _check_shared_pool(self, pod: AdmissionPod) -> None:
        pod_level.check_shared_pool(pod, init_overlaps=self.context.quirks.init_overlaps_sidecars)

    def _take(self, available: Bits, count: int) -> Bits:
        return self._noted(self.picker.take(available, count, self.context.purse))

    def _noted(self, pick: Pick) -> Bits:
        if not pick.proven:
            self.context.end_early("the NUMA nodes to distribute CPUs over")
        return pick.cpus

    def _count_pick(self, event: str) -> None:
        if self._pod_metrics or event == "request":
            self.context.count(_PICK_EVENTS[event])

    def _runs(self, pod: AdmissionPod) -> bool:
        """True for a pod that was given CPUs before, in whatever scope; upstream gives it more."""
        return not self.context.quirks.pod_allocation_repeats and pod.uid in self.state.assignments

    def _running_bubble(self, pod: AdmissionPod) -> Bits | None:
        """The bubble of a pod that was admitted before; upstream does not look (quirk `pod_allocation_repeats`)."""
        if self.context.quirks.pod_allocation_repeats:
            return None
        bubble = self.state.bubbles.get(pod.uid)
        if bubble is None or bubble.bit_count() != pod.cpus:
            return None
        held = self.state.assignments.get(pod.uid, {})
        return bubble if all(container.name in held for container in pod.containers) else None

    def bring_back_bubble(self, pod: AdmissionPod) -> None:
        """Give a running pod its bubble back, if what its containers own is what the pod asks for."""
        held = self.state.assignments.get(pod.uid, {})
        if not self.static or pod.uid in self.state.bubbles or any(one.name not in held for one in pod.containers):
            return
        bubble = 0
        for container in pod.containers:
            if container.exclusive_cpus not in (0, held[container.name].bit_count()):
                return
            bubble |= held[container.name]
        if bubble.bit_count() == pod.cpus:
            self.state.set_bubble(pod.uid, bubble)

    # Release

    def remove_stale(self) -> None:
        """Drop what belongs to containers that are no longer active (cpu-topology 6.1)."""
        if not self.context.sources_ready or self._cleaned == self.context.epoch:
            return
        changed = self.context.changed_since(self._cleaned)
        self._cleaned = self.context.epoch
        if not self.context.quirks.reuse_outlives_pod:
            self._reusable = self.context.of_active(self._reusable)
        is_active = self.context.is_active
        assignments = self.state.assignments
        gone = [
            (uid, name)
            for uid in (assignments if changed is None else changed)
            for name in assignments.get(uid, ())
            if not is_active(uid, name)
        ]
        gone += [reference for reference in self.containers.references(changed) if not is_active(*reference)]
        for uid, name in gone:
            self._remove(uid, name)
        if not self.context.quirks.refused_pods_leave_state:
            self._remove_orphaned_bubbles(changed)

    def _remove_orphaned_bubbles(self, changed: Iterable[str] | None) -> None:
        bubbles = self.state.bubbles
        for uid in list(bubbles if changed is None else changed):
            if uid not in bubbles or uid in self.context.active:
                continue
            self.state.set_default(self.state.default | self.state.bubbles[uid])
            self.state.delete_bubble(uid)

    def remove_container(self, container_id: str) -> None:
        """Release a container by its runtime id; unknown ids are ignored. The 1.36 kubelet never calls this."""
        reference = self.containers.get(container_id)
        if reference is not None:
            self._remove(*reference)

    def _remove(self, uid: str, name: str) -> None:
        if self.static:
            self._release(uid, name)
        self._written.pop((uid, name), None)
        self.containers.drop_one(uid, name)

    def _release(self, uid: str, name: str) -> None:
        """Policy removal (cpu-topology 6.5): a bubble goes back as a whole with its last container."""
        state = self.state
        removed = state.assignment(uid, name)
        if removed is None:
            return
        state.unassign(uid, name)
        bubble = state.bubbles.get(uid) if self._pod_metrics else None
        if bubble is not None:
            if uid not in state.assignments:
                state.set_default(state.default | bubble)
                state.delete_bubble(uid)
                self._count_release(bubble)
            return
        released = removed
        for other in state.assignments.get(uid, {}).values():
            released &= ~other
        state.set_default(state.default | released)
        self._count_release(released)

    def _count_release(self, cpus: Bits) -> None:
        self.context.count(SHARED_POOL, 1000 * cpus.bit_count())
        self.context.count(EXCLUSIVE, -cpus.bit_count())

    # Defragmentation

    def relocate(self, uid: str, sets: Mapping[str, Bits], bubble: Bits | None = None) -> None:
        """Give containers of a pod other CPUs, as many as they have, and its bubble too if it has one.

        No upstream kubelet does this; whoever calls it has checked that the new CPUs are free (advise.defrag).
        """
        state = self.state
        old = state.bubbles.get(uid, 0) if bubble is not None else 0
        new = bubble or 0
        for name, cpus in sets.items():
            old |= state.assignment(uid, name) or 0
            new |= cpus
        state.set_default((state.default | old) & ~new)
        for name, cpus in sets.items():
            state.assign(uid, name, cpus)
        if bubble is not None:
            state.set_bubble(uid, bubble)
        self._reusable.pop(uid, None)

    # Containers at run time

    def add_container(self, uid: str, container: str, container_id: str) -> None:
        """A container is about to start under this runtime id (cpu-topology 6.7)."""
        assigned = self.state.assignment(uid, container)
        if assigned is not None:
            self._written[uid, container] = assigned
        self.containers.add(container_id, uid, container)

    def reconcile(self, containers: Iterable[RunningContainer]) -> list[tuple[str, Bits]]:
        """One reconcile pass (cpu-topology 6.7): the (container id, CPUs) to send to the runtime, in order."""
        if not self.static:
            return []
        self.remove_stale()
        updates = []
        for status in containers:
            if not status.running or status.id is None:
                continue
            self.containers.add(status.id, status.pod, status.container)
            wanted = self.affinity(status.pod, status.container)
            key = (status.pod, status.container)
            if wanted and wanted != self._written.get(key, 0):
                updates.append((status.id, wanted))
                self._written[key] = wanted
        return updates
