"""The Memory Manager: NUMA nodes for memory and huge pages (spec memory-device 1).

Policy `None` decides nothing but keeps its state file; policy `Static` gives Guaranteed pods memory on the nodes the
Topology Manager chose. Memory is booked, never moved: `cpuset.mems` is set when a container is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.allocate.memory_static import U64, charge, default_machine_state, release, resolve
from podslice.core.allocate.pod_level import EMPTY_POD_SHARED_POOL
from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.reservation import reserved_memory_bytes
from podslice.core.errors import AdmissionError, StartError
from podslice.core.hints.hint import Hint, ProviderHints, ResourceHints
from podslice.core.hints.memory import memory_masks
from podslice.core.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.core.machine.model import Machine
from podslice.core.managers.context import ContainerMap, NodeContext
from podslice.core.pod.demand import HUGEPAGES_PREFIX
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.pod.spec import ResourceList
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
_NOT_INT64 = "[memorymanager] failed to represent quantity as int64"
_NOTHING_FOR_INIT = "pod rejected, pod has shared init containers but no %s available for them"
_NOTHING_SHARED = (
    "pod rejected, sum of exclusive container %s requests equals pod budget, leaving no memory for shared containers"
)
Amounts = dict[str, int]


class Snapshot(NamedTuple):
    """What a refused pod must be given back to; see `MemoryManager.snapshot`."""

    machine: MachineState
    entries: dict[str, list[Block]] | None
    pod: list[Block] | None
    reusable: dict[str, dict[Bits, Amounts]]


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
        policy = config.memory_manager_policy
        if policy == "None":
            return cls(machine, context, policy, {})
        if policy == "BestEffort":
            raise StartError("memoryManager", f'policy {quote(policy)} is not available for platform "linux"')
        if policy != "Static":
            raise StartError("memoryManager", f"unknown policy: {quote(policy)}")
        reserved = reserved_memory_bytes(config, machine, reservation)
        if not sum(amounts.get("memory", 0) for amounts in reserved.values()) > 0:
            raise StartError("memoryManager", "[memorymanager] you should specify the system reserved memory")
        return cls(machine, context, policy, reserved)

    @property
    def static(self) -> bool:
        return self.policy == "Static"

    # State

    def start(self, data: bytes | None, containers: Mapping[str, tuple[str, str]], path: str) -> None:
        """Restore or create the state, and check it against the machine (spec 1.13.2, 1.14). Raises `StartError`."""
        checkpoint = MemoryCheckpoint(policy_name=self.policy)
        if data is None:
            self.revision += 1
        else:
            checkpoint = restore_memory_state(
                data,
                policy_name=self.policy,
                pod_level=self._pod_level,
                path=path,
                trust_zero=self.context.quirks.zero_checksum_is_trusted,
            )
        if self.static:
            default = default_machine_state(self.machine, self._reserved)
            before = [_copy(state) for _, state in sorted((checkpoint.machine_state or {}).items())]
            validate_memory_state(
                checkpoint,
                default,
                pod_level=self._pod_level,
                tolerate_drift=not self.context.quirks.memory_drift_blocks_start,
            )
            self.revision += before != [state for _, state in sorted((checkpoint.machine_state or {}).items())]
        self.machine_state = checkpoint.machine_state or {}
        self.assignments = {
            pod: {name: list(blocks or ()) for name, blocks in (named or {}).items()}
            for pod, named in (checkpoint.entries or {}).items()
        }
        self.pod_assignments = {pod: list(blocks or ()) for pod, blocks in (checkpoint.pod_entries or {}).items()}
        self.containers = ContainerMap(containers)
        if self.static:
            self.allocatable = [
                Block((node,), name, table.allocatable)
                for node, state in sorted(self.machine_state.items())
                for name, table in sorted((state.memory_map or {}).items())
                if table.allocatable
            ]

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
        """What a failed admission of this pod must be undone to."""
        if not self.static:
            return None
        own = self.assignments.get(uid)
        return Snapshot(
            {node: _copy(state) for node, state in self.machine_state.items()},
            None if own is None else {name: list(blocks) for name, blocks in own.items()},
            self.pod_assignments.get(uid),
            self._reusable,
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
        self.revision += 1

    # Requests (spec 1.5)

    def _container_request(self, pod: AdmissionPod, container: AdmissionContainer) -> Amounts:
        if pod.managed and not container.guaranteed:
            return {}
        return self._amounts(container.spec.resources.requests)

    def _amounts(self, resources: ResourceList | None) -> Amounts:
        amounts = {}
        for name, quantity in (resources or {}).items():
            if name == "memory" or name.startswith(HUGEPAGES_PREFIX):
                size = quantity.as_int64()
                if size is None:
                    if self.context.quirks.inexact_memory_is_refused or quantity.nano % 10**9:
                        raise AdmissionError(_NOT_INT64)
                    size = quantity.value()
                amounts[name] = size & U64
        return amounts

    def _pod_request(self, pod: AdmissionPod) -> Amounts:
        if pod.managed:
            resources = pod.spec.spec.resources
            own = self._amounts(resources.requests if resources else None)
            return {name: size for name, size in own.items() if 0 < size < 1 << 63}
        apps: Amounts = {}
        sidecars: Amounts = {}
        peak: Amounts = {}
        for container in pod.containers:
            for name, size in self._container_request(pod, container).items():
                if not container.init:
                    apps[name] = apps.get(name, 0) + size
                elif container.restartable:
                    sidecars[name] = sidecars.get(name, 0) + size
                else:
                    peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + size)
        return {name: max(size + sidecars.get(name, 0), peak.get(name, 0)) for name, size in apps.items()}

    # Hints (spec 1.7)

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        """Hints for one container."""
        if not self.static:
            return None
        self.remove_stale()
        if not pod.guaranteed:
            return None
        try:
            request = self._container_request(pod, container)
        except AdmissionError:
            return None
        if pod.ignored or self._is_over(pod, container):
            return None
        held = self.assignments.get(pod.uid, {}).get(container.name)
        if held is not None:
            return _regenerated(held, request)
        return self._hints(pod.uid, request)

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
                self._check_shared_pool(pod, request)
            except AdmissionError:
                return {name: [] for name in request}
        if not request:
            return None
        for container in pod.containers:
            held = self.assignments.get(pod.uid, {}).get(container.name)
            if held is not None:
                return self._regenerated_pod(pod, held, request)
        return self._hints(pod.uid, request)

    def _regenerated_pod(self, pod: AdmissionPod, first: list[Block], request: Amounts) -> ProviderHints:
        if self.context.quirks.pod_hints_of_one_container:
            return _regenerated(first, request)
        masks = {bits_of(block.numa_affinity or ()) for held in self.assignments[pod.uid].values() for block in held}
        if len(masks) != 1:
            return None
        hint = Hint(masks.pop(), True)
        return {name: [hint] for name in request}

    def _hints(self, uid: str, request: Amounts) -> dict[str, ResourceHints]:
        hints = self._masks(uid, request)
        if hints or self.context.quirks.impossible_memory_is_no_preference:
            return {name: list(hints) for name in request} if hints else {}
        return {name: [] for name in request}

    def _masks(self, uid: str, request: Amounts) -> list[Hint]:
        reusable = self._reusable.get(uid, {})
        return memory_masks(
            self.machine_state,
            request,
            lambda mask, name: reusable.get(mask, {}).get(name, 0),
            crash=self.context.quirks.missing_hugepages_crash,
        )

    def _is_over(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """A plain init container of a pod whose later containers hold memory has ended long ago."""
        if self.context.quirks.init_memory_again or not container.plain_init:
            return False
        held = self.assignments.get(pod.uid, {})
        return container.name not in held and any(not c.plain_init and c.name in held for c in pod.containers)

    # Allocation (spec 1.10, 1.11)

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Give a container memory on the nodes of its affinity. Raises `AdmissionError`."""
        if not self.static:
            return
        self.remove_stale()
        if not pod.guaranteed or pod.ignored:
            return
        count = self.context.count
        count(_REQUESTS)
        try:
            self._allocate_container(pod, container, affinity)
        except AdmissionError:
            count(_ERRORS)
            if self._pod_level:
                count(_ALLOCATION_ERRORS % "node")
            raise

    def _allocate_container(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        held = self.assignments.get(pod.uid, {}).get(container.name)
        if held is not None:
            self._update_reusable(pod.uid, container, held)
            return
        request = self._container_request(pod, container)
        if self._is_over(pod, container):
            return
        if not request and not self.context.quirks.shared_containers_need_memory:
            return
        mask = self._resolve(pod.uid, affinity, request)
        reusable = self._reusable.get(pod.uid, {}).get(mask, {})
        blocks = []
        for name, size in sorted(request.items()):
            blocks.append(Block(tuple(iter_bits(mask)), name, size))
            charge(self.machine_state, mask, name, max(0, size - reusable.get(name, 0)))
            if self._pod_level:
                self.context.count(_ALLOCATIONS % "node")
        self._update_reusable(pod.uid, container, blocks)
        self.assignments.setdefault(pod.uid, {})[container.name] = blocks
        self.revision += 1
        self._shrink_init_blocks(pod, container, blocks)
        if self._pod_level:
            self.context.count(_ASSIGNMENTS % "node_exclusive")

    def _resolve(self, uid: str, affinity: Hint, request: Amounts) -> Bits:
        return resolve(
            self.machine_state,
            affinity,
            request,
            lambda: self._masks(uid, request),
            whole_groups=not self.context.quirks.single_node_in_group,
        )

    def _update_reusable(self, uid: str, container: AdmissionContainer, blocks: list[Block]) -> None:
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

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Give a pod with pod-level resources its memory and divide it. Raises `AdmissionError`."""
        if not self.static:
            return
        self.remove_stale()
        if not pod.guaranteed:
            return
        try:
            request = self._pod_request(pod)
        except AdmissionError:
            return
        if pod.uid in self.pod_assignments and not self.context.quirks.pod_allocation_repeats:
            return
        self.context.count(_REQUESTS)
        try:
            self._allocate_pod(pod, request, affinity)
        except AdmissionError:
            self.context.count(_ERRORS)
            if self._pod_level:
                self.context.count(_ALLOCATION_ERRORS % "pod")
            raise

    def _allocate_pod(self, pod: AdmissionPod, request: Amounts, affinity: Hint) -> None:
        self._check_shared_pool(pod, request)
        mask = self._resolve(pod.uid, affinity, request)
        slices = self._partition(pod, request)
        nodes = tuple(iter_bits(mask))
        self.pod_assignments[pod.uid] = [Block(nodes, name, size) for name, size in sorted(request.items())]
        for name, size in sorted(request.items()):
            charge(self.machine_state, mask, name, size)
        entries = self.assignments.setdefault(pod.uid, {})
        for container in pod.containers:
            entries[container.name] = [
                Block(nodes, name, size) for name, size in sorted(slices[container.name].items()) if size
            ]
            if self._pod_level:
                self.context.count(_ALLOCATIONS % "pod")
        self.revision += 1

    def _partition(self, pod: AdmissionPod, request: Amounts) -> dict[str, Amounts]:
        """Bytes for every container (spec 1.11.1, steps 5 to 7); wraps at 64 bits as upstream does."""
        sidecars: Amounts = {}
        slices: dict[str, Amounts] = {}
        for container in pod.containers:
            if not container.init:
                continue
            self.context.count(_REQUESTS)
            own = self._container_request(pod, container)
            if own:
                slices[container.name] = own
                self._count_assignment("pod_exclusive")
                if container.restartable:
                    sidecars = {name: sidecars.get(name, 0) + own.get(name, 0) for name in {**sidecars, **own}}
            elif not container.restartable:
                slices[container.name] = {n: (size - sidecars.get(n, 0)) & U64 for n, size in request.items()}
                self._count_assignment("pod_shared")
        pool = {name: (request.get(name, 0) - sidecars.get(name, 0)) & U64 for name in {**request, **sidecars}}
        for container in pod.containers:
            own = {} if container.init else self._container_request(pod, container)
            if own:
                self.context.count(_REQUESTS)
                slices[container.name] = own
                self._count_assignment("pod_exclusive")
                for name, size in own.items():
                    pool[name] = (pool.get(name, 0) - size) & U64
        for container in pod.containers:
            if container.name not in slices:
                slices[container.name] = pool
                self._count_assignment("pod_shared")
        return slices

    def _count_assignment(self, kind: str) -> None:
        if self._pod_level:
            self.context.count(_ASSIGNMENTS % kind)

    def _check_shared_pool(self, pod: AdmissionPod, request: Amounts) -> None:
        """Refuse a pod whose exclusive containers leave no memory for the others (spec 1.11.2)."""
        running: Amounts = {}
        shared = False

        def exhausted() -> str:
            return next((name for name in sorted(request) if running.get(name, 0) >= request[name]), "")

        for container in pod.containers:
            own = self._container_request(pod, container)
            if own and not container.plain_init:
                running = {name: running.get(name, 0) + own.get(name, 0) for name in {**running, **own}}
            elif not own and not container.plain_init:
                shared = True
            elif not own and exhausted():
                raise AdmissionError(_NOTHING_FOR_INIT % exhausted(), EMPTY_POD_SHARED_POOL)
        if shared and exhausted():
            raise AdmissionError(_NOTHING_SHARED % exhausted(), EMPTY_POD_SHARED_POOL)

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


def _regenerated(blocks: list[Block], request: Amounts) -> ProviderHints:
    """Hints from blocks that are held already; None when they do not match the request."""
    if len(blocks) != len(request) or any(request.get(block.type) != block.size for block in blocks):
        return None
    return {block.type: [Hint(bits_of(block.numa_affinity or ()), True)] for block in blocks}


def _copy(state: NUMANodeState) -> NUMANodeState:
    tables = {
        name: MemoryTable(t.total, t.system_reserved, t.allocatable, t.reserved, t.free)
        for name, t in (state.memory_map or {}).items()
    }
    return NUMANodeState(state.number_of_assignments, tables, list(state.cells or ()))
