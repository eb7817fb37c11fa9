"""The CPU Manager's books: what it knows of one node, how that is taken back, and what can be asked about it
(cpu-topology 6, 8)."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from podslice.core.allocate.picker import Picker
from podslice.core.machine.topology import CPUTopology, whole_objects
from podslice.core.managers.context import ContainerMap, NodeContext
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.state import ownership
from podslice.core.state.model import CPUState
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import Bits
from podslice.core.values.series import series

SHARED_POOL = series("cpu_manager_shared_pool_size_millicores")
EXCLUSIVE = series("cpu_manager_exclusive_cpu_allocation_count")


class Snapshot(NamedTuple):
    """The books as they were before a pod; `CPUBooks.restore` puts them back."""

    default: Bits
    assignments: dict[str, Bits] | None
    bubble: Bits | None
    reusable: dict[str, Bits]
    shared_pool: int | None
    exclusive: int | None


class CPUBooks:
    """The state of a CPU Manager with policy `none` or `static`, and the CPUs it may give away (`allocatable`).

    `reserved` are the CPUs kept for the system. `state` may be replaced once, by `start`.
    """

    def __init__(
        self,
        topology: CPUTopology,
        context: NodeContext,
        *,
        policy: str = "none",
        options: CPUPolicyOptions | None = None,
        reserved: Bits = 0,
    ) -> None:
        self.topology = topology
        self.context = context
        self.policy = policy
        self.options = options or CPUPolicyOptions()
        self.reserved = reserved
        self.reserved_physical = whole_objects(topology.cores, reserved)
        self.picker = Picker(topology, self.options, context.quirks)
        self.state = CPUState()
        self.allocatable: Bits = 0
        self.containers = ContainerMap()
        self._reusable: dict[str, Bits] = {}
        self._written: dict[tuple[str, str], Bits] = {}
        self._cleaned = 0
        self._pod_metrics = context.gates["PodLevelResourceManagers"]

    @property
    def static(self) -> bool:
        return self.policy == "static"

    def start(self, state: CPUState, containers: ContainerMap) -> None:
        """Go to work on a restored and validated state (cpu-topology 8.6)."""
        self.state = state
        self.containers = containers
        if self.static:
            self.allocatable = self.topology.all_cpus & ~self.reserved
            metrics = self.context.metrics
            metrics[SHARED_POOL] = 1000 * self.assignable.bit_count()
            metrics[EXCLUSIVE] = state.assigned().bit_count()

    # Taking back

    def snapshot(self, uid: str) -> Snapshot:
        """What a failed admission of this pod must be undone to."""
        assignments = self.state.assignments.get(uid)
        metrics = self.context.metrics
        return Snapshot(
            self.state.default,
            dict(assignments) if assignments is not None else None,
            self.state.bubbles.get(uid),
            self._reusable,
            metrics.get(SHARED_POOL),
            metrics.get(EXCLUSIVE),
        )

    def restore(self, uid: str, before: Snapshot) -> None:
        """Undo everything done for a pod since `snapshot`."""
        state = self.state
        state.default = before.default
        state.assignments.pop(uid, None)
        if before.assignments is not None:
            state.assignments[uid] = before.assignments
        state.bubbles.pop(uid, None)
        if before.bubble is not None:
            state.bubbles[uid] = before.bubble
        state.revision += 1
        self._reusable = before.reusable
        if before.shared_pool is not None and before.exclusive is not None:
            self.context.metrics[SHARED_POOL] = before.shared_pool
            self.context.metrics[EXCLUSIVE] = before.exclusive

    # Queries

    @property
    def assignable(self) -> Bits:
        """ASSIGNABLE: CPUs that can still be given away exclusively."""
        return self.state.default & ~self.reserved

    def affinity(self, uid: str, container: str) -> Bits:
        """The CPUs a container runs on: its assignment, else the shared pool (cpu-topology 6.7)."""
        assigned = self.state.assignment(uid, container)
        return self.state.default if assigned is None else assigned

    def affinity_beside(self, pod: AdmissionPod, container: AdmissionContainer, running: Container[str]) -> Bits:
        """The CPUs a container runs on while those of its pod run that are named: what an init container owns is its
        own, so the pod's shared pool is smaller meanwhile. Upstream runs both on the same CPUs."""
        own = self.affinity(pod.uid, container.name)
        if self.context.quirks.init_overlaps_sidecars:
            return own
        held = self.state.assignments.get(pod.uid, {})
        return ownership.beside(pod, container, running, own=own, held=held, bubble=self.state.bubbles.get(pod.uid))

    def exclusive_cpus(self, uid: str, container: str) -> Bits:
        """What the pod-resources API reports, pod shared pools included (cpu-topology 6.8)."""
        return self.state.assignment(uid, container) or 0

    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """True when the container has the exclusive CPUs it is entitled to, if any."""
        held = self.state.assignment(pod.uid, container.name)
        return not container.exclusive_cpus or not self.static or held is not None

    def isolation(self, pod: AdmissionPod, container: AdmissionContainer) -> ownership.Isolation:
        """Whose CPUs a container runs on."""
        return ownership.isolation(pod, container, self.state.assignment(pod.uid, container.name))

    def container_has_exclusive_cpus(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """Decides the CFS quota of the container (cpu-topology 6.9)."""
        if self._pod_metrics:
            return self.isolation(pod, container) == "container"
        return self.exclusive_cpus(pod.uid, container.name) != 0

    def pod_has_exclusive_cpus(self, pod: AdmissionPod) -> bool:
        """Decides the CFS quota of the pod cgroup and sandbox (cpu-topology 6.9)."""
        return ownership.pod_has_exclusive_cpus(pod, self.state.assignments.get(pod.uid, {}))
