"""Remove a pod without a kubelet, where nothing else waits to be cleaned up: each manager's state drops the pod, and no
search for other leftovers is needed. Simulations and schedulers remove as many pods as they admit."""

from __future__ import annotations

from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.values.quirks import PODSLICE
from podslice.values.tables import drop


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
