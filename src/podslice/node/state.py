"""All that changes on a node, as one value."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import PodAllocation
from podslice.node.context import Leftovers
from podslice.node.cpu.state import CPUState, PodCPUs
from podslice.node.devices.state import DeviceState
from podslice.node.memory.state import MemoryState
from podslice.node.resize.events import ResizeCondition
from podslice.node.resize.pending import Waiting
from podslice.node.topology.manager import TopologyState
from podslice.scheduling.predicates import PodsOnNode


class RuntimeContainer(msgspec.Struct, frozen=True):
    """A container of the runtime: its latest id, how often it was restarted, and whether it runs."""

    id: str
    restarts: int = 0
    running: bool = True
    removed: bool = False


class NodeState(msgspec.Struct, frozen=True, eq=False):
    """A node at one moment. Nothing in it ever changes, so that a kept state can be restored.

    `pods` are on the node, in order of first admission. `statuses` are the runtime's containers by pod. `unmanaged`:
    pods that run since before the gate PodLevelResourceManagers was turned on. `granted`: what state files say was
    granted to pods that are yet to be readmitted. `conditions`: pod conditions of waiting resizes. `leftovers`,
    `sources_ready`, `pending` as in `NodeContext`. `seen` caches the predicates' view of pods, and does not count when
    states are compared.
    """

    pods: dict[str, AdmissionPod]
    statuses: dict[str, dict[str, RuntimeContainer]]
    unmanaged: frozenset[str]
    cpu: CPUState
    memory: MemoryState
    device: DeviceState
    topology: TopologyState
    resizes: Waiting
    granted: dict[str, PodAllocation]
    conditions: dict[str, ResizeCondition]
    leftovers: dict[str, Leftovers]
    sources_ready: bool
    seen: PodsOnNode
    pending: str = ""

    def of_pod(self, uid: str) -> PodCPUs:
        """Return the part of a pod's holding that can be resized."""
        return replace(self.cpu.of_pod(uid), memory=self.memory.of_pod(uid))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeState):
            return NotImplemented
        return self is other or (self._facts == other._facts and list(self.pods) == list(other.pods))

    def __hash__(self) -> int:
        return hash((self.cpu.default, tuple(self.pods)))

    @property
    def _facts(self) -> tuple[object, ...]:
        held = self.cpu, self.memory, self.device, self.topology, self.pods, self.statuses
        kept = (
            self.unmanaged,
            self.resizes,
            self.granted,
            self.conditions,
            self.leftovers,
            self.sources_ready,
            self.pending,
        )
        return *held, *kept
