"""Readmit pods that run when a kubelet starts, or take them over as they are.

A starting kubelet admits what runs once more before anything counts as gone. Where the gate PodLevelResourceManagers
has changed meanwhile, KEP-5526 changes nothing for a pod that runs: one that was admitted without the gate stays on the
node's shared resources until it ends; one whose pod entries an older format could not hold gets them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import container_memory, pod_memory
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements, map_containers
from podslice.machine.memory import Block
from podslice.node.checkpoints.names import CPU_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.container import ContainerManager
from podslice.node.cpu.state import PodCPUs
from podslice.node.kubelet import Kubelet
from podslice.node.resize.pending import PendingResize
from podslice.scheduling.predicates import PodsOnNode
from podslice.values.errors import AdmissionError, Refusal
from podslice.values.quantity import BINARY_SI, Quantity

OnRefusal: TypeAlias = Callable[[AdmissionPod, Refusal], None]


class Admitted(NamedTuple):
    """A pod that was readmitted, or refused, after a restart."""

    uid: str
    refusal: Refusal | None


def _ignore(pod: AdmissionPod, refusal: Refusal) -> None:
    """Ignore a refusal."""


def readmit(kubelet: Kubelet, pods: Iterable[Pod] | None = None, *, on_refusal: OnRefusal = _ignore) -> list[Admitted]:
    """Admit again what runs already, before anything counts as gone: the active pods, or `pods`, whose containers an
    earlier kubelet started.

    `on_refusal` is called for each pod that must go, at once. A resizable pod that was granted more than fits now runs
    with what it has, and its resize waits. Call `sources_ready` afterwards.
    """
    kubelet.manager.context.sources_ready = False
    running = in_order(kubelet, (pod.spec for pod in kubelet.active.values()) if pods is None else pods)
    _take_running(kubelet, running)
    # Pods count again one by one: a pod does not count for those readmitted before it.
    kubelet.seen, kubelet.to_readmit = PodsOnNode(), frozenset(pod.metadata.uid for pod in running)
    answers = []
    for pod in running:
        uid, admission = pod.metadata.uid, kubelet.admission(pod)
        kubelet.to_readmit -= {uid}
        refusal = kubelet.decide(admission)
        if refusal is not None and _keep_holding(kubelet, admission):
            refusal = None
        answers.append(Admitted(uid, refusal))
        if refusal is not None:
            on_refusal(admission, refusal)
        elif pods is not None and kubelet.quirks.init_memory_again:
            kubelet.take_over(uid)
        elif pods is not None:
            kubelet.start_containers(uid)
    return answers


def resume(kubelet: Kubelet, pods: Iterable[Pod], *, on_refusal: OnRefusal = _ignore) -> None:
    """Take pods that run under the kubelet that wrote the files and goes on: they keep what they hold there, and those
    that hold nothing are admitted. Call `sources_ready` afterwards."""
    kubelet.manager.context.sources_ready = False
    running = list(pods)
    _take_running(kubelet, running)
    kubelet.to_readmit = frozenset(pod.metadata.uid for pod in running)
    for pod in running:
        admission = kubelet.admission(pod)
        kubelet.seen, kubelet.to_readmit = PodsOnNode(), kubelet.to_readmit - {admission.uid}
        if _holds_something(kubelet, admission.uid):
            kubelet.take_over(admission.uid)
        elif (refusal := kubelet.decide(admission)) is not None:
            on_refusal(admission, refusal)
        else:
            kubelet.start_containers(admission.uid)


def in_order(kubelet: Kubelet, pods: Iterable[Pod]) -> list[Pod]:
    """Return pods that wait together in the order of the plugins' Sort; as they are where no plugin sorts."""
    key = kubelet.sort_key
    return list(pods) if key is None else sorted(pods, key=key)


def _take_running(kubelet: Kubelet, pods: Iterable[Pod]) -> None:
    """Make pods active that run since before the kubelet started; they are yet to be admitted again."""
    quirks, manager = kubelet.quirks, kubelet.manager
    for pod in pods:
        admission = kubelet.admission(pod)
        # KEP-5526: switching the gate changes nothing for pods that run; upstream treats them by the new gate.
        if admission.managed and not quirks.gate_moves_running_pods and _ran_unmanaged(admission, manager):
            kubelet.unmanaged |= {admission.uid}
            admission = kubelet.admission(pod)
        elif admission.managed and not quirks.pod_entries_stay_lost:
            _rebuild_pod_entries(admission, manager)
        manager.context.activate(admission)


def _keep_holding(kubelet: Kubelet, admission: AdmissionPod) -> bool:
    """Admit a refused running pod with requests for what it has, and queue the rest as a resize; return False where
    that is refused too."""
    if not (kubelet.manager.elastic or kubelet.manager.elastic_memory):
        return False
    smaller = reduce_to_held(admission, kubelet.state.of_pod(admission.uid))
    if smaller is None or kubelet.decide(kubelet.admission(smaller)) is not None:
        return False
    kubelet.resizes.submit(PendingResize(smaller, admission.spec), kubelet.sort_key)
    return True


def _holds_something(kubelet: Kubelet, uid: str) -> bool:
    cpu, memory, device = kubelet.manager.cpu.state, kubelet.manager.memory.state, kubelet.manager.device.state
    tables = (cpu.assignments, cpu.pod_cpus, memory.assignments, memory.pod_assignments, device.records)
    return any(uid in table for table in tables)


def _ran_unmanaged(pod: AdmissionPod, manager: ContainerManager) -> bool:
    """Whether a running, managed pod is missing from the restored files although it would be in them had the managers
    handled it at its admission."""
    if not pod.guaranteed:
        return False
    holding = []
    if CPU_STATE_FILE in manager.restored and _needs_cpus(pod, manager):
        holding.append(pod.uid in manager.cpu.state.assignments)
    if MEMORY_STATE_FILE in manager.restored and _needs_memory(pod, manager):
        holding.append(pod.uid in manager.memory.assignments)
    return bool(holding) and not any(holding)


def _rebuild_pod_entries(pod: AdmissionPod, manager: ContainerManager) -> None:
    """Rebuild the pod entries of a running, managed pod from its specification and its containers' holdings."""
    if pod.guaranteed and _places_whole(manager):
        manager.cpu.rebuild_pod_entry(pod)
        manager.memory.rebuild_pod_entry(pod)


def _places_whole(manager: ContainerManager) -> bool:
    """Whether pods with pod-level resources get them for the pod as a whole."""
    return manager.config.aligns_pods


def _needs_cpus(pod: AdmissionPod, manager: ContainerManager) -> bool:
    if _places_whole(manager):
        return manager.cpu.static and pod.cpus > 0
    return manager.cpu.static and any(container.exclusive_cpus for container in pod.containers)


def _needs_memory(pod: AdmissionPod, manager: ContainerManager) -> bool:
    """Whether the Memory Manager is Static and has memory to allocate for the pod."""
    if not manager.memory.static:
        return False
    try:
        if _places_whole(manager):
            return bool(pod_memory(pod))
        return any(container_memory(pod, container) for container in pod.containers)
    except AdmissionError:
        return False


# A running pod that was granted more than it can have runs with what it has, and its growth waits. That happens after a
# growth of which only the grant is known, because `podslice_policy_state` was lost or no agent carried it out, when
# other pods have the room by now (docs/resize.md).


_CPU, _MEMORY = "cpu", "memory"


def reduce_to_held(pod: AdmissionPod, had: PodCPUs) -> Pod | None:
    """Return the pod with requests for what it holds, where that is less than its present requests; None where it is
    not less."""
    smaller = {one.name: _reduced_amounts(had, one) for one in pod.containers}
    spec = map_containers(pod.spec.spec, lambda one: _with_requests(one, smaller.get(one.name, {})))
    if pod.managed and spec.resources is not None:
        whole = _amounts(had.pod_cpus.bit_count(), pod.cpus, had.memory.whole, _own_memory(spec.resources))
        spec = replace(spec, resources=_with_amounts(spec.resources, whole))
    return None if spec == pod.spec.spec else replace(pod.spec, spec=spec)


def _reduced_amounts(had: PodCPUs, one: AdmissionContainer) -> ResourceList:
    """Return the amounts that a container holds, where they are less than it requests."""
    found = _amounts(
        had.assignments.get(one.name, 0).bit_count(),
        one.exclusive_cpus,
        had.memory.containers.get(one.name, ()),
        (one.memory or {}).get(_MEMORY, 0),
    )
    if one.remainder and _CPU in found:
        found[_CPU] = found[_CPU].add(Quantity.milli(one.remainder))
    return found


def _amounts(cpus: int, asked_cpus: int, blocks: Iterable[Block], asked_memory: int) -> ResourceList:
    """Return the amounts that are held, if less than requested."""
    memory = sum(block.size for block in blocks if block.type == _MEMORY)
    found: ResourceList = {}
    if 0 < cpus < asked_cpus:
        found[_CPU] = Quantity.of(cpus)
    if 0 < memory < asked_memory:
        found[_MEMORY] = Quantity.of(memory, BINARY_SI)
    return found


def _own_memory(resources: ResourceRequirements) -> int:
    amount = (resources.requests or {}).get(_MEMORY)
    return 0 if amount is None else amount.value()


def _with_requests(container: Container, amounts: ResourceList) -> Container:
    return replace(container, resources=_with_amounts(container.resources, amounts))


def _with_amounts(resources: ResourceRequirements, amounts: ResourceList) -> ResourceRequirements:
    """Return the requirements with these amounts. Requests and limits are equal where CPUs or memory are a container's
    own."""
    if not amounts:
        return resources
    return replace(resources, requests=(resources.requests or {}) | amounts, limits=(resources.limits or {}) | amounts)
