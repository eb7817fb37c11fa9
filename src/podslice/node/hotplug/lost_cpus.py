"""Replace CPUs of owners that went offline (docs/hotplug.md).

No upstream kubelet looks at its machine while it runs. An owner keeps the CPUs that are left, and gets others for the
lost ones as in a resize: nearest to what it has, and only where the Topology Manager agrees. One that has nothing left
gets others whatever the verdict, because the kernel lets a cgroup without CPUs run on its parent's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.machine.model import CPUTopology
from podslice.node.container import ContainerManager
from podslice.node.cpu.resize import ResizePicker
from podslice.node.cpu.state import CPUState
from podslice.node.rules import CPURules
from podslice.values.cpuset import Bits, iter_bits, union
from podslice.values.errors import AdmissionError, UpstreamDefectError
from podslice.values.tables import drop_in, put, put_in


class LostCPUs:
    """Replaces lost CPUs on one node. `before` is the machine on which the lost CPUs have a NUMA node."""

    def __init__(self, manager: ContainerManager, resizer: ResizePicker, before: CPUTopology) -> None:
        self._manager = manager
        self._resizer = resizer
        self._before = before

    @property
    def _state(self) -> CPUState:
        return self._manager.cpu.state

    def owners(self) -> list[AdmissionPod]:
        """Return the pods with offline CPUs; those with a container that has no other CPUs come first."""
        pods = [pod for pod in self._manager.context.active.values() if self.lost_of(pod)]
        return sorted(pods, key=lambda pod: not self.is_urgent(pod))

    def lost_of(self, pod: AdmissionPod) -> Bits:
        """Return the CPUs of a pod that are offline."""
        return self._state.of_pod(pod.uid).cpus & self._state.offline

    def is_urgent(self, pod: AdmissionPod) -> bool:
        """Whether a container of the pod that may run has no own CPU left."""
        return any(not cpus & ~self._state.offline for _, cpus in self._running(pod))

    def _running(self, pod: AdmissionPod) -> Iterator[tuple[str, Bits]]:
        """Yield the sets of containers that may still run: all but plain init containers."""
        held = self._state.assignments.get(pod.uid, {})
        for container in pod.containers:
            if not container.plain_init and held.get(container.name):
                yield container.name, held[container.name]

    def replace(self, pod: AdmissionPod) -> bool:
        """Replace the lost CPUs of a pod, container by container or for the pod as a whole; return whether all that
        concern running containers were replaced."""
        if pod.uid in self._state.pod_cpus:
            return self._replace_pod_cpus(pod)
        done = [self._replace_container(pod, name) for name, _ in list(self._running(pod))]
        return all(done)

    def _replace_container(self, pod: AdmissionPod, name: str) -> bool:
        """Replace the lost CPUs of one container; return whether all were."""
        held = self._state.assignments[pod.uid][name]
        lost = held & self._state.offline
        if not lost:
            return True
        kept = held & ~lost
        got = self._try_growth(pod, self._state_without(pod.uid, name, kept), self._near(held))
        more = 0 if got is None else got.assignments.get(pod.uid, {}).get(name, 0) & ~kept
        if not more and not kept:
            more = self._pick_anywhere(pod, (name,), lost.bit_count())
        self._swap(pod.uid, lost, more)
        return more.bit_count() == lost.bit_count()

    def _state_without(self, uid: str, name: str, kept: Bits) -> CPUState:
        state = self._state
        if kept:
            return replace(state, assignments=put_in(state.assignments, uid, name, kept))
        return replace(state, assignments=drop_in(state.assignments, uid, name))

    def _replace_pod_cpus(self, pod: AdmissionPod) -> bool:
        """Replace the lost pod CPUs, first those of slices; return whether all were."""
        state, uid = self._state, pod.uid
        pod_cpus = state.pod_cpus[uid]
        lost, kept = pod_cpus & state.offline, pod_cpus & ~state.offline
        exclusive = [one.name for one in pod.containers if one.exclusive_cpus and not one.plain_init]
        slices = {
            name: cpus & kept
            for name, cpus in state.assignments.get(uid, {}).items()
            if name in exclusive and cpus & kept
        }
        without = replace(
            state, assignments=put(state.assignments, uid, slices), pod_cpus=put(state.pod_cpus, uid, kept)
        )
        got = self._try_growth(pod, without, self._near(pod_cpus))
        more = 0 if got is None else got.pod_cpus[uid] & ~kept
        if not more and self.is_urgent(pod):
            more = self._pick_anywhere(pod, exclusive, lost.bit_count())
        own = union(state.assignments.get(uid, {}).get(name, 0) for name in exclusive)
        self._swap(uid, lost & own, more)
        left = more & ~self._state.of_pod(uid).cpus
        self._swap(uid, lost & ~own, left)
        return more.bit_count() == lost.bit_count()

    def _near(self, cpus: Bits) -> Bits:
        """Return all CPUs of the NUMA nodes that a set is on, or was."""
        topology = self._manager.cpu.topology
        return topology.cpus_in_numa_nodes(self._before.numa_nodes_of(cpus) | topology.numa_nodes_of(cpus))

    def _try_growth(self, pod: AdmissionPod, without: CPUState, near: Bits) -> CPUState | None:
        """Return the state in which the pod grew from what is left to it, on its former NUMA nodes if possible; None
        where the managers refuse. Nothing changes."""
        # Only nearby CPUs are offered first, so the manager's own choice stays near.
        close = replace(without, default=without.default & near)
        got = self._try_admission(pod, close) if close.default not in (0, without.default) else None
        return got or self._try_admission(pod, without)

    def _try_admission(self, pod: AdmissionPod, without: CPUState) -> CPUState | None:
        """Return the CPU state after an admission of the pod from this state, None where it is refused. Everything is
        restored."""
        manager, cpu, context = self._manager, self._manager.cpu, self._manager.context
        before = cpu.state, cpu.rules, manager.memory.state, manager.device.state, manager.topology.state
        metrics, context.metrics = context.metrics, context.metrics.copy()
        resizing, context.resizing = context.resizing, True
        notes = context.ended_early, context.unaligned
        cpu.state, cpu.rules = without, replace(cpu.rules, resizer=self._resizer)
        context.begin()
        try:
            manager.topology.admit(pod)
            return cpu.state
        except (AdmissionError, UpstreamDefectError):
            return None
        finally:
            cpu.state, cpu.rules, manager.memory.state, manager.device.state, manager.topology.state = before
            context.metrics, context.resizing = metrics, resizing
            context.ended_early, context.unaligned = notes

    def _pick_anywhere(self, pod: AdmissionPod, names: Sequence[str], count: int) -> Bits:
        """Return as many CPUs as are available, wherever they are; one stays in DEFAULT."""
        cpu = self._manager.cpu
        rules: CPURules = cpu.rules
        unit = rules.core_size if rules.options.full_pcpus_only else 1
        room = cpu.free
        if rules.plugins is not None:
            try:
                room &= cpu.eligible_cpus(pod, names)
            except AdmissionError:
                return 0
        # The shared pool must not become empty.
        spare = room.bit_count() - (0 if cpu.state.default & ~room else 1)
        for wanted in range(min(count, spare), 0, -1):
            if wanted % unit:
                continue
            try:
                picked = self._resizer.pick(0, room, wanted)
            except AdmissionError:
                continue
            return picked
        return 0

    def _swap(self, uid: str, lost: Bits, others: Bits) -> None:
        if others:
            pairs = dict(zip(iter_bits(lost), iter_bits(others), strict=False))
            self._manager.cpu.state = self._state.swap(uid, pairs)
