"""The Memory Manager: NUMA nodes for memory and huge pages (spec memory-device 1).

Policy `None` decides nothing but keeps its state file; policy `Static` gives Guaranteed pods memory on the nodes the
Topology Manager chose. Memory is booked, never moved: `cpuset.mems` is set when a container is created. The
algorithms live in `core.hints.memory` and `core.allocate`; here is the order of things: clean up, decide, book, count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.allocate import memory_pod
from podslice.core.allocate.memory_static import charge, check_reservation, default_machine_state, release, resolve
from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.reservation import reserved_memory_bytes
from podslice.core.errors import AdmissionError, StartError
from podslice.core.hints.hint import Hint, ProviderHints, ResourceHints
from podslice.core.hints.hintset import HintSet
from podslice.core.hints.memory import memory_hints
from podslice.core.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.core.machine.model import Machine
from podslice.core.managers.context import ContainerMap, NodeContext
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.core.state.checkpoint_memory import MemoryCheckpoint, MemoryStateEncoder
from podslice.core.state.restore_memory import restore_memory_state, validate_memory_state
from podslice.core.values.cpuset import Bits, bits_of, iter_bits
from podslice.core.values.golang import quote
from podslice.core.values.quantity import Quantity

_REQUESTS = "memory_manager_pinning_requests_total"
_ERRORS = "memory_manager_pinning_errors_total"
_ALLOCATIONS = "resource_manager_allocations_total{resource_name=memory,source=%s}"
_ALLOCATION_ERRORS = "resource_manager_allocation_errors_total{resource_name=memory,source=%s}"
_ASSIGNMENTS = "resource_manager_container_assignments{assignment_type=%s,resource_name=memory}"
MAX_NODE_ID = 63
_SLICE_EVENTS = {
    "request": _REQUESTS,
    "exclusive": _ASSIGNMENTS % "pod_exclusive",
    "shared": _ASSIGNMENTS % "pod_shared",
}


class Snapshot(NamedTuple):
    """What a refused pod must be given back to; see `MemoryManager.snapshot`."""

    machine: MachineState
    entries: dict[str, list[Block]] | None
    pod: list[Block] | None
    reusable: dict[str, dict[Bits, Amounts]]
    revision: int


class MemoryManager:
    """Policies `None` and `Static`; a hint provider of the Topology Manager, the last one asked.

    `reserved` are bytes by NUMA node and resource.
    """

    name = "memory"

    def __init__(self, machine: Machine, context: NodeContext, policy: str, reserved: Mapping[int, Mapping[str, int]]):
        self.machine = machine
        self.context = context
        self.policy = policy
        self.revision = 0
        self.machine_state: MachineState = {}
        self.assignments: dict[str, dict[str, list[Block]]] = {}
        self.pod_assignments: dict[str, list[Block]] = {}
        self.allocatable: list[Block] = []
        self.containers = ContainerMap()
        self._reserved = reserved
        self._reusable: dict[str, dict[Bits, Amounts]] = {}
        self._cleaned = 0
        self._pod_level = context.gates["PodLevelResourceManagers"]
        self._encoder = MemoryStateEncoder()

    @classmethod
    def build(
        cls, machine: Machine, config: KubeletConfig, context: NodeContext, reservation: Mapping[str, Quantity]
    ) -> MemoryManager:
        """The manager a configuration asks for (spec 1.3). Raises `StartError`."""
        stage = "memoryManager"
        policy = config.memory_manager_policy
        if policy == "None":
            return cls(machine, context, policy, {})
        if policy == "BestEffort":
            raise StartError(stage, f'policy {quote(policy)} is not available for platform "linux"')
        if policy != "Static":
            raise StartError(stage, f"unknown policy: {quote(policy)}")
        reserved = reserved_memory_bytes(config, machine, reservation)
        if not sum(amounts.get("memory", 0) for amounts in reserved.values()) > 0:
            raise StartError(stage, "[memorymanager] you should specify the system reserved memory")
        if not context.quirks.memory_reservation_wraps:
            check_reservation(machine, reserved)
        _check_nodes([node.id for node in machine.nodes])
        return cls(machine, context, policy, reserved)

    @property
    def static(self) -> bool:
        return self.policy == "Static"

    # State

    def start(self, data: bytes | None, containers: Mapping[str, tuple[str, str]], path: str) -> None:
        """Restore or create the state, and check it against the machine (spec 1.13.2, 1.14). Raises `StartError`."""
        quirks = self.context.quirks
        checkpoint = MemoryCheckpoint(policy_name=self.policy)
        if data is None:
            self.revision += 1
        else:
            checkpoint = restore_memory_state(
                data,
                policy_name=self.policy,
                pod_level=self._pod_level,
                path=path,
                trust_zero=quirks.zero_checksum_is_trusted,
            )
        if self.static:
            default = default_machine_state(self.machine, self._reserved)
            before = [_copy(state) for _, state in sorted((checkpoint.machine_state or {}).items())]
            validate_memory_state(
                checkpoint,
                default,
                pod_level=self._pod_level,
                tolerate_drift=not quirks.memory_drift_blocks_start,
                tables_may_miss=not quirks.missing_hugepages_crash,
            )
            self.revision += before != [state for _, state in sorted((checkpoint.machine_state or {}).items())]
        self.machine_state = checkpoint.machine_state or {}
        self.assignments = {
            pod: {name: list(blocks or ()) for name, blocks in (named or {}).items()}
            for pod, named in (checkpoint.entries or {}).items()
        }
        self.pod_assignments = {pod: list(blocks or ()) for pod, blocks in (checkpoint.pod_entries or {}).items()}
        if not quirks.refused_pods_leave_state:
            self._drop_unbooked_pods()
        self.containers = ContainerMap(containers)
        if self.static:
            self.allocatable = [
                Block((node,), name, table.allocatable)
                for node, state in sorted(self.machine_state.items())
                for name, table in sorted((state.memory_map or {}).items())
                if table.allocatable
            ]

    def _drop_unbooked_pods(self) -> None:
        """Pod entries without containers are left by an interrupted admission; nothing is booked for them (4.9)."""
        for uid in [uid for uid in self.pod_assignments if not self.assignments.get(uid)]:
            del self.pod_assignments[uid]
            self.revision += 1

    def encode(self) -> bytes:
        """The state file a kubelet of this release writes."""
        checkpoint = MemoryCheckpoint(
            policy_name=self.policy,
            machine_state=self.machine_state,
            entries={pod: dict(named) for pod, named in self.assignments.items()},
            pod_entries=dict(self.pod_assignments),
        )
        return self._encoder.encode(checkpoint, "v2" if self._pod_level else "v1")

    def snapshot(self, uid: str) -> Snapshot | None:
        """What a failed admission of this pod must be undone to; what gone pods held is freed before."""
        if not self.static:
            return None
        self.remove_stale()
        own = self.assignments.get(uid)
        return Snapshot(
            {node: _copy(state) for node, state in self.machine_state.items()},
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

    # Requests (spec 1.5)

    def _request(self, pod: AdmissionPod, container: AdmissionContainer) -> Amounts:
        return container_memory(pod, container, exact_text=self.context.quirks.inexact_memory_is_refused)

    def _pod_request(self, pod: AdmissionPod) -> Amounts:
        return pod_memory(pod, exact_text=self.context.quirks.inexact_memory_is_refused)

    # Hints (spec 1.7)

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
            return _regenerated(held, request)
        return self._hints(request, self._left_by_init(pod, container))

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
                return _regenerated(own, request)
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
            return _regenerated(first, request)
        return _regenerated_pod(held, request)

    def _hints(self, request: Amounts, reuse: Mapping[Bits, Amounts]) -> dict[str, ResourceHints]:
        hints = self._fitting(request, reuse)
        if hints is None and self.context.quirks.impossible_memory_is_no_preference:
            return {}
        return dict.fromkeys(request, hints or [])

    def _fitting(self, request: Amounts, reuse: Mapping[Bits, Amounts]) -> HintSet | None:
        return memory_hints(self.machine_state, request, reuse, crash=self.context.quirks.missing_hugepages_crash)

    def _has_ended(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """A plain init container without memory of its own has ended when a later container has some, or was started
        (findings 14.9)."""
        held = self.assignments.get(pod.uid, {})
        if self.context.quirks.init_memory_again or not container.plain_init or container.name in held:
            return False
        started = self.containers.references()
        later = pod.containers[pod.containers.index(container) + 1 :]
        return any(other.name in held or (pod.uid, other.name) in started for other in later)

    # Allocation of containers (spec 1.10)

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
                self._remember_reusable(pod.uid, container, held)
            else:
                self._allocate_container(pod, container, affinity)
        except AdmissionError:
            self.context.count(_ERRORS)
            self._count(_ALLOCATION_ERRORS % "node")
            raise

    def _allocate_container(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        request = self._request(pod, container)
        if self._has_ended(pod, container):
            return
        if not request and not self.context.quirks.shared_containers_need_memory:
            return
        reuse = self._left_by_init(pod, container)
        mask = self._resolve(affinity, request, reuse)
        reusable = reuse.get(mask, {})
        blocks = []
        for name, size in sorted(request.items()):
            blocks.append(Block(tuple(iter_bits(mask)), name, size))
            charge(self.machine_state, mask, name, max(0, size - reusable.get(name, 0)))
            self._count(_ALLOCATIONS % "node")
        self._remember_reusable(pod.uid, container, blocks)
        self.assignments.setdefault(pod.uid, {})[container.name] = blocks
        self.revision += 1
        self._shrink_init_blocks(pod, container, blocks)
        self._count(_ASSIGNMENTS % "node_exclusive")

    def _resolve(self, affinity: Hint, request: Amounts, reuse: Mapping[Bits, Amounts]) -> Bits:
        return resolve(
            self.machine_state,
            affinity,
            request,
            lambda: self._fitting(request, reuse),
            whole_groups=not self.context.quirks.single_node_in_group,
        )

    def _left_by_init(self, pod: AdmissionPod, container: AdmissionContainer) -> Mapping[Bits, Amounts]:
        """Bytes that plain init containers leave to the container, by mask: what the earlier ones still hold."""
        if self.context.quirks.init_memory_reuse_drifts:
            return self._reusable.get(pod.uid, {})
        entries = self.assignments.get(pod.uid, {})
        left: dict[Bits, Amounts] = {}
        for earlier in pod.containers:
            if not earlier.init or earlier.name == container.name:
                break
            for block in entries.get(earlier.name, ()) if earlier.plain_init else ():
                amounts = left.setdefault(bits_of(block.numa_affinity or ()), {})
                amounts[block.type] = amounts.get(block.type, 0) + block.size
        return left

    def _remember_reusable(self, uid: str, container: AdmissionContainer, blocks: list[Block]) -> None:
        """Upstream's table of reusable memory, which is kept beside the entries and goes out of step with them."""
        if not self.context.quirks.init_memory_reuse_drifts:
            return
        table = {mask: dict(amounts) for mask, amounts in self._reusable.get(uid, {}).items()}
        for block in blocks:
            mask = bits_of(block.numa_affinity or ())
            if container.plain_init:
                amounts = table.setdefault(mask, {})
                amounts[block.type] = max(amounts.get(block.type, 0), block.size)
            elif table.get(mask, {}).get(block.type):
                table[mask][block.type] = max(0, table[mask][block.type] - block.size)
        self._reusable = {uid: table}

    def _shrink_init_blocks(self, pod: AdmissionPod, current: AdmissionContainer, blocks: list[Block]) -> None:
        """Take what the container reuses off the records of the init containers before it (spec 1.10.9)."""
        entries = self.assignments[pod.uid]
        for block in blocks:
            remaining = block.size
            for container in pod.containers:
                if not container.init or container.name == current.name or remaining == 0:
                    break
                if container.restartable or container.name not in entries:
                    continue
                shrunk = []
                for own in entries[container.name]:
                    same = own.type == block.type and set(own.numa_affinity or ()) == set(block.numa_affinity or ())
                    taken = min(own.size, remaining) if same else 0
                    remaining -= taken
                    shrunk.append(Block(own.numa_affinity, own.type, own.size - taken))
                entries[container.name] = shrunk

    # Allocation of pods (spec 1.11)

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
            self._count(_ALLOCATION_ERRORS % "pod")
            raise

    def _allocate_pod(self, pod: AdmissionPod, request: Amounts, affinity: Hint) -> None:
        def own(container: AdmissionContainer) -> Amounts:
            return self._request(pod, container)

        memory_pod.check_shared_pool(pod, request, own)
        if not self.context.quirks.memory_budget_wraps:
            memory_pod.check_budget(pod, request, own)
        mask = self._resolve(affinity, request, self._reusable.get(pod.uid, {}))
        slices = memory_pod.partition(pod, request, own, self._count_slice)
        nodes = tuple(iter_bits(mask))
        self.pod_assignments[pod.uid] = [Block(nodes, name, size) for name, size in sorted(request.items())]
        for name, size in sorted(request.items()):
            charge(self.machine_state, mask, name, size)
        entries = self.assignments.setdefault(pod.uid, {})
        for container in pod.containers:
            entries[container.name] = [
                Block(nodes, name, size) for name, size in sorted(slices[container.name].items()) if size
            ]
            self._count(_ALLOCATIONS % "pod")
        self.revision += 1

    def _count_slice(self, event: str) -> None:
        if self._pod_level or event == "request":
            self.context.count(_SLICE_EVENTS[event])

    def _count(self, metric: str) -> None:
        """Count a metric that exists only with PodLevelResourceManagers."""
        if self._pod_level:
            self.context.count(metric)

    # Release (spec 1.12)

    def remove_stale(self) -> None:
        """Drop what belongs to containers that are no longer active."""
        if not self.context.sources_ready or self._cleaned == self.context.epoch:
            return
        self._cleaned = self.context.epoch
        is_active = self.context.is_active
        gone = [(uid, name) for uid, named in self.assignments.items() for name in named if not is_active(uid, name)]
        gone += [reference for reference in self.containers.references() if not is_active(*reference)]
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
                release(self.machine_state, pod_blocks)
                del self.pod_assignments[uid]
        elif blocks is not None:
            release(self.machine_state, blocks)
            self.revision += 1

    # Queries (spec 1.15)

    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """True when the container has memory blocks, or is entitled to none."""
        if not self.static or not pod.guaranteed or pod.ignored or self._has_ended(pod, container):
            return True
        held = self.assignments.get(pod.uid, {})
        return container.name in held or (pod.managed and not container.guaranteed)

    def numa_nodes(self, uid: str, container: str) -> Bits:
        """NUMA nodes the container's memory is bound to; 0 for no binding."""
        mask = 0
        for block in self.blocks(uid, container):
            mask |= bits_of(block.numa_affinity or ())
        return mask

    def blocks(self, uid: str, container: str) -> list[Block]:
        """The blocks a container holds, sorted by type."""
        return self.assignments.get(uid, {}).get(container, [])

    def pod_blocks(self, uid: str) -> list[Block]:
        """The blocks a pod with pod-level resources holds as a whole."""
        return self.pod_assignments.get(uid, [])


def _check_nodes(ids: list[int]) -> None:
    """Node ids must fit a mask."""
    if any(not 0 <= node <= MAX_NODE_ID for node in ids):
        raise StartError("memoryManager", f"NUMA node ids must be between 0 and {MAX_NODE_ID}: {ids}")


def _regenerated(blocks: list[Block], request: Amounts) -> ProviderHints:
    """Hints from blocks that are held already; None when they do not match the request."""
    if len(blocks) != len(request) or any(request.get(block.type) != block.size for block in blocks):
        return None
    return {block.type: HintSet.only(bits_of(block.numa_affinity or ())) for block in blocks}


def _regenerated_pod(held: Mapping[str, list[Block]], request: Amounts) -> ProviderHints:
    """The nodes all containers of the pod are on; None when they are on different ones."""
    masks = {bits_of(block.numa_affinity or ()) for blocks in held.values() for block in blocks}
    if len(masks) != 1:
        return None
    return dict.fromkeys(request, HintSet.only(masks.pop()))


def _copy(state: NUMANodeState) -> NUMANodeState:
    tables = {
        name: MemoryTable(t.total, t.system_reserved, t.allocatable, t.reserved, t.free)
        for name, t in (state.memory_map or {}).items()
    }
    return NUMANodeState(state.number_of_assignments, tables, list(state.cells or ()))
