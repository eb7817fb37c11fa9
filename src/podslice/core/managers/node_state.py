"""All that changes on a node, as one value."""

from __future__ import annotations

import msgspec

from podslice.core.managers.context import Leftovers
from podslice.core.managers.device_state import DeviceState
from podslice.core.managers.memory_state import MemoryState
from podslice.core.managers.topology import TopologyState
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.resize.pending import Waiting
from podslice.core.scheduling.predicates import PodOnNode
from podslice.core.state.model import CPUState


class ContainerStatus(msgspec.Struct, frozen=True):
    """A container the runtime knows: its latest id, how often it was restarted, and whether it runs."""

    id: str
    restarts: int = 0
    running: bool = True
    removed: bool = False


class NodeState(msgspec.Struct, frozen=True):
    """A node at one moment. Whoever keeps it can go back to it: nothing in it ever changes.

    `pods` are on the node, in order of first admission, `seen` what the predicates made of them. `statuses` are the
    runtime's containers by pod. `unmanaged`: pods that run since before the gate PodLevelResourceManagers was turned
    on. `leftovers`, `sources_ready` as in `NodeContext`.
    """

    pods: dict[str, AdmissionPod]
    seen: dict[str, PodOnNode]
    statuses: dict[str, dict[str, ContainerStatus]]
    unmanaged: frozenset[str]
    cpu: CPUState
    memory: MemoryState
    device: DeviceState
    topology: TopologyState
    resizes: Waiting
    leftovers: dict[str, Leftovers]
    sources_ready: bool
