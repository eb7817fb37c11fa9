"""Trials on a copy of a node: pods are really admitted, moved and removed, kubelets really restarted.

No other module of `advise` reaches into a kubelet. A trial returns the result; `view` shows the copy as it then is.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import combinations

import msgspec

from podslice.advise.trial.record import Record, recording
from podslice.advise.trial.relax import Relaxation, relaxed
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
from podslice.node.checkpoints.names import CPU_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.kubelet import Kubelet
from podslice.node.node import Node
from podslice.node.plugins.api import Moves
from podslice.node.resize.allocation import ResizeVerdict
from podslice.node.view import NodeView
from podslice.scheduling.predicates import OtherPods, PodOnNode
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, Refusal, StartError, UpstreamDefectError
from podslice.values.quirks import Quirks, quirks_in
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

Standing = tuple[tuple[bool, bool], ...]
"""The Topology Manager's judgement of what a pod holds: (would be admitted, is preferred), by container or once."""


class Moved(msgspec.Struct, frozen=True):
    """Containers of a pod with their CPUs after a move, the CPUs of the `whole` pod where it has some, and the NUMA
    nodes of the memory of those containers that hold some."""

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
        """Return a trial on a copy of the node."""
        return cls(node.kubelet.copy())

    @classmethod
    def on(cls, node: Node) -> Trial:
        """Return a trial on the node itself, which it changes."""
        return cls(node.kubelet)

    @classmethod
    def start(
        cls,
        machine: Machine,
        config: KubeletConfig,
        quirks: Quirks,
        *,
        devices: DeviceInventory | None = None,
        predicates: bool = True,
        policy: PodslicePolicy = NO_POLICY,
        release: Release = DEFAULT,
    ) -> Trial:
        """Start an empty node. Raises `StartError`."""
        kubelet = Kubelet(
            machine, config, quirks, devices=devices, predicates=predicates, policy=policy, release=release
        )
        kubelet.start()
        return cls(kubelet)

    def copy(self) -> Trial:
        """Return another trial that begins in the state of this one."""
        return Trial(self._kubelet.copy())

    @contextmanager
    def rollback(self) -> Iterator[None]:
        """Restore the state after the block."""
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

    def others(self, uid: str = "") -> OtherPods:
        """Return the pods on the node but the one with this UID, as the predicates see them."""
        return self._kubelet.others(uid)

    # Pods

    def admit(self, pod: Pod) -> Refusal | None:
        """Admit a pod (with its defaults); its containers do not start. Raises `UpstreamDefectError`."""
        return self._kubelet.admit(pod)

    def try_admit(self, pod: Pod) -> bool:
        """Admit a pod (with its defaults); return whether that succeeds without preempting a pod."""
        self._kubelet.preempted = ()
        try:
            return self._kubelet.admit(pod) is None and not self._kubelet.preempted
        except UpstreamDefectError:
            return False

    def try_run(self, pod: Pod) -> bool:
        """Admit a pod and start its containers; return whether that succeeds without preempting a pod."""
        pod = default_pod(pod, self._kubelet.manager.context.gates)
        if not self.try_admit(pod):
            return False
        try:
            started = self._kubelet.start_containers(pod.metadata.uid)
        except UpstreamDefectError:
            return False
        return not any(container.error for container in started.values())

    def rehearse(self, admission: AdmissionPod, others: OtherPods | None = None, *, judged: bool = True) -> bool:
        """Do as `try_run`, and roll it back (see `Kubelet.rehearse`)."""
        return self._kubelet.rehearse(admission, others, judged=judged)

    def accepts(self, admission: AdmissionPod, others: OtherPods | None, view: PodOnNode) -> bool:
        """Whether the checks pass that `rehearse` leaves out with `judged` False (see `Kubelet.accepts`)."""
        return self._kubelet.accepts(admission, others, view)

    def resize(self, pod: Pod) -> ResizeVerdict:
        """Resize a pod of the node as `Node.resize`. Raises `InputError`."""
        desired = node_resize.prepare_resize(
            self._kubelet.active, pod, self._kubelet.rules, node_resize.api_server_allocatable(self._kubelet)
        )
        attempts = node_resize.resize(self._kubelet, desired)
        return [one.verdict for one in attempts if one.uid == desired.metadata.uid][-1]

    def try_resize(self, pod: Pod) -> bool:
        """Resize a pod of the node; return whether that is granted at once. Raises `InputError`."""
        return self.resize(pod).outcome in ("Allocated", "Unchanged")

    @property
    def withheld_cpus(self) -> Bits:
        """CPUs that no container gets: the reserved ones, and their siblings where only whole cores are given."""
        return self._kubelet.manager.cpu.rules.withheld

    @contextmanager
    def relaxing(self, relaxation: Relaxation) -> Iterator[None]:
        """Relax constraints inside the block; afterwards the node is as it was before."""
        with self.rollback(), relaxed(self._kubelet.manager, relaxation):
            yield

    def recording(self) -> AbstractContextManager[Record]:
        """Record what happens inside the block; use one block for one pod."""
        return recording(self._kubelet.manager)

    def remove(self, *uids: str) -> None:
        """Remove pods. What they held becomes free with the next admission, or after `free`."""
        for uid in uids:
            self._kubelet.remove_pod(uid)

    def free(self) -> None:
        """Free what removed pods held."""
        self._kubelet.manager.remove_stale()

    def stop(self, uid: str) -> None:
        """Remove a pod and clean up everything."""
        self._kubelet.remove_pod(uid)
        self._kubelet.collect()

    # Places

    def standing(self, uid: str) -> Standing:
        """Return how the Topology Manager judges what a pod of the node holds."""
        topology, pod = self._kubelet.manager.topology, self._kubelet.active[uid]
        if topology.merger is None:
            return ()
        if topology.scope == "pod":
            rounds = [[provider.pod_hints(pod) for provider in topology.providers]]
        else:
            rounds = [[p.container_hints(pod, container) for p in topology.providers] for container in pod.containers]
        merged = [topology.merger.merge(hints) for hints in rounds]
        return tuple((one.admitted, one.hint.preferred) for one in merged)

    def move(self, moved: Moved) -> None:
        """Move containers of a pod, with their memory."""
        if moved.sets or moved.whole is not None:
            self.move_cpus(moved.uid, moved.sets, moved.whole)
        if moved.nodes or self.view.pod_blocks.get(moved.uid):
            self.move_memory(moved.uid, moved.containers, moved.nodes)

    def eligible_cpus(self, uid: str, names: Container[str]) -> Bits:
        """Return the CPUs that the policy's classes and plugins leave to containers of a pod, including those that
        others own now."""
        manager = self._kubelet.manager
        try:
            return manager.cpu.eligible_cpus(manager.context.active[uid], names)
        except AdmissionError:
            return 0

    def move_cpus(self, uid: str, sets: Mapping[str, Bits], pod_cpus: Bits | None) -> None:
        """Give containers of a pod other CPUs, and the pod as a whole where it owns some."""
        cpu = self._kubelet.manager.cpu
        cpu.state = cpu.state.relocate(uid, sets, pod_cpus)

    def lend_cpus(self, uid: str, loans: Mapping[str, tuple[int, ...]], pod_cpus: Bits) -> None:
        """Set which CPUs of a pod are the ones beyond the promised ones, by container and as a whole."""
        cpu = self._kubelet.manager.cpu
        cpu.state = cpu.state.set_loans(uid, loans, pod_cpus)

    def move_memory(self, uid: str, containers: Sequence[str], nodes: Bits) -> None:
        """Charge the memory of containers of a pod to other NUMA nodes."""
        self._kubelet.manager.memory.relocate(uid, containers, nodes)

    def set_ledger(self, shared: Bits, memory: MachineState) -> None:
        """Replace the shared pool and the memory ledger of the node."""
        cpu, accounts = self._kubelet.manager.cpu, self._kubelet.manager.memory
        cpu.state = cpu.state.with_default(shared)
        accounts.state = accounts.state.with_machine(memory)

    # Other nodes

    def fresh(
        self, machine: Machine, config: KubeletConfig, pods: Sequence[Pod] = (), release: Release | None = None
    ) -> Trial | None:
        """Return an empty node like this one, or of another release, with the pods on it; None if it does not start or
        refuses one of them."""
        known = self._kubelet
        release = release or known.release
        if validate(config, release):
            return None
        try:
            node = Trial.start(
                machine,
                config,
                known.quirks if release is known.release else quirks_in(release, known.quirks),
                devices=known.devices,
                predicates=known.predicates,
                policy=known.policy,
                release=release,
            )
        except (StartError, UpstreamDefectError):
            return None
        return node if all(node.try_run(pod) for pod in pods) else None

    def restart(self, machine: Machine, config: KubeletConfig, policy: PodslicePolicy | None = None) -> Trial | None:
        """Return the node after a restart with this machine and configuration, and another policy if one is given; None
        if it does not start or refuses a running pod."""
        kubelet = self._kubelet.copy()
        if validate(config, kubelet.release):
            return None
        kubelet.save()
        # Saved before the policy changes: a restart reads what the old kubelet has written.
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

    def stale_files(self, machine: Machine, config: KubeletConfig) -> tuple[str, ...]:
        """Return the fewest state files of the drained node without which a kubelet with this machine and configuration
        starts; empty where it starts on all of them, and where it never does."""
        empty = self._kubelet.copy()
        for uid in list(empty.active):
            empty.remove_pod(uid)
        empty.manager.remove_stale()
        empty.save()
        names = [name for name in empty.files if name in (CPU_STATE_FILE, MEMORY_STATE_FILE)]
        for size in range(len(names) + 1):
            for without in combinations(names, size):
                kubelet = empty.copy()
                kubelet.files = {name: data for name, data in empty.files.items() if name not in without}
                with suppress(StartError, UpstreamDefectError):
                    kubelet.restart(machine=machine, config=config)
                    return without
        return ()

    def restart_problem(self) -> str:
        """Return what a kubelet that restarts on the present state files refuses or changes; empty if nothing."""
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
        # Byte by byte: a difference means that the plan left something that only its own process knew.
        return "" if kubelet.files == files else "a restarted kubelet would change the state"
