"""Pods that run when a kubelet starts: they are admitted again, or taken over as they are.

A kubelet that starts admits what runs once more before anything counts as gone. Where the gate PodLevelResourceManagers
has changed meanwhile, KEP-5526 changes nothing for a pod that runs: one that was admitted without the gate stays on the
node's shared resources until it ends; one whose pod entries an older format could not hold gets them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import container_memory, pod_memory
from podslice.api.pod.spec import Pod
from podslice.node.checkpoints.names import CPU_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.container import ContainerManager
from podslice.node.kubelet import Kubelet
from podslice.node.resize.held import as_held
from podslice.node.resize.pending import PendingResize
from podslice.scheduling.predicates import Seen
from podslice.values.errors import AdmissionError, Refusal

OnRefusal: TypeAlias = Callable[[AdmissionPod, Refusal], None]


class Admitted(NamedTuple):
    """A pod re-admitted or refused after a restart."""

    uid: str
    refusal: Refusal | None


def _nobody(pod: AdmissionPod, refusal: Refusal) -> None:
    """Nobody is told."""


def readmit(kubelet: Kubelet, pods: Iterable[Pod] | None = None, *, on_refusal: OnRefusal = _nobody) -> list[Admitted]:
    """Admit again what runs already, before anything counts as gone: the active pods, or these, whose containers an
    earlier kubelet started. `on_refusal` is told at once about those that must go. One that can be resized and was
    granted more than can be had now runs with what it has, and its resize waits. Call `sources_ready` afterwards.
    """
    kubelet.manager.context.sources_ready = False
    running = in_order(kubelet, (pod.spec for pod in kubelet.active.values()) if pods is None else pods)
    _take_running(kubelet, running)
    kubelet.seen, kubelet.coming = Seen(), frozenset(pod.metadata.uid for pod in running)
    answers = []
    for pod in running:
        uid, admission = pod.metadata.uid, kubelet.admission(pod)
        kubelet.coming -= {uid}
        refusal = kubelet.decide(admission)
        if refusal is not None and _keeps_what_it_has(kubelet, admission):
            refusal = None
        answers.append(Admitted(uid, refusal))
        if refusal is not None:
            on_refusal(admission, refusal)
        elif pods is not None and kubelet.quirks.init_memory_again:
            kubelet.take_over(uid)
        elif pods is not None:
            kubelet.start_containers(uid)
    return answers


def resume(kubelet: Kubelet, pods: Iterable[Pod], *, on_refusal: OnRefusal = _nobody) -> None:
    """These pods run under the kubelet that wrote the files, which goes on: what they hold there stays theirs, and
    those that hold nothing are admitted. Call `sources_ready` afterwards."""
    kubelet.manager.context.sources_ready = False
    running = list(pods)
    _take_running(kubelet, running)
    kubelet.coming = frozenset(pod.metadata.uid for pod in running)
    for pod in running:
        admission = kubelet.admission(pod)
        kubelet.seen, kubelet.coming = Seen(), kubelet.coming - {admission.uid}
        if _holds_something(kubelet, admission.uid):
            kubelet.take_over(admission.uid)
        elif (refusal := kubelet.decide(admission)) is not None:
            on_refusal(admission, refusal)
        else:
            kubelet.start_containers(admission.uid)


def in_order(kubelet: Kubelet, pods: Iterable[Pod]) -> list[Pod]:
    """Pods that wait together as plugins want them tried (Sort); as they are where no plugin says."""
    key = kubelet.sort_key
    return list(pods) if key is None else sorted(pods, key=key)


def _take_running(kubelet: Kubelet, pods: Iterable[Pod]) -> None:
    """These pods run since before the kubelet started; they count as active, and are to be admitted again."""
    quirks, manager = kubelet.quirks, kubelet.manager
    for pod in pods:
        admission = kubelet.admission(pod)
        if admission.managed and not quirks.gate_moves_running_pods and _ran_unmanaged(admission, manager):
            kubelet.unmanaged |= {admission.uid}
            admission = kubelet.admission(pod)
        elif admission.managed and not quirks.pod_entries_stay_lost:
            _bring_back_pod_entries(admission, manager)
        manager.context.activate(admission)


def _keeps_what_it_has(kubelet: Kubelet, admission: AdmissionPod) -> bool:
    """A running pod that was refused asks for what it has, and waits for the rest; False where that is no way."""
    if not (kubelet.manager.elastic or kubelet.manager.elastic_memory):
        return False
    smaller = as_held(admission, kubelet.state.of_pod(admission.uid))
    if smaller is None or kubelet.decide(kubelet.admission(smaller)) is not None:
        return False
    kubelet.resizes.submit(PendingResize(smaller, admission.spec), kubelet.sort_key)
    return True


def _holds_something(kubelet: Kubelet, uid: str) -> bool:
    cpu, memory, device = kubelet.manager.cpu.state, kubelet.manager.memory.state, kubelet.manager.device.state
    tables = (cpu.assignments, cpu.bubbles, memory.assignments, memory.pod_assignments, device.records)
    return any(uid in table for table in tables)


def _ran_unmanaged(pod: AdmissionPod, manager: ContainerManager) -> bool:
    """True for a running, managed pod that the files its managers found know nothing of, although it would hold
    something there if they had looked at it when it came."""
    if not pod.guaranteed:
        return False
    holding = []
    if CPU_STATE_FILE in manager.restored and _wants_cpus(pod, manager):
        holding.append(pod.uid in manager.cpu.state.assignments)
    if MEMORY_STATE_FILE in manager.restored and _wants_memory(pod, manager):
        holding.append(pod.uid in manager.memory.assignments)
    return bool(holding) and not any(holding)


def _bring_back_pod_entries(pod: AdmissionPod, manager: ContainerManager) -> None:
    """Make the pod entries of a running, managed pod again, from its specification and what its containers hold."""
    if pod.guaranteed and _as_a_whole(manager):
        manager.cpu.restore_pod_cpus(pod)
        manager.memory.bring_back_pod(pod)


def _as_a_whole(manager: ContainerManager) -> bool:
    """True where pods with pod-level resources are given theirs at once."""
    return manager.config.aligns_pods


def _wants_cpus(pod: AdmissionPod, manager: ContainerManager) -> bool:
    if _as_a_whole(manager):
        return manager.cpu.static and pod.cpus > 0
    return manager.cpu.static and any(container.exclusive_cpus for container in pod.containers)


def _wants_memory(pod: AdmissionPod, manager: ContainerManager) -> bool:
    if not manager.memory.static:
        return False
    try:
        if _as_a_whole(manager):
            return bool(pod_memory(pod))
        return any(container_memory(pod, container) for container in pod.containers)
    except AdmissionError:
        return False
