"""The Memory Manager: NUMA nodes for memory and huge pages (memory-device 1).

Policy `None` decides nothing but keeps its state file; policy `Static` gives Guaranteed pods memory on the nodes the
Topology Manager chose. Memory is booked, never moved: `cpuset.mems` is set when a container is created. The
algorithms live in `core.hints.memory` and `core.allocate`; here is the order of things: clean up, decide, book, count.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.allocate import memory_pod
from podslice.core.allocate.memory_static import resolve
from podslice.core.errors import AdmissionError
from podslice.core.hints.hint import Hint
from podslice.core.hints.hintset import HintSet, ProviderHints, ResourceHints
from podslice.core.hints.memory import memory_hints
from podslice.core.machine.memory import Block
from podslice.core.machine.memory_accounts import charge, release, settle
from podslice.core.managers import memory_reuse
from podslice.core.managers.context import allocation_error_series, allocation_series, assignment_series
from podslice.core.managers.memory_books import MemoryBooks
from podslice.core.managers.memory_held import Snapshot, held_blocks_as_hints, held_by_pod
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.core.values.cpuset import Bits, bits_of, iter_bits
from podslice.core.values.series import Series, series

_REQUESTS = series("memory_manager_pinning_requests_total")
_ERRORS = series("memory_manager_pinning_errors_total")
_FROM_NODE = allocation_series("memory", "node")
_FROM_POD = allocation_series("memory", "pod")
_NODE_ERRORS = allocation_error_series("memory", "node")
_POD_ERRORS = allocation_error_series("memory", "pod")
_NODE_EXCLUSIVE = assignment_series("memory", "node_exclusive")
_SLICE_EVENTS = {
    "request": _REQUESTS,
    "exclusive": assignment_series("memory", "pod_exclusive"),
    "shared": assignment_series("memory", "pod_shared"),
}


class MemoryManager(MemoryBooks):
    """Policies `None` and `Static`; a hint provider of the Topology Manager, the last one asked."""

    name = "memory"

    # Taking back

    def snapshot(self, uid: str) -> Snapshot | None:
        """What a failed admission of this pod must be undone to; what gone pods held is freed before."""
        if not self.static:
            return None
        self.remove_stale()
        own = self.assignments.get(uid)
        return Snapshot(
            dict(self.machine_state),
            None if own is None else {name: list(blocks) for name, blocks in own.items()},
            self.pod_assignments.get(uid),
            self._reusable,
            self.revision,
        )

    def restore(self, uid: str, before: Snapshot | None) -> None:
        """Undo everything done for a pod since `snapshot`."""
        if before is None:
            return
        self.machine_state = before.machine
        self.assignments.pop(uid, None)
        if before.entries is not None:
            self.assignments[uid] = before.entries
        self.pod_assignments.pop(uid, None)
        if before.pod is not None:
            self.pod_assignments[uid] = before.pod
        self._reusable = before.reusable
        self.revision = before.revision

    # Requests (memory-device 1.5)

    def _request(self, pod: AdmissionPod, container: AdmissionContainer) -> Amounts:
        return container_memory(pod, container, exact_text=self.context.quirks.inexact_memory_is_refused)

    def _pod_request(self, pod: AdmissionPod) -> Amounts:
        return pod_memory(pod, exact_text=self.context.quirks.inexact_memory_is_refused)

    # Hints (memory-device 1.7)

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        """Hints for one container."""
        if not self.static:
            return None
        self.remove_stale()
        if not pod.guaranteed:
            return None
        try:
            request = self._request(pod, container)
        except AdmissionError:
            return None
        if pod.ignored or self._has_ended(pod, container):
            return None
        held = self.assignments.get(pod.uid, {}).get(container.name)
        if held is not None:
            return held_blocks_as_hints(held, request)
        return self._hints(request, self._left(pod, container))

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        """Hints for the pod as a whole."""
        if not self.static:
            return None
        self.remove_stale()
        if not pod.guaranteed:
            return None
        try:
            request = self._pod_request(pod)
        except AdmissionError:
            return None
        if pod.ignored:
            return None
        if pod.managed:
            own = self.pod_assignments.get(pod.uid)
            if own is not None and not self.context.quirks.pod_allocation_repeats:
                return held_blocks_as_hints(own, request)
            try:
                memory_pod.check_shared_pool(pod, request, lambda container: self._request(pod, container))
            except AdmissionError:
                return {name: [] for name in request}
        if not request:
            return None
        held = self.assignments.get(pod.uid, {})
        first = next((held[container.name] for container in pod.containers if container.name in held), None)
        if first is None:
            return self._hints(request, self._reusable.get(pod.uid, {}))
        if self.context.quirks.pod_hints_of_one_container:
            return held_blocks_as_hints(first, request)
        return held_by_pod(held, request)

    def _hints(self, request: Amounts, reuse: Mapping[Bits, Amounts]) -> dict[str, ResourceHints]:
        hints = self._fitting(request, reuse)
        if hints is None and self.context.quirks.impossible_memory_is_no_preference:
            return {}
        return dict.fromkeys(request, hints or [])

    def _fitting(self, request: Amounts, reuse: Mapping[Bits, Amounts]) -> HintSet | None:
        crash = self.context.quirks.missing_hugepages_crash
        return memory_hints(
            self.machine_state, request, reuse, crash=crash, wraps=self._sums_wrap, purse=self.context.purse
        )

    def _has_ended(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """A plain init container without memory of its own has ended when a later container has some, or was started
        (memory-device 4.18)."""
        held = self.assignments.get(pod.uid, {})
        if self.context.quirks.init_memory_again or not container.plain_init or container.name in held:
            return False
        started = self.containers.references((pod.uid,))
        later = pod.containers[pod.containers.index(container) + 1 :]
        return any(other.name in held or (pod.uid, other.name) in started for other in later)

    # Allocation of containers (memory-device 1.10)

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Give a container memory on the nodes of its affinity. Raises `AdmissionError`."""
        if not self.static:
            return
        self.remove_stale()
        if not pod.guaranteed or pod.ignored:
            return
        self.context.count(_REQUESTS)
        try:
            held = self.assignments.get(pod.uid, {}).get(container.name)
            if held is not None:
                self._remember(pod.uid, container, held)
            else:
                self._allocate_container(pod, container, affinity)
        except AdmissionError:
            self.context.count(_ERRORS)
            self._count(_NODE_ERRORS)
            raise

    def _allocate_container(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        request = self._request(pod, container)
        if self._has_ended(pod, container):
            return
        if not request and not self.context.quirks.shared_containers_need_memory:
            return
        reuse = self._left(pod, container)
        mask = self._resolve(affinity, request, reuse)
        reusable = reuse.get(mask, {})
        blocks = []
        for name, size in sorted(request.items()):
            blocks.append(Block(tuple(iter_bits(mask)), name, size))
            charge(self.machine_state, mask, name, max(0, size - reusable.get(name, 0)))
            self._count(_FROM_NODE)
        self._remember(pod.uid, container, blocks)
        self.assignments.setdefault(pod.uid, {})[container.name] = blocks
        self.revision += 1
        memory_reuse.shrink_init_blocks(pod, container, blocks, self.assignments[pod.uid])
        self._count(_NODE_EXCLUSIVE)

    def _resolve(self, affinity: Hint, request: Amounts, reuse: Mapping[Bits, Amounts]) -> Bits:
        quirks = self.context.quirks
        mask, proven = resolve(
            self.machine_state,
            affinity,
            request,
            lambda: self._fitting(request, reuse),
            whole_groups=not quirks.single_node_in_group,
            crash=quirks.missing_hugepages_crash,
        )
        if not proven:
            self.context.end_early("the fewest NUMA nodes for the memory")
        return mask

    def _left(self, pod: AdmissionPod, container: AdmissionContainer) -> Mapping[Bits, Amounts]:
        """Bytes that plain init containers leave to the container, by mask."""
        if self.context.quirks.init_memory_reuse_drifts:
            return self._reusable.get(pod.uid, {})
        return memory_reuse.left_by_init(pod, container, self.assignments.get(pod.uid, {}))

    def _remember(self, uid: str, container: AdmissionContainer, blocks: list[Block]) -> None:
        """Upstream's table of reusable memory, which is kept beside the entries and goes out of step with them."""
        if self.context.quirks.init_memory_reuse_drifts:
            self._reusable = {uid: memory_reuse.table_after(self._reusable.get(uid, {}), container, blocks)}

    # Allocation of pods (memory-device 1.11)

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Give a pod with pod-level resources its memory and divide it. Raises `AdmissionError`."""
        if not self.static:
            return
        self.remove_stale()
        if not pod.guaranteed:
            return
        quirks = self.context.quirks
        if not quirks.pod_allocation_repeats and (pod.uid in self.pod_assignments or pod.uid in self.assignments):
            return
        try:
            request = self._pod_request(pod)
        except AdmissionError:
            if quirks.inexact_memory_is_refused:
                return
            raise
        self.context.count(_REQUESTS)
        try:
            self._allocate_pod(pod, request, affinity)
        except AdmissionError:
            self.context.count(_ERRORS)
            self._count(_POD_ERRORS)
            raise

    def _allocate_pod(self, pod: AdmissionPod, request: Amounts, affinity: Hint) -> None:
        def own(container: AdmissionContainer) -> Amounts:
            return self._request(pod, container)

        memory_pod.check_shared_pool(pod, request, own)
        if not self.context.quirks.memory_budget_wraps:
            memory_pod.check_budget(pod, request, own)
        mask = self._resolve(affinity, request, self._reusable.get(pod.uid, {}))
        slices = memory_pod.partition(pod, request, own, self._count_slice)
        self._book_pod(pod, request, tuple(iter_bits(mask)), slices)
        for container in pod.containers:
            if own(container) or self.context.quirks.assignment_metrics_drift:
                self._count(_FROM_POD)

    def bring_back_pod(self, pod: AdmissionPod) -> None:
        """Book a running pod as a whole again, where its containers are, if there is room for what it asks for."""
        held = self.assignments.get(pod.uid, {})
        gone = [one for one in pod.containers if one.name not in held and not one.plain_init]
        if not self.static or not held or gone or self.pod_assignments.get(pod.uid):
            return
        request = self._pod_request(pod)
        blocks = [block for own in held.values() for block in own]
        masks = {bits_of(block.numa_affinity or ()) for block in blocks}
        if len(masks) != 1 or not {block.type for block in blocks} <= set(request):
            return
        nodes = tuple(iter_bits(masks.pop()))
        if any(self._free(nodes, name) + _booked(blocks, name) < size for name, size in request.items()):
            return
        self._give_back(blocks)
        slices = memory_pod.partition(pod, request, lambda container: self._request(pod, container), lambda event: None)
        self._book_pod(pod, request, nodes, slices)

    def _free(self, nodes: tuple[int, ...], name: str) -> int:
        tables = [(self.machine_state[node].memory_map or {}).get(name) for node in nodes]
        return sum(table.free for table in tables if table is not None)

    def _book_pod(
        self, pod: AdmissionPod, request: Amounts, nodes: tuple[int, ...], slices: Mapping[str, Amounts]
    ) -> None:
        self.pod_assignments[pod.uid] = [Block(nodes, name, size) for name, size in sorted(request.items())]
        for name, size in sorted(request.items()):
            charge(self.machine_state, bits_of(nodes), name, size)
        entries = self.assignments.setdefault(pod.uid, {})
        for container in pod.containers:
            entries[container.name] = [
                Block(nodes, name, size) for name, size in sorted(slices[container.name].items()) if size
            ]
        self.revision += 1

    def _count_slice(self, event: str) -> None:
        if self._pod_level or event == "request":
            self.context.count(_SLICE_EVENTS[event])

    def _count(self, metric: Series) -> None:
        """Count a metric that exists only with PodLevelResourceManagers."""
        if self._pod_level:
            self.context.count(metric)

    # Release (memory-device 1.12)

    def remove_stale(self) -> None:
        """Drop what belongs to containers that are no longer active."""
        if not self.context.sources_ready or self._cleaned == self.context.epoch:
            return
        changed = self.context.changed_since(self._cleaned)
        self._cleaned = self.context.epoch
        is_active = self.context.is_active
        gone = [
            (uid, name)
            for uid in (self.assignments if changed is None else changed)
            for name in self.assignments.get(uid, ())
            if not is_active(uid, name)
        ]
        gone += [reference for reference in self.containers.references(changed) if not is_active(*reference)]
        for uid, name in gone:
            self._remove(uid, name)

    def add_container(self, pod: AdmissionPod, container: AdmissionContainer, container_id: str) -> None:
        """A container starts: the plain init containers before it have ended and give their memory back."""
        self.containers.add(container_id, pod.uid, container.name)
        if not self.static:
            return
        for earlier in pod.containers:
            if not earlier.init or earlier.name == container.name:
                return
            if not earlier.restartable:
                self._remove(pod.uid, earlier.name)

    def remove_container(self, container_id: str) -> None:
        """Release a container by its runtime id; unknown ids are ignored. The 1.36 kubelet never calls this."""
        reference = self.containers.get(container_id)
        if reference is not None:
            self._remove(*reference)

    def _remove(self, uid: str, name: str) -> None:
        if self.static:
            self._release(uid, name)
        self.containers.drop_one(uid, name)

    def _release(self, uid: str, name: str) -> None:
        entries = self.assignments.get(uid, {})
        pod_blocks = self.pod_assignments.get(uid) if self._pod_level else None
        blocks = entries.pop(name, None)
        if not entries:
            self.assignments.pop(uid, None)
        if pod_blocks is not None:
            self.revision += 1
            if not entries:
                self._give_back(pod_blocks)
                del self.pod_assignments[uid]
        elif blocks is not None:
            self._give_back(blocks)
            self.revision += 1

    def _give_back(self, blocks: list[Block]) -> None:
        release(self.machine_state, blocks)
        if not self.context.quirks.group_books_drift and any(len(block.numa_affinity or ()) > 1 for block in blocks):
            settle(self.machine_state)

    # Queries (memory-device 1.15)

    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """True when the container has memory blocks, or is entitled to none."""
        if not self.static or not pod.guaranteed or pod.ignored or self._has_ended(pod, container):
            return True
        held = self.assignments.get(pod.uid, {})
        return container.name in held or (pod.managed and not container.guaranteed)


def _booked(blocks: list[Block], name: str) -> int:
    return sum(block.size for block in blocks if block.type == name)
