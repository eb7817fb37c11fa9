"""Recording an admission as it happens: the hints of each provider, the free resources behind them, and the
allocations.

`recording` puts a thin listener between the Topology Manager and its providers and removes it again, so an admission
that is not recorded pays nothing. A record holds raw facts only; `advise.explain.trace` interprets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.memory import MachineState
from podslice.node.container import ContainerManager
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import ProviderHints
from podslice.node.topology.manager import HintProvider
from podslice.node.topology.merge import Merger
from podslice.values.cpuset import Bits


class HintRound(msgspec.Struct):
    """One round of hints: for a container, or for the pod as a whole (`container` None), and what is free to it then.

    `memory` is the ledger as it was; the Memory Manager replaces the records of nodes and never changes them. `held`
    names the providers of which the pod holds something already. `reusable`, `reuse` and `reusable_devices` are
    what its init containers leave to this one: CPUs, bytes by exact set of NUMA nodes, and ids by resource.
    `free_devices` are the ids of free devices by resource.
    """

    container: str | None
    assignable: Bits
    memory: MachineState
    hints: dict[str, ProviderHints]
    devices: dict[str, dict[str, dict[str, list[str]]]]
    held: frozenset[str] = frozenset()
    reusable: Bits = 0
    reuse: Mapping[Bits, Mapping[str, int]] = {}
    reusable_devices: Mapping[str, frozenset[str]] = {}
    free_devices: Mapping[str, frozenset[str]] = {}


class Allocation(msgspec.Struct):
    """One call to a provider's allocation; `cpus` is what the CPU Manager assigned, `error` the reason of a failure."""

    provider: str
    container: str | None
    affinity: Hint
    cpus: Bits = 0
    pod_cpus: Bits = 0
    error: str = ""


class Record(msgspec.Struct):
    """The hints and allocations of one pod's admission, in order; `before` is the node as the pod found it, `merger`
    merged the hints, None where the policy takes none. `failed` is what was free when an allocation failed, None where
    none did."""

    before: HintRound
    merger: Merger | None = None
    failed: HintRound | None = None
    steps: list[HintRound] = []
    allocations: list[Allocation] = []


class _Listener:
    """Forwards every call to a provider and records it."""

    def __init__(self, inner: HintProvider, manager: ContainerManager, record: Record) -> None:
        self._inner = inner
        self._manager = manager
        self._record = record
        self.name = inner.name
        self.remove_stale = inner.remove_stale
        self.holds = inner.holds

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        answer = self._inner.container_hints(pod, container)
        self._note(pod.uid, container.name, answer)
        return answer

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        answer = self._inner.pod_hints(pod)
        self._note(pod.uid, None, answer)
        return answer

    def _note(self, uid: str, container: str | None, answer: ProviderHints) -> None:
        """Record the hints of one call, in the present round or in a new one."""
        steps = self._record.steps
        # A provider that answers twice for one container begins another round of hints.
        if not steps or steps[-1].container != container or self.name in steps[-1].hints:
            steps.append(_step(self._manager, container, uid))
        steps[-1].hints[self.name] = answer
        if self.name == "device" and answer:
            # Which devices are taken matters to hints about devices only.
            steps[-1].devices = self._manager.device.assignments()

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        allocation = Allocation(self.name, container.name, affinity)
        self._record.allocations.append(allocation)
        try:
            self._inner.allocate(pod, container, affinity)
        except Exception as error:
            self._note_failure(allocation, error, pod.uid)
            raise
        if self.name == "cpu":
            allocation.cpus = self._manager.cpu.exclusive_cpus(pod.uid, container.name)

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        allocation = Allocation(self.name, None, affinity)
        self._record.allocations.append(allocation)
        try:
            self._inner.allocate_pod(pod, affinity)
        except Exception as error:
            self._note_failure(allocation, error, pod.uid)
            raise
        if self.name == "cpu":
            allocation.pod_cpus = self._manager.cpu.state.pod_cpus.get(pod.uid, 0)
            for name, cpus in self._manager.cpu.state.assignments.get(pod.uid, {}).items():
                self._record.allocations.append(Allocation("cpu", name, affinity, cpus=cpus))

    def _note_failure(self, allocation: Allocation, error: Exception, uid: str) -> None:
        """Record the reason of a failed allocation, and what was free when it failed."""
        allocation.error = str(error)
        self._record.failed = _step(self._manager, allocation.container, uid)
        self._record.failed.devices = self._manager.device.assignments()


def _step(manager: ContainerManager, container: str | None, uid: str = "") -> HintRound:
    """Begin a round of hints with what is free now."""
    cpu = manager.cpu
    held = {"cpu"} if uid in cpu.state.assignments or uid in cpu.state.pod_cpus else set()
    if manager.device.holds_devices(uid):
        held.add("device")
    # What init containers of the pod leave to those after them is free to it.
    reusable = cpu.state.reusable.get(uid, 0)
    memory = dict(manager.memory.machine_state)
    step = HintRound(container, cpu.free | reusable, memory, {}, {}, frozenset(held), reusable)
    if manager.device.state.pools:
        step.free_devices = manager.device.free_ids()
    pod = manager.context.active.get(uid)
    if pod is not None and pod.containers[0].init:
        step.reuse = manager.memory.left_by_init(pod, container)
        step.reusable_devices = manager.device.left_by_init(uid)
    return step


@contextmanager
def recording(manager: ContainerManager) -> Iterator[Record]:
    """Record an admission inside the block; use one block for one pod."""
    topology = manager.topology
    manager.remove_stale()
    # Stale allocations are released first, so that the record begins with what the pod finds free.
    record = Record(_step(manager, None), topology.merger)
    providers: Any = topology.providers
    listeners: list[HintProvider] = [_Listener(provider, manager, record) for provider in providers]
    topology.providers = listeners
    try:
        yield record
    finally:
        topology.providers = providers
