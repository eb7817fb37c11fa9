"""Pods that hold memory as a whole, in a Memory Manager's state (memory-device 1.11)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import Amounts
from podslice.machine.memory_accounts import charge
from podslice.node.memory import pod_level as memory_pod
from podslice.node.memory.elastic import blocks_on
from podslice.node.memory.state import MemoryState
from podslice.values.cpuset import Bits, bits_of, ids_of


def charge_pod(
    state: MemoryState, pod: AdmissionPod, request: Amounts, nodes: Bits, slices: Mapping[str, Amounts]
) -> MemoryState:
    """Return the state in which a pod holds these amounts on these NUMA nodes, divided among its containers."""
    machine = state.machine_state.copy()
    for name, size in sorted(request.items()):
        charge(machine, nodes, name, size)
    entries = {
        container.name: blocks_on(nodes, {name: size for name, size in slices[container.name].items() if size})
        for container in pod.containers
    }
    return state.assign_pod(pod.uid, blocks_on(nodes, request), entries, machine)


def rebuild_pod_entry(
    state: MemoryState, pod: AdmissionPod, request: Amounts, own: memory_pod.Own, *, settled: bool
) -> MemoryState:
    """Return the state in which a running pod holds memory as a whole again, on its containers' nodes; unchanged where
    they are on different nodes or there is no room for the request."""
    blocks = [block for held in state.entries(pod.uid).values() for block in held]
    masks = {bits_of(block.numa_affinity or ()) for block in blocks}
    if len(masks) != 1 or not {block.type for block in blocks} <= set(request):
        return state
    nodes = masks.pop()
    held = {name: sum(block.size for block in blocks if block.type == name) for name in request}
    if any(_free(state, nodes, name) + held[name] < size for name, size in request.items()):
        return state
    slices = memory_pod.partition(pod, request, own, lambda event: None)
    return charge_pod(state.free_blocks(blocks, settled=settled), pod, request, nodes, slices)


def _free(state: MemoryState, nodes: Bits, name: str) -> int:
    tables = [(state.machine_state[node].memory_map or {}).get(name) for node in ids_of(nodes)]
    return sum(table.free for table in tables if table is not None)
