"""A copy of a node to try things on: pods are really admitted, moved and removed, kubelets really restarted.

Nothing else in advice reaches into a kubelet. A trial says what came of it; `view` shows the copy as it then is.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from podslice.advise.trial.record import Record, recording
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.config.validation import validate
from podslice.machine.devices import DeviceInventory
from podslice.machine.memory import MachineState
from podslice.machine.model import Machine
from podslice.node import node_resize, readmission
from podslice.node.kubelet import Kubelet
from podslice.node.node import Node
from podslice.node.plugins.api import Moves
from podslice.node.resize.allocation import ResizeVerdict
from podslice.node.view import NodeView
from podslice.scheduling.predicates import Others, PodOnNode
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, Refusal, StartError, UpstreamDefectError
from podslice.values.quirks import Quirks

Standing = tuple[tuple[bool, bool], ...]
"""How the Topology Manager judges what a pod holds: (would be admitted, is preferred), by container or once."""


class Moved(msgspec.Struct, frozen=True):
    """Containers of a pod with the CPUs that they have after a move, those of the `whole` pod where it has some, and
    the NUMA nodes of the memory of those that hold some."""

    uid: str
    sets: Mapping[str, Bits]
    whole: Bits | None
    containers: tuple[str, ...]
    nodes: Bits


class Trial:
    """Drives a kubelet, which belongs to the trial from then on."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    @classmethod
    def of(cls, node: Node) -> Trial:
        """A copy of the node."""
        return cls(node.kubelet.copy())

    @classmethod
    def on(cls, node: Node) -> Trial:
        """The node itself: what is done here is done to it."""
        return cls(node.kubelet)

    @classmethod
    def started(
        cls,
        machine: Machine,
        config: KubeletConfig,
        quirks: Quirks,
        *,
        devices: DeviceInventory | None = None,
        predicates: bool = True,
        policy: PodslicePolicy = NO_POLICY,
    ) -> Trial:
        """An empty node. Raises `StartError`."""
        kubelet = Kubelet(machine, config, quirks, devices=devices, predicates=predicates, policy=policy)
        kubelet.start()
        return cls(kubelet)

    def copy(self) -> Trial:
        """Another trial that begins where this one is."""
        return Trial(self._kubelet.copy())

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever happens inside has not happened afterwards."""
        before = self._kubelet.state
        try:
            yield
        finally:
            self._kubelet.state = before

    @property
    def proposed_moves(self) -> tuple[Moves, ...]:
        """Moves that plugins proposed for the pod that was refused last."""
        notes = self._kubelet.manager.context.plugin_notes
        return tuple(one.remedy for one in notes if isinstance(one.remedy, Moves))

    @property
    def view(self) -> NodeView:
        """The node as it is now."""
        return self._kubelet.view

    def others(self, uid: str = "") -> Others:
        """The pods on the node but the one with this UID, as the predicates see them."""
        return self._kubelet.others(uid)

    # Pods

    def admit(self, pod: Pod) -> Refusal | None:
        """Admit a pod, which has its defaults; its containers do not start. Raises `UpstreamDefectError`."""
        return self._kubelet.admit(pod)

    def takes(self, pod: Pod) -> bool:
        """Admit a pod, which has its defaults; True when that works and nobody is preempted."""
        self._kubelet.preempted = ()
        try:
            return self._kubelet.admit(pod) is None and not self._kubelet.preempted
        except UpstreamDefectError:
            return False

    def lands(self, pod: Pod) -> bool:
        """Admit a pod and start its containers; True when that works and nobody is preempted."""
        pod = default_pod(pod, self._kubelet.manager.context.gates)
        if not self.takes(pod):
            return False
        try:
            started = self._kubelet.start_containers(pod.metadata.uid)
        except UpstreamDefectError:
            return False
        return not any(container.error for container in started.values())

    def rehearse(self, admission: AdmissionPod, others: Others | None = None, *, judged: bool = True) -> bool:
        """As `lands`, and undone at once (see `Kubelet.rehearse`)."""
        return self._kubelet.rehearse(admission, others, judged=judged)

    def accepts(self, admission: AdmissionPod, others: Others | None, view: PodOnNode) -> bool:
        """What `rehearse` leaves out when it does not judge (see `Kubelet.accepts`)."""
        return self._kubelet.accepts(admission, others, view)

    def resize(self, pod: Pod) -> ResizeVerdict:
        """Resize a pod of the node as `Node.resize`. Raises `InputError`."""
        desired = node_resize.prepare_resize(
            self._kubelet.active, pod, self._kubelet.rules.gates, node_resize.api_server_allocatable(self._kubelet)
        )
        attempts = node_resize.resize(self._kubelet, desired)
        return [one.verdict for one in attempts if one.uid == desired.metadata.uid][-1]

    def grants(self, pod: Pod) -> bool:
        """Resize a pod of the node; True when that is granted at once. Raises `InputError`."""
        return self.resize(pod).outcome in ("Allocated", "Unchanged")

    def recording(self) -> AbstractContextManager[Record]:
        """Records what happens inside the block; use one block for one pod."""
        return recording(self._kubelet.manager)

    def remove(self, *uids: str) -> None:
        """Pods are gone. What they held is free once somebody asks for it, or after `free`."""
        for uid in uids:
            self._kubelet.remove_pod(uid)

    def free(self) -> None:
        """What gone pods held is free now."""
        self._kubelet.manager.remove_stale()

    def stop(self, uid: str) -> None:
        """The pod is gone, and everything is cleaned up."""
        self._kubelet.remove_pod(uid)
        self._kubelet.collect()

    # Places

    def standing(self, uid: str) -> Standing:
        """How the Topology Manager judges what a pod of the node holds."""
        topology, pod = self._kubelet.manager.topology, self._kubelet.active[uid]
        if topology.merger is None:
            return ()
        if topology.scope == "pod":
            asked = [[provider.pod_hints(pod) for provider in topology.providers]]
        else:
            asked = [[p.container_hints(pod, container) for p in topology.providers] for container in pod.containers]
        merged = [topology.merger.merge(hints) for hints in asked]
        return tuple((one.admitted, one.hint.preferred) for one in merged)

    def move(self, moved: Moved) -> None:
        """Containers of a pod are somewhere else, with their memory."""
        if moved.sets or moved.whole is not None:
            self.move_cpus(moved.uid, moved.sets, moved.whole)
        if moved.nodes or self.view.pod_blocks.get(moved.uid):
            self.move_memory(moved.uid, moved.containers, moved.nodes)

    def eligible_cpus(self, uid: str, names: Container[str]) -> Bits:
        """CPUs that the policy's classes and plugins leave to containers of a pod, whoever has them now."""
        manager = self._kubelet.manager
        try:
            return manager.cpu.eligible_cpus(manager.context.active[uid], names)
        except AdmissionError:
            return 0

    def move_cpus(self, uid: str, sets: Mapping[str, Bits], bubble: Bits | None) -> None:
        """Containers of a pod own other CPUs, and so does the pod where it owns some as a whole."""
        cpu = self._kubelet.manager.cpu
        cpu.state = cpu.state.relocate(uid, sets, bubble)

    def lend_cpus(self, uid: str, loans: Mapping[str, tuple[int, ...]], bubble: Bits) -> None:
        """Of the CPUs of a pod these are the ones beyond the promised ones, by container and as a whole."""
        cpu = self._kubelet.manager.cpu
        cpu.state = cpu.state.set_loans(uid, loans, bubble)

    def move_memory(self, uid: str, containers: Sequence[str], nodes: Bits) -> None:
        """The memory of containers of a pod is booked on other NUMA nodes."""
        self._kubelet.manager.memory.relocate(uid, containers, nodes)

    def set_ledger(self, shared: Bits, memory: MachineState) -> None:
        """The node has another shared pool and other memory accounts."""
        cpu, accounts = self._kubelet.manager.cpu, self._kubelet.manager.memory
        cpu.state = cpu.state.with_default(shared)
        accounts.state = accounts.state.with_machine(memory)

    # Other nodes

    def fresh(self, machine: Machine, config: KubeletConfig, pods: Sequence[Pod] = ()) -> Trial | None:
        """An empty node like this one with the pods on it; None if it does not start or does not take them all."""
        if validate(config):
            return None
        known = self._kubelet
        try:
            node = Trial.started(
                machine,
                config,
                known.quirks,
                devices=known.devices,
                predicates=known.predicates,
                policy=known.policy,
            )
        except StartError:
            return None
        return node if all(node.lands(pod) for pod in pods) else None

    def restarted(self, machine: Machine, config: KubeletConfig, policy: PodslicePolicy | None = None) -> Trial | None:
        """The node after a restart with this machine and configuration, and another policy if one is given; None if it
        does not start or refuses a running pod."""
        if validate(config):
            return None
        kubelet = self._kubelet.copy()
        kubelet.save()
        kubelet.policy = kubelet.policy if policy is None else policy
        try:
            kubelet.restart(machine=machine, config=config)
            refused = [admitted for admitted in readmission.readmit(kubelet) if admitted.refusal is not None]
        except (StartError, UpstreamDefectError):
            return None
        if refused:
            return None
        kubelet.sources_ready()
        kubelet.collect()
        return Trial(kubelet)

    def restart_problem(self) -> str:
        """What a kubelet that restarts on the state files as they are now refuses or changes; empty if nothing."""
        kubelet = self._kubelet.copy()
        kubelet.save()
        files = dict(kubelet.files)
        try:
            kubelet.restart()
            refused = [admitted for admitted in readmission.readmit(kubelet) if admitted.refusal is not None]
        except (StartError, UpstreamDefectError) as error:
            return f"a kubelet would not start again: {error}"
        if refused:
            return f"a restarted kubelet would refuse {refused[0].uid}"
        kubelet.sources_ready()
        kubelet.collect()
        kubelet.save()
        return "" if kubelet.files == files else "a restarted kubelet would change the state"
