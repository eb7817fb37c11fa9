"""The Memory Manager's state: how it comes up, what is in it, and the file it is kept in (memory-device 1.3, 1.13,
1.14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from podslice.core.allocate.memory_static import check_reservation
from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.reservation import reserved_memory_bytes
from podslice.core.config.topology_options import check_node_ids
from podslice.core.errors import StartError, StartKind
from podslice.core.hints.memory import sums_wrap
from podslice.core.machine.memory import Block, MachineState
from podslice.core.machine.memory_accounts import default_machine_state, rebook, settle
from podslice.core.machine.model import Machine
from podslice.core.managers.context import ContainerMap, NodeContext
from podslice.core.managers.memory_held import copy_of
from podslice.core.pod.memory_demand import Amounts
from podslice.core.values.cpuset import Bits, bits_of, iter_bits
from podslice.core.values.golang import quote
from podslice.core.values.quantity import Quantity
from podslice.statefiles.formats.checkpoint_memory import MemoryCheckpoint, MemoryStateEncoder
from podslice.statefiles.formats.restore_memory import restore_memory_state, validate_memory_state

_POLICIES = "memoryManagerPolicy is None or Static"
_UNKNOWN_POLICY = StartKind("unknown-policy", "unknown policy: {policy}", _POLICIES)
_OTHER_PLATFORM = StartKind("other-platform", 'policy {policy} is not available for platform "linux"', _POLICIES)
_NOTHING_RESERVED = StartKind(
    "nothing-reserved",
    "[memorymanager] you should specify the system reserved memory",
    "reservedMemory names memory of some NUMA node: as much as is reserved altogether",
)


class MemoryBooks:
    """The state of a Memory Manager: what the machine has, and the blocks of containers and pods.

    `reserved` are bytes by NUMA node and resource. `revision` changes with the content of the state file.
    """

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
        self._sums_wrap = False
        self._pod_level = context.gates["PodLevelResourceManagers"]
        self._encoder = MemoryStateEncoder()

    @classmethod
    def build(
        cls, machine: Machine, config: KubeletConfig, context: NodeContext, reservation: Mapping[str, Quantity]
    ) -> Self:
        """The manager a configuration asks for (memory-device 1.3). Raises `StartError`."""
        stage = "memoryManager"
        policy = config.memory_manager_policy
        if policy == "None":
            return cls(machine, context, policy, {})
        if policy == "BestEffort":
            raise StartError(stage, _OTHER_PLATFORM, policy=quote(policy))
        if policy != "Static":
            raise StartError(stage, _UNKNOWN_POLICY, policy=quote(policy))
        reserved = reserved_memory_bytes(config, machine, reservation)
        if not sum(amounts.get("memory", 0) for amounts in reserved.values()) > 0:
            raise StartError(stage, _NOTHING_RESERVED)
        if not context.quirks.memory_reservation_wraps:
            check_reservation(machine, reserved)
        check_node_ids(machine, stage)
        return cls(machine, context, policy, reserved)

    @property
    def static(self) -> bool:
        return self.policy == "Static"

    # State

    def start(self, data: bytes | None, containers: Mapping[str, tuple[str, str]], path: str) -> None:
        """Restore or create the state, and check it against the machine (memory-device 1.13.2, 1.14). Raises
        `StartError`."""
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
            before = [copy_of(state) for _, state in sorted((checkpoint.machine_state or {}).items())]
            validate_memory_state(
                checkpoint,
                default,
                pod_level=self._pod_level,
                tolerate_drift=not quirks.memory_drift_blocks_start,
                tables_may_miss=not quirks.missing_hugepages_crash,
            )
            if not quirks.group_books_drift:
                settle(checkpoint.machine_state or {})
            self.revision += before != [state for _, state in sorted((checkpoint.machine_state or {}).items())]
        self.machine_state = checkpoint.machine_state or {}
        self._sums_wrap = sums_wrap(self.machine_state)
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
        """Pod entries without containers are left by an interrupted admission; nothing is booked for them
        (memory-device 4.9)."""
        for uid in [uid for uid in self.pod_assignments if not self.assignments.get(uid)]:
            del self.pod_assignments[uid]
            self.revision += 1

    def encode(self) -> bytes:
        """The state file a kubelet of this release writes."""
        pods = self.pod_assignments if self._pod_level else None
        return self._encoder.encode(self.policy, self.machine_state, self.assignments, pods)

    # Queries (memory-device 1.15)

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

    # Defragmentation

    def booked(self, uid: str, containers: Iterable[str]) -> list[Block]:
        """The blocks the books count for containers of a pod; a pod entry counts instead of its containers."""
        if self._pod_level and self.pod_assignments.get(uid):
            return list(self.pod_assignments[uid])
        return [block for name in containers for block in self.blocks(uid, name)]

    def relocate(self, uid: str, containers: Iterable[str], nodes: Bits) -> None:
        """Book the memory of containers of a pod on other NUMA nodes, the pod's as a whole if it has pod-level memory.

        No upstream kubelet does this; whoever calls it has checked that it fits there (advise.defrag).
        """
        containers = tuple(containers)
        rebook(self.machine_state, self.booked(uid, containers), nodes)
        if not self.context.quirks.group_books_drift:
            settle(self.machine_state)
        if uid in self.pod_assignments:
            self.pod_assignments[uid] = _on(self.pod_assignments[uid], nodes)
        own = self.assignments.get(uid, {})
        for name in containers:
            if name in own:
                own[name] = _on(own[name], nodes)
        self._reusable.pop(uid, None)
        self.revision += 1


def _on(blocks: Iterable[Block], nodes: Bits) -> list[Block]:
    affinity = tuple(iter_bits(nodes))
    return [Block(affinity, block.type, block.size) for block in blocks]
