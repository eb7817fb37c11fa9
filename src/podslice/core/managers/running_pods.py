"""Running pods after a restart with another value of the gate PodLevelResourceManagers than they were admitted with.

KEP-5526 changes who owns what when a pod is admitted, not while it runs. A pod that was admitted without the gate stays
on the node's shared resources until it ends; one whose pod entries an older format could not hold gets them back.
"""

from __future__ import annotations

from podslice.core.errors import AdmissionError
from podslice.core.managers.container import ContainerManager
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.pod.memory_demand import container_memory, pod_memory
from podslice.statefiles.names import CPU_STATE_FILE, MEMORY_STATE_FILE


def ran_unmanaged(pod: AdmissionPod, manager: ContainerManager) -> bool:
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


def bring_back_pod_entries(pod: AdmissionPod, manager: ContainerManager) -> None:
    """Make the pod entries of a running, managed pod again, from its specification and what its containers hold."""
    if pod.guaranteed and as_a_whole(manager):
        manager.cpu.bring_back_bubble(pod)
        manager.memory.bring_back_pod(pod)


def as_a_whole(manager: ContainerManager) -> bool:
    """True where pods with pod-level resources are given theirs at once."""
    return manager.config.aligns_pods


def _wants_cpus(pod: AdmissionPod, manager: ContainerManager) -> bool:
    if as_a_whole(manager):
        return manager.cpu.static and pod.cpus > 0
    return manager.cpu.static and any(container.exclusive_cpus for container in pod.containers)


def _wants_memory(pod: AdmissionPod, manager: ContainerManager) -> bool:
    if not manager.memory.static:
        return False
    try:
        if as_a_whole(manager):
            return bool(pod_memory(pod))
        return any(container_memory(pod, container) for container in pod.containers)
    except AdmissionError:
        return False
