"""A pod leaves a node where nothing else waits to be cleaned up: each state forgets it, and nobody has to look for what
else is gone. Simulations and schedulers let as many pods go as they admit.
"""

from __future__ import annotations

from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.values.quirks import PODSLICE
from podslice.values.tables import drop


def goes_alone(rules: NodeRules, state: NodeState, uid: str) -> bool:
    """True where a pod on the node holds nothing that concerns others: no plugin has to hear of it, nobody waits for a
    resize, nothing is lacking after a change of the machine, and no init container left anything. Upstream leaves
    things behind, so only in profile `podslice`."""
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
        or (uid in cpu.bubbles and uid not in cpu.assignments)
    )


def state_without(rules: NodeRules, state: NodeState, uid: str) -> NodeState:
    """The state of a node without a pod that `goes_alone`."""
    cpu, memory, device, pods = state.cpu, state.memory, state.device, drop(state.pods, uid)
    if uid in device.records:
        device = device.without((uid,), written=True)
    if uid in cpu.assignments or uid in cpu.containers:
        pod_level = rules.cpu.pod_level
        freed = cpu.cpus_to_free(uid, bubbles=pod_level) if rules.cpu.static else None
        cpu = cpu.forget(uid, freed, bubbles=pod_level)
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
        seen.without(uid, pods) if seen.active is state.pods else seen,
    )
