"""Decisions as functions of values: rules and a state go in, the next state comes out, the given state never changes.

Callers that decide millions of times (a scheduler's filter, a simulation, "what if") keep states and call these. Each
function puts a state into a kubelet, lets it act and takes the state out; `Node` is the same with a current state of
its own. To keep a node, keep `node.state`; to go on from it, `Node.of(node.rules, state)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.mixed import make_admission_pod
from podslice.machine.delta import MachineConsequence
from podslice.machine.model import Machine
from podslice.node import readmission
from podslice.node.cpu.state import Intent, PodCPUs, PodMemory
from podslice.node.decision import ResizeDecision
from podslice.node.holding import Holding, holding_of
from podslice.node.kubelet import Kubelet
from podslice.node.memory.elastic import fits
from podslice.node.memory.pod_level import partition
from podslice.node.node import Node, with_default_uid
from podslice.node.readmission import Admitted
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.scheduling.predicates import PodOnNode, pod_on_node
from podslice.values.cpuset import union
from podslice.values.errors import Refusal
from podslice.values.quirks import PODSLICE
from podslice.values.tables import drop


class Shape(NamedTuple):
    """A pod as a node sees it, computed once for all decisions about it."""

    admission: AdmissionPod
    seen: PodOnNode


class Decided(msgspec.Struct, frozen=True):
    """The next state, and the refusal if there is one. A refused pod leaves the state as it was, but for what profile
    `kubelet-1.36` leaves behind."""

    state: NodeState
    refusal: Refusal | None


class Restarted(NamedTuple):
    """The rules and the state after a restart, and the outcome for each pod that ran."""

    rules: NodeRules
    state: NodeState
    pods: tuple[Admitted, ...]


class MachineChanged(NamedTuple):
    """The rules and the state on the changed machine, and the consequences for the pods."""

    rules: NodeRules
    state: NodeState
    consequences: tuple[MachineConsequence, ...]


def shape_of(rules: NodeRules, pod: Pod) -> Shape:
    """Return a new pod's shape on nodes of these rules. Raises `InputError` as `Node.admit`."""
    pod = default_pod(with_default_uid(pod), rules.gates)
    admission = make_admission_pod(rules.policy, pod, rules.gates, release=rules.release)
    return Shape(admission, pod_on_node(pod, rules.gates, rules.quirks, qos=admission.qos))


def decide(rules: NodeRules, state: NodeState, pod: Pod | Shape) -> Decided:
    """Admit a pod and start its containers, as `Node.admit`. Raises as `Node.admit`."""
    kubelet = Kubelet.of(rules, state)
    if isinstance(pod, Shape):
        admission, seen = pod
    else:
        admission, seen = kubelet.admission(default_pod(with_default_uid(pod), rules.gates)), None
    refusal = kubelet.decide(admission, seen, state=state)
    if refusal is None:
        kubelet.run_containers(admission.uid)
    # A refusal that is undone restored the state from before the admission, in which nothing was left to clean up.
    if refusal is None or not kubelet.undoes_refusals:
        kubelet.manager.remove_stale()
    return Decided(kubelet.state, refusal)


def release(rules: NodeRules, state: NodeState, held: str | Holding) -> NodeState:
    """Return the state without a pod, as after `Node.remove`: the one with this UID, or the first with exactly this
    holding. Without such a pod the state itself."""
    if isinstance(held, Holding):
        held = next((uid for uid in state.pods if holding_of(state, uid) == held), "")
    if held not in state.pods:
        return state
    if can_drop_alone(rules, state, held):
        return drop_pod(rules, state, held)
    kubelet = Kubelet.of(rules, state)
    kubelet.remove_pod(held)
    kubelet.manager.remove_stale()
    return kubelet.state


def resize(
    rules: NodeRules, state: NodeState, pod: Pod, *, since: float | None = None
) -> tuple[NodeState, ResizeDecision]:
    """Resize a pod as `Node.resize`, and return the next state. Raises as it does."""
    node = Node.of(rules, state)
    decision = node.resize(pod, since=since)
    return node.state, decision


def restart(
    rules: NodeRules,
    state: NodeState,
    *,
    machine: Machine | None = None,
    config: KubeletConfig | None = None,
    gone: Iterable[str] = (),
) -> Restarted:
    """Restart the kubelet on the files of this state, on a machine or with a configuration that may have changed, while
    all containers run on but those of pods in `gone`. Raises `StartError`."""
    kubelet = Kubelet.of(rules, state)
    kubelet.save()
    kubelet.restart(machine=machine, config=config, gone=gone)
    answers = tuple(readmission.readmit(kubelet))
    kubelet.sources_ready()
    kubelet.manager.remove_stale()
    return Restarted(kubelet.rules, kubelet.state, answers)


def change_machine(rules: NodeRules, state: NodeState, machine: Machine) -> MachineChanged:
    """Change the machine as `Node.change_machine`. Raises as it does."""
    node = Node.of(rules, state)
    consequences = node.change_machine(machine)
    return MachineChanged(node.rules, node.state, consequences)


def settle_resizes(node: Node, intents: Mapping[str, Intent], pods: Iterable[Pod]) -> None:
    """Settle resizes and moves (by pod UID) that were being written when the process ended. A pod gets the side of the
    intent that fits what it was granted; for a move, whichever side the managers' files hold. Call before
    `Node.readmit` of the same pods."""
    back: dict[str, PodCPUs] = {}
    pod_scope = node.kubelet.config.aligns_pods
    for pod in pods:
        intent = intents.get(pod.metadata.uid)
        if intent is not None:
            granted = node.kubelet.admission(default_pod(pod, node.rules.gates))
            # Both sides of a move fit the grant, so the one that the files hold is tried first.
            sides = intent.sides[::-1] if intent.move and _is_moved(node.state, granted.uid, intent) else intent.sides
            had = next((one for one in sides if _has_what_it_asks(granted, one, pod_scope=pod_scope)), None)
            if had is not None:
                back[granted.uid] = had
    cpu, memory = node.kubelet.manager.cpu, node.kubelet.manager.memory
    cpu.state = cpu.state.restore_pods(back)
    memory.restore_pods({uid: had.memory for uid, had in back.items()})


def _is_moved(state: NodeState, uid: str, intent: Intent) -> bool:
    """Whether a pod has the CPUs of the intent's target, and, where these do not change, its memory."""
    now, (had, gets) = state.of_pod(uid), intent.sides
    if (had.assignments, had.pod_cpus) == (gets.assignments, gets.pod_cpus):
        return now.memory == gets.memory
    return (now.assignments, now.pod_cpus) == (gets.assignments, gets.pod_cpus)


def hold_both(node: Node, uid: str, intent: Intent) -> None:
    """Assign a pod that is about to move both its present CPUs and those it moves to, so that no other pod gets
    either."""
    cpu = node.kubelet.manager.cpu
    cpu.state = cpu.state.restore_pod(uid, intent.both)


def hold_before(node: Node, uid: str, intent: Intent) -> None:
    """Undo `hold_both`: the pod keeps the CPUs it had, and no others."""
    cpu = node.kubelet.manager.cpu
    cpu.state = cpu.state.restore_pod(uid, intent.before)


def _has_what_it_asks(pod: AdmissionPod, had: PodCPUs, *, pod_scope: bool) -> bool:
    """Whether this holding is what the pod and its containers are entitled to."""
    if pod_scope and pod.managed and not pod.cpus:
        return not had.cpus and _has_its_memory(pod, had.memory)
    return _has_its_cpus(pod, had) and _has_its_memory(pod, had.memory)


def _has_its_cpus(pod: AdmissionPod, had: PodCPUs) -> bool:
    """Whether the assignments, and pod CPUs if any, have the sizes that the pod is entitled to."""
    if had.pod_cpus and had.pod_cpus.bit_count() != pod.cpus:
        return False
    own = [(one, had.assignments.get(one.name, 0)) for one in pod.containers if not one.plain_init]
    pool = had.pod_cpus & ~union(cpus for one, cpus in own if one.exclusive_cpus)
    return all(
        cpus == pool if had.pod_cpus and not one.exclusive_cpus else cpus.bit_count() == one.exclusive_cpus
        for one, cpus in own
    )


def _has_its_memory(pod: AdmissionPod, had: PodMemory) -> bool:
    """Whether the blocks have the sizes that the pod is entitled to."""
    own = partial(container_memory, pod)
    asked = {one.name: request for one in pod.containers if not one.plain_init and (request := own(one))}
    if had.whole:
        if not fits(had.whole, request := pod_memory(pod)):
            return False
        slices = partition(pod, request, own, lambda event: None)
        asked = {one.name: _nonzero(slices[one.name]) for one in pod.containers if not one.plain_init}
    return all(fits(had.containers[name], request) for name, request in asked.items() if name in had.containers)


def _nonzero(amounts: Amounts) -> Amounts:
    return {name: size for name, size in amounts.items() if size}


# Removing a pod without a kubelet, where nothing else waits to be cleaned up: each manager's state drops the pod,
# and no search for other leftovers is needed. Simulations and schedulers remove as many pods as they admit.


def can_drop_alone(rules: NodeRules, state: NodeState, uid: str) -> bool:
    """Whether a pod on the node holds nothing that concerns other pods: no plugin is to be informed, no resize waits,
    no machine change left something short, and no init container left anything reusable. Upstream leaves things behind,
    so only in profile `podslice`."""
    cpu = state.cpu
    return not (
        state.leftovers
        or not state.sources_ready
        or rules.quirks is not PODSLICE
        or cpu.grants
        or cpu.reusable
        or state.device.reusable
        or state.memory.short
        or state.resizes.pending
        or (uid in cpu.pod_cpus and uid not in cpu.assignments)
    )


def drop_pod(rules: NodeRules, state: NodeState, uid: str) -> NodeState:
    """Return the state of a node without a pod for which `can_drop_alone` holds."""
    cpu, memory, device, pods = state.cpu, state.memory, state.device, drop(state.pods, uid)
    if uid in device.records:
        device = device.without((uid,), written=True)
    if uid in cpu.assignments or uid in cpu.containers:
        pod_level = rules.cpu.pod_level
        freed = cpu.cpus_to_free(uid, pod_level=pod_level) if rules.cpu.static else None
        cpu = cpu.forget(uid, freed, pod_level=pod_level)
    if rules.memory.static and (uid in memory.assignments or uid in memory.containers):
        memory = memory.forget(uid, pod_level=rules.memory.pod_level, settled=rules.memory.settles)
    seen, granted, conditions = state.seen, state.granted, state.conditions
    return NodeState(
        pods,
        drop(state.statuses, uid),
        state.unmanaged - {uid} if uid in state.unmanaged else state.unmanaged,
        cpu,
        memory,
        device,
        state.topology.forget(uid),
        state.resizes,
        drop(granted, uid) if granted else granted,
        drop(conditions, uid) if conditions else conditions,
        state.leftovers,
        True,
        # The predicates' view belongs to exactly one table of pods.
        seen.without(uid, pods) if seen.active is state.pods else seen,
    )
