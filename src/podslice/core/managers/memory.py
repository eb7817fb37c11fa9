"""The Memory Manager with policy `None`: it decides nothing, but like upstream it keeps and checks its state file
(spec memory-device 1.3, 1.13.2)."""

from __future__ import annotations

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.errors import StartError
from podslice.core.hints.hint import Hint, ProviderHints
from podslice.core.managers.context import NodeContext
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.state.checkpoint_memory import MemoryCheckpoint, encode, load
from podslice.core.state.gojson import CheckpointError
from podslice.core.values.cpuset import Bits
from podslice.core.values.golang import quote


class MemoryManager:
    """Policy `None`: no hints, no allocations. A hint provider of the Topology Manager."""

    name = "memory"

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.policy = "None"
        self.checkpoint = MemoryCheckpoint(policy_name="None")
        self.revision = 0

    @classmethod
    def build(cls, config: KubeletConfig, context: NodeContext) -> MemoryManager:
        """The manager a configuration asks for. Raises `StartError`."""
        policy = config.memory_manager_policy
        if policy == "None":
            return cls(context)
        if policy == "BestEffort":
            raise StartError("memoryManager", f'policy {quote(policy)} is not available for platform "linux"')
        if policy == "Static":
            raise StartError("memoryManager", 'podslice does not decide memoryManagerPolicy "Static" yet; use "None"')
        raise StartError("memoryManager", f"unknown policy: {quote(policy)}")

    def start(self, data: bytes | None, path: str) -> None:
        """Read or create the state file (spec 1.13.2). Raises `StartError`."""
        if data is None:
            self.revision += 1
            return
        try:
            checkpoint = load(data, pod_level=self.context.gates["PodLevelResourceManagers"])
            if checkpoint.policy_name != self.policy:
                raise CheckpointError(
                    f"[memorymanager] configured policy {quote(self.policy)} differs from state checkpoint policy "
                    f"{quote(checkpoint.policy_name)}"
                )
        except CheckpointError as error:
            raise StartError(
                "startMemoryManager",
                f"start memory manager error: could not restore state from checkpoint: {error}, please drain this "
                f"node and delete the memory manager checkpoint file {quote(path)} before restarting Kubelet",
            ) from None
        self.checkpoint = checkpoint

    def encode(self) -> bytes:
        """The state file a kubelet of this release writes."""
        return encode(self.checkpoint, "v2" if self.context.gates["PodLevelResourceManagers"] else "v1")

    def numa_nodes(self, uid: str, container: str) -> Bits:
        """NUMA nodes the container's memory is bound to (spec 1.15); 0 for no binding."""
        blocks = ((self.checkpoint.entries or {}).get(uid) or {}).get(container) or []
        mask = 0
        for block in blocks:
            for node in block.numa_affinity or ():
                mask |= 1 << node
        return mask

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        return None

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        return None

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        return None

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        return None

    def snapshot(self, uid: str) -> None:
        return None

    def restore(self, uid: str, before: None) -> None:
        return None
