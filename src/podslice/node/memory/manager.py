"""The Memory Manager: NUMA nodes for memory and huge pages (memory-device 1).

Policy `None` decides nothing but keeps its state file; policy `Static` gives Guaranteed pods memory on the nodes the
Topology Manager chose. Memory is only accounted, never moved: `cpuset.mems` is set when a container is created. The
algorithms are in `hints` and `static`; this module keeps the order: clean up, decide, charge, count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.machine.memory import Block, MachineState
from podslice.machine.memory_accounts import charge
from podslice.node.checkpoints.data import add_data
from podslice.node.context import (
    NodeContext,
    allocation_error_series,
    allocation_series,
    assignment_series,
)
from podslice.node.cpu import state as model
from podslice.node.cpu.state import PodMemory
from podslice.node.memory import elastic as memory_elastic
from podslice.node.memory import pod_level as memory_pod
from podslice.node.memory import pods as memory_pods
from podslice.node.memory import reuse as memory_reuse
from podslice.node.memory.checkpoint import MemoryStateEncoder
from podslice.node.memory.hints import hints_for_held, hints_for_pod, is_too_large, memory_hints
from podslice.node.memory.state import Blocks, MemoryState, fits, rebuild_ledger, restore_state
from podslice.node.memory.static import resolve
from podslice.node.rules import MemoryRules
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet, ProviderHints, ResourceHints
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError
from podslice.values.series import Series, series
from podslice.values.tables import drop

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
_NOTHING: Mapping[Bits, Amounts] = {}
Content = tuple[MachineState, dict[str, memory_reuse.Entries], dict[str, Blocks]]
"""Content of the state file: the ledgers, blocks by pod and container, blocks of pods."""


class MemoryManager:
    """Policies `None` and `Static`; the last hint provider that the Topology Manager asks.

    `filed` is the content of the state file as last written, None where there is no file yet.
    """

    __slots__ = ("_encoder", "context", "filed", "rules", "state")
    name = "memory"

    def __init__(self, rules: MemoryRules, context: NodeContext, state: MemoryState | None = None) -> None:
        self.rules = rules
        self.context = context
        self.state = state or MemoryState()
        self.filed: Content | None = self.file_content if state is None else None
        self._encoder: MemoryStateEncoder | None = None

    def start(
        self, data: bytes | None, containers: Mapping[str, tuple[str, str]], path: str, *, tracks: bool = False
    ) -> None:
        """Begin with a state file, or without one (memory-device 1.13.2, 1.14); `tracks`: on a machine whose memory
        changed the ledgers are rebuilt. Raises `StartError`."""
        found = restore_state(
            self.rules, data, containers, path, self.context.quirks, self.context.release, tracks=tracks
        )
        self.state, self.rules = found.state, found.rules
        self.filed = self.file_content if found.as_filed else None

    @property
    def file_content(self) -> Content:
        """Content of the state file for the current state."""
        return self.state.machine_state, self.state.assignments, self.state.pod_assignments

    def encode(self) -> bytes:
        """Return the state file as a kubelet of this release writes it: V2 with PodLevelResourceManagers, else V1; from
        1.37 on V3."""
        if self._encoder is None:
            self._encoder = MemoryStateEncoder()
        machine, assignments, pods = self.file_content
        newest = self._encoder.encode(self.policy, machine, assignments, pods if self.rules.pod_level else None)
        if self.context.release.state_files != "v4":
            return newest
        return add_data(self._encoder.encode(self.policy, machine, assignments, None), newest)

    # Rules and state

    @property
    def policy(self) -> str:
        return self.rules.policy

    @property
    def static(self) -> bool:
        return self.rules.policy == "Static"

    @property
    def machine_state(self) -> MachineState:
        """The machine's ledgers by NUMA node."""
        return self.state.machine_state

    @property
    def assignments(self) -> dict[str, memory_reuse.Entries]:
        """Blocks by pod and container."""
        return self.state.assignments

    @property
    def pod_assignments(self) -> dict[str, Blocks]:
        """Blocks that pods with pod-level resources hold as a whole."""
        return self.state.pod_assignments

    @property
    def allocatable(self) -> list[Block]:
        """Memory of each NUMA node that pods may hold."""
        return [
            Block((node,), name, table.allocatable)
            for node, state in sorted(self.state.machine_state.items() if self.static else ())
            for name, table in sorted((state.memory_map or {}).items())
            if table.allocatable
        ]

    def numa_nodes(self, uid: str, container: str) -> Bits:
        """Return the NUMA nodes the container's memory is bound to; 0 for no binding."""
        nodes = model.numa_nodes(self.blocks(uid, container))
        return nodes and model.remaining_nodes(nodes, self.state.machine_state)

    def blocks(self, uid: str, container: str) -> Blocks:
        """Return the blocks a container holds, sorted by type."""
        return self.state.assignments.get(uid, {}).get(container, ())

    def pod_blocks(self, uid: str) -> Blocks:
        """Return the blocks a pod with pod-level resources holds as a whole."""
        return self.state.pod_assignments.get(uid, ())

    # A defect of upstream that shows in several places

    @property
    def _repeats(self) -> bool:
        """Whether a running pod is allocated, or refused, once more."""
        return self.context.quirks.pod_allocation_repeats

    # Requests (memory-device 1.5)

    def _request(self, pod: AdmissionPod, container: AdmissionContainer) -> Amounts:
        return container_memory(pod, container, self.context.quirks)

    def _pod_request(self, pod: AdmissionPod) -> Amounts:
        return pod_memory(pod, self.context.quirks)

    # Hints (memory-device 1.7)

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        """Return the hints for one container."""
        if not self.rules.static:
            return None
        if self.context.leftovers:
            self.remove_stale()
        if not pod.guaranteed:
            return None
        try:
            request = container_memory(pod, container, self.context.quirks)
        # An amount that upstream cannot represent gives no hints; the allocation refuses it.
        except AdmissionError:
            return None
        entries = self.state.assignments.get(pod.uid, {})
        if pod.ignored or (container.plain_init and self._has_ended(pod, container, entries)):
            return None
        held = entries.get(container.name)
        if held is not None:
            return self._hints_for_held(held, request)
        return self._hints(request, self._reusable(pod, container, entries))

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        """Return the hints for the pod as a whole."""
        if not self.rules.static:
            return None
        if self.context.leftovers:
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
            own = self.state.pod_assignments.get(pod.uid)
            if own is not None and not self._repeats:
                return self._hints_for_held(own, request)
            try:
                memory_pod.check_shared_pool(pod, request, partial(self._request, pod))
            except AdmissionError:
                return {name: [] for name in request}
        held = self.state.entries(pod.uid)
        first = next((held[container.name] for container in pod.containers if container.name in held), None)
        if not request:
            # Only containers of pods with pod-level resources that are managed as if they had none get here.
            return hints_for_held(first or (), request)
        if first is None:
            return self._hints(request, self.state.reusable.get(pod.uid, {}))
        # Upstream takes the first container's blocks for the whole pod's.
        if self.context.quirks.pod_hints_of_one_container:
            return hints_for_held(first, request)
        growing = None
        if self.rules.elastic:
            requests = partial(self._request, pod)
            growing = memory_elastic.hints_for_growing_pod(self.state, pod, requests, self.context.search_budget)
        return growing or hints_for_pod(held, request)

    def _hints_for_held(self, held: Blocks, request: Amounts) -> ProviderHints:
        """Return hints from held blocks: their nodes, or those on which they can grow to the request."""
        if not self.rules.elastic or not memory_elastic.grows(held, request):
            return hints_for_held(held, request)
        return dict.fromkeys(
            request, memory_elastic.growth_hints(self.state, held, request, self.context.search_budget) or []
        )

    def _hints(self, request: Amounts, reuse: Mapping[Bits, Amounts]) -> dict[str, ResourceHints]:
        """Return the same hints for every requested resource (memory-device 1.6)."""
        hints = self._find_hints(request, reuse)
        # No hints at all read as no preference, so upstream refuses only after CPUs were taken (memory-device 4.4).
        if hints is None and self.context.quirks.impossible_memory_is_no_preference:
            return {}
        return dict.fromkeys(request, hints or [])

    def _find_hints(self, request: Amounts, reuse: Mapping[Bits, Amounts]) -> HintSet | None:
        if request:
            self.context.note_listing("memory", len(self.state.machine_state))
        return memory_hints(
            self.state.machine_state,
            request,
            reuse,
            crash=self.rules.crashes,
            wraps=self.rules.sums_wrap,
            search_budget=self.context.search_budget,
        )

    def _has_ended(self, pod: AdmissionPod, container: AdmissionContainer, held: memory_reuse.Entries) -> bool:
        """Whether a plain init container without memory of its own has ended: a later container has some or was
        started, or its pod runs since before the kubelet (memory-device 4.18)."""
        if container.name in held or self.context.quirks.init_memory_again:
            return False
        if not self.context.sources_ready and pod.uid not in self.state.containers:
            return True
        started = self.state.containers.get(pod.uid, {}).values()
        later = pod.containers[pod.containers.index(container) + 1 :]
        return any(other.name in held or other.name in started for other in later)

    # Allocation of containers (memory-device 1.10)

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Give a container memory on the nodes of its affinity. Raises `AdmissionError`."""
        if not self.rules.static:
            return
        if self.context.leftovers:
            self.remove_stale()
        if not pod.guaranteed or pod.ignored:
            return
        self.context.metrics[_REQUESTS] += 1
        try:
            entries = self.state.assignments.get(pod.uid, {})
            if container.name in entries:
                self._grow(pod, container, entries[container.name], affinity)
                self._note_reusable(pod.uid, container, entries[container.name])
            else:
                self._allocate_container(pod, container, affinity, entries)
        except AdmissionError:
            self.context.metrics[_ERRORS] += 1
            self._count(_NODE_ERRORS)
            raise

    def _grow(self, pod: AdmissionPod, container: AdmissionContainer, held: Blocks, affinity: Hint) -> None:
        if self.rules.elastic and not container.plain_init:
            request, search_budget = self._request(pod, container), self.context.search_budget
            if memory_elastic.grows(held, request):
                self.state = memory_elastic.grow(self.state, pod.uid, container.name, request, affinity, search_budget)

    def shrink(self, pod: AdmissionPod, near: Callable[[str], Bits]) -> None:
        """Free what containers, or the pod as a whole, hold beyond what the pod requests now. `near` returns the NUMA
        nodes of the CPUs of a container, or with an empty name of the pod. Raises `AdmissionError`."""
        if not self.rules.elastic or pod.uid not in self.state.assignments or pod.ignored:
            return
        follows = self.rules.follows and not self.context.memory_stays
        if self._holds_whole(pod.uid):
            request = self._pod_request(pod)
            self.state = memory_elastic.shrink_pod(self.state, pod.uid, request, near=near(""), follows=follows)
        else:
            own = partial(self._request, pod)
            self.state = memory_elastic.shrink(self.state, pod, own, near=near, follows=follows)

    def _holds_whole(self, uid: str) -> bool:
        return self.rules.pod_level and uid in self.state.pod_assignments

    def _allocate_container(
        self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint, entries: memory_reuse.Entries
    ) -> None:
        request = container_memory(pod, container, self.context.quirks)
        if container.plain_init and self._has_ended(pod, container, entries):
            return
        # Upstream allocates an empty request too, and fails where more than one set of NUMA nodes is possible.
        if not request and not self.context.quirks.shared_containers_need_memory:
            return
        reuse = self._reusable(pod, container, entries)
        mask = self._resolve(affinity, request, reuse)
        blocks = memory_elastic.blocks_on(mask, request)
        reusable = reuse.get(mask)
        machine = self.state.machine_state.copy()
        for block in blocks:
            # Reused memory is charged already, by the init container that left it.
            charge(machine, mask, block.type, block.size - reusable.get(block.type, 0) if reusable else block.size)
        self._note_reusable(pod.uid, container, blocks)
        entries = {**entries, container.name: blocks}
        if pod.containers[0].init:
            entries = memory_reuse.shrink_init_blocks(pod, container, blocks, entries)
        self.state = self.state.assign(pod.uid, entries, machine)
        if self.rules.pod_level:
            self.context.metrics[_FROM_NODE] += len(blocks)
            self.context.metrics[_NODE_EXCLUSIVE] += 1

    def _resolve(self, affinity: Hint, request: Amounts, reuse: Mapping[Bits, Amounts]) -> Bits:
        """Return the NUMA nodes for an allocation (memory-device 1.8). Raises `AdmissionError`."""
        found = resolve(
            self.state.machine_state,
            affinity,
            request,
            lambda: self._find_hints(request, reuse),
            whole_groups=not self.context.quirks.single_node_in_group,
            keep_groups=self.context.release.memory_groups_are_kept,
            names_groups=not self.context.quirks.group_rule_unnamed,
            crash=self.rules.crashes,
        )
        if not found.proven:
            self.context.end_early("the fewest NUMA nodes for the memory")
        return found.mask

    def _reusable(
        self, pod: AdmissionPod, container: AdmissionContainer, entries: memory_reuse.Entries
    ) -> Mapping[Bits, Amounts]:
        """Return the bytes that plain init containers leave to the container, by mask."""
        table = self.state.reusable.get(pod.uid, _NOTHING)
        return (
            self.rules.reuse.find_reusable(pod, container, entries, table)
            if table or pod.containers[0].init
            else _NOTHING
        )

    def left_by_init(self, pod: AdmissionPod, container: str | None) -> Mapping[Bits, Amounts]:
        """Return the bytes that plain init containers leave, by mask, to a container, or to the pod as a whole
        (None)."""
        one = next((one for one in pod.containers if one.name == container), None)
        if one is None:
            return self.state.reusable.get(pod.uid, _NOTHING)
        return self._reusable(pod, one, self.state.assignments.get(pod.uid, {}))

    def _note_reusable(self, uid: str, container: AdmissionContainer, blocks: Blocks) -> None:
        table = self.rules.reuse.update(self.state.reusable.get(uid, {}), container, blocks)
        if table is not None:
            self.state = self.state.with_reusable({uid: table})

    # Allocation of pods (memory-device 1.11)

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Give a pod with pod-level resources its memory and divide it. Raises `AdmissionError`."""
        if not self.rules.static:
            return
        if self.context.leftovers:
            self.remove_stale()
        if not pod.guaranteed:
            return
        runs = pod.uid in self.state.pod_assignments or pod.uid in self.state.assignments
        if runs and self.rules.elastic and self._holds_whole(pod.uid):
            self._resize_pod(pod, affinity)
        if runs and not self._repeats:
            return
        try:
            request = self._pod_request(pod)
        except AdmissionError:
            if self.context.quirks.inexact_memory_is_refused:
                return
            raise
        self.context.metrics[_REQUESTS] += 1
        try:
            self._allocate_pod(pod, request, affinity)
        except AdmissionError:
            self.context.metrics[_ERRORS] += 1
            self._count(_POD_ERRORS)
            raise

    def _allocate_pod(self, pod: AdmissionPod, request: Amounts, affinity: Hint) -> None:
        """Charge memory to a pod as a whole and divide it among its containers. Raises `AdmissionError`."""
        own = partial(self._request, pod)
        memory_pod.check_shared_pool(pod, request, own)
        if not self.context.quirks.memory_budget_wraps:
            memory_pod.check_budget(pod, request, own)
        mask = self._resolve(affinity, request, self.state.reusable.get(pod.uid, {}))
        slices = memory_pod.partition(pod, request, own, self._count_slice)
        self.state = memory_pods.charge_pod(self.state, pod, request, mask, slices)
        for container in pod.containers:
            if own(container) or self.context.quirks.assignment_metrics_drift:
                self._count(_FROM_POD)

    def check_whole(self, pod: AdmissionPod) -> None:
        """Whether what a running pod holds as a whole would do for all its containers. Raises `AdmissionError`."""
        if self.rules.elastic and self._holds_whole(pod.uid):
            memory_pod.check_shared_pool(pod, self._pod_request(pod), partial(self._request, pod))

    def is_too_small_for(self, pod: AdmissionPod) -> bool:
        """Whether all NUMA nodes together cannot hold the pod's request."""
        if not self.static or not pod.guaranteed or pod.ignored:
            return False
        return is_too_large(self.state.machine_state, self._pod_request(pod))

    def _resize_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Grow what a running pod holds as a whole, and divide it again (docs/resize.md)."""
        request, own = self._pod_request(pod), partial(self._request, pod)
        memory_pod.check_shared_pool(pod, request, own)
        memory_pod.check_budget(pod, request, own)
        state = self.state
        if memory_elastic.grows(self.pod_blocks(pod.uid), request):
            state = memory_elastic.grow_pod(state, pod.uid, request, affinity, self.context.search_budget)
        slices = memory_pod.partition(pod, request, own, lambda event: None)
        self.state = memory_elastic.divide(state, pod.uid, slices)

    def rebuild_pod_entry(self, pod: AdmissionPod) -> None:
        """Charge a running pod as a whole again, on its containers' nodes, if there is room for its request."""
        held = self.state.entries(pod.uid)
        gone = [one for one in pod.containers if one.name not in held and not one.plain_init]
        if self.static and held and not gone and not self.pod_blocks(pod.uid):
            request, own = self._pod_request(pod), partial(self._request, pod)
            self.state = memory_pods.rebuild_pod_entry(self.state, pod, request, own, settled=self.rules.settles)

    def _count_slice(self, event: str) -> None:
        if self.rules.pod_level or event == "request":
            self.context.metrics[_SLICE_EVENTS[event]] += 1

    def _count(self, metric: Series, amount: int = 1) -> None:
        """Count a metric that exists only with PodLevelResourceManagers."""
        if self.rules.pod_level:
            self.context.metrics[metric] += amount

    # Release (memory-device 1.12)

    def remove_stale(self) -> None:
        """Release what containers that are no longer active hold."""
        for uid, name in self.context.find_stale(self.name, self.state.assignments, self.state.containers):
            if name is not None:
                self._remove(uid, name)
            elif self.rules.static:
                self.state = self.state.forget(uid, pod_level=self.rules.pod_level, settled=self.rules.settles)
                if self.state.short:
                    self.follow_machine()
            else:
                self.state = replace(self.state, containers=drop(self.state.containers, uid))

    def add_container(self, pod: AdmissionPod, container: AdmissionContainer, container_id: str) -> None:
        """Record that a container starts: the plain init containers before it have ended and release their memory."""
        if not self.rules.static:
            return
        self.state = self.state.start(pod.uid, container.name, container_id)
        for earlier in pod.containers:
            # Init containers run in order: those before the one that starts have ended.
            if not earlier.init or earlier.name == container.name:
                return
            if earlier.plain_init:
                self._remove(pod.uid, earlier.name)

    def note_container(self, uid: str, container: str, container_id: str) -> None:
        """Record a container of the runtime."""
        self.state = self.state.start(uid, container, container_id)

    def remove_container(self, uid: str, container_id: str) -> None:
        """Release a container by its runtime id; unknown ids are ignored. The 1.36 kubelet never calls this."""
        name = self.state.containers.get(uid, {}).get(container_id)
        if name is not None:
            self._remove(uid, name)

    def _remove(self, uid: str, name: str) -> None:
        if self.rules.static:
            self._release(uid, name)
        self.state = self.state.stop(uid, name)

    def _release(self, uid: str, name: str) -> None:
        """Drop one container's entry and free its memory; a pod's own memory goes with its last container."""
        blocks = self.state.entries(uid).get(name)
        pod_blocks = self.pod_blocks(uid) if self.rules.pod_level else ()
        self.state = self.state.unassign(uid, name)
        # The pod's memory is counted once, as a whole, and goes with its last container.
        if uid in self.state.pod_assignments and self.rules.pod_level:
            if uid not in self.state.assignments:
                self._free_blocks(pod_blocks)
                self.state = self.state.unassign_pod(uid)
        elif blocks is not None:
            self._free_blocks(blocks)

    def _free_blocks(self, blocks: Iterable[Block]) -> None:
        self.state = self.state.free_blocks(blocks, settled=self.rules.settles)
        if self.state.short:
            self.follow_machine()

    def follow_machine(self) -> None:
        """Rebuild the ledgers for the present machine. Where pods hold more than the machine has, memory that one of
        them frees covers the others'."""
        rules = self.rules
        if not fits(rules.machine, rules.reserved, self.state):
            self.state = rebuild_ledger(rules.machine, rules.reserved, self.state, pod_level=rules.pod_level)

    def restore_pods(self, pods: Mapping[str, PodMemory]) -> None:
        """Restore earlier holdings of pods, as `MemoryState.restore_pods`."""
        if self.rules.static:
            self.state = self.state.restore_pods(pods, pod_level=self.rules.pod_level)

    def relocate(self, uid: str, containers: Iterable[str], nodes: Bits) -> None:
        """Charge memory to other NUMA nodes, as `MemoryState.relocate`."""
        self.state = self.state.relocate(
            uid,
            containers,
            nodes,
            pod_level=self.rules.pod_level,
            settled=self.rules.settles,
        )

    # Queries (memory-device 1.15)

    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """Whether the container has the memory blocks it is entitled to, if any."""
        held = self.state.entries(pod.uid)
        if not self.rules.static or not pod.guaranteed or pod.ignored:
            return True
        if container.plain_init and self._has_ended(pod, container, held):
            return True
        if not self.rules.elastic:
            return container.name in held or (pod.managed and not container.guaranteed)
        if self._holds_whole(pod.uid):
            return memory_elastic.fits(self.pod_blocks(pod.uid), self._pod_request(pod))
        own = held.get(container.name, ())
        return container.plain_init or memory_elastic.fits(own, self._request(pod, container))
