"""Resizes of memory as functions of a `MemoryState` (docs/resize.md): first everything shrinks, then everything grows.

Only amounts change; a container with blocks of other types than it requests keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import Amounts
from podslice.machine.memory import Block
from podslice.node.cpu.state import numa_nodes
from podslice.node.memory.pod_level import Own
from podslice.node.memory.resize import choose_growth_nodes, choose_kept_nodes, hints_around
from podslice.node.memory.reuse import Entries
from podslice.node.memory.state import Blocks, MemoryState
from podslice.node.topology.hint import NO_AFFINITY, Hint
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits, ids_of


def fits(blocks: Blocks, request: Amounts) -> bool:
    """Whether the blocks are exactly the request."""
    return len(blocks) == len(request) and all(request.get(block.type) == block.size for block in blocks)


def grows(blocks: Blocks, request: Amounts) -> bool:
    """Whether the request is for more than the blocks hold."""
    return _same_types(blocks, request) and any(request[block.type] > block.size for block in blocks)


def shrinks(blocks: Blocks, request: Amounts) -> bool:
    """Whether the request is for less than the blocks hold, and for no more of any type."""
    return _same_types(blocks, request) and not grows(blocks, request) and not fits(blocks, request)


def growth_hints(
    state: MemoryState, blocks: Blocks, request: Amounts, search_budget: SearchBudget | None = None
) -> HintSet | None:
    """Return the NUMA nodes on which blocks can grow to these amounts, as hints; None: nowhere."""
    return hints_around(state.ledger_without(blocks), numa_nodes(blocks), request, search_budget)


def hints_for_growing_pod(
    state: MemoryState, pod: AdmissionPod, own: Own, search_budget: SearchBudget | None = None
) -> ProviderHints:
    """Return the hints of the first container of a pod that must leave its NUMA nodes to grow; None where none must."""
    for container in pod.containers:
        held, request = state.blocks(pod.uid, container.name), own(container)
        if not container.plain_init and grows(held, request):
            found = growth_hints(state, held, request, search_budget)
            # A container that can grow where it is needs no hint; it grows here, so that the next one sees what is
            # left.
            if found is None or found.support != numa_nodes(held):
                return dict.fromkeys(request, found or [])
            state = grow(state, pod.uid, container.name, request, NO_AFFINITY, search_budget)
    return None


def shrink(
    state: MemoryState, pod: AdmissionPod, own: Own, *, near: Callable[[str], Bits], follows: bool
) -> MemoryState:
    """Return the state without what containers hold beyond their present request. `follows`: memory leaves NUMA nodes
    that it no longer needs, and keeps those `near` a container first."""
    for container in pod.containers:
        name, held = container.name, state.blocks(pod.uid, container.name)
        if held and not container.plain_init:
            request = own(container)
            # It requests no memory of its own any more, so all its blocks are released.
            if not request:
                state = state.resize(pod.uid, name, ())
            elif shrinks(held, request):
                state = state.resize(
                    pod.uid, name, _shrink_blocks(state, held, request, near(name) if follows else None)
                )
    return state


def shrink_pod(state: MemoryState, uid: str, request: Amounts, *, near: Bits, follows: bool) -> MemoryState:
    """Shrink, as `shrink`, a pod that holds memory as a whole; its containers' blocks follow where it leaves a NUMA
    node."""
    held = state.pod_assignments[uid]
    if not shrinks(held, request):
        return state
    blocks = _shrink_blocks(state, held, request, near if follows else None)
    return state.resize_pod(uid, blocks, _move(state.entries(uid), numa_nodes(blocks)))


def grow(
    state: MemoryState, uid: str, name: str, request: Amounts, affinity: Hint, search_budget: SearchBudget | None = None
) -> MemoryState:
    """Return the state in which a container holds these larger amounts. Raises `AdmissionError`."""
    held = state.blocks(uid, name)
    nodes = choose_growth_nodes(growth_hints(state, held, request, search_budget), affinity)
    return state.resize(uid, name, blocks_on(nodes, request))


def grow_pod(
    state: MemoryState, uid: str, request: Amounts, affinity: Hint, search_budget: SearchBudget | None = None
) -> MemoryState:
    """Grow, as `grow`, a pod that holds memory as a whole. Raises `AdmissionError`."""
    held = state.pod_assignments[uid]
    nodes = choose_growth_nodes(growth_hints(state, held, request, search_budget), affinity)
    return state.resize_pod(uid, blocks_on(nodes, request), _move(state.entries(uid), nodes))


def divide(state: MemoryState, uid: str, slices: dict[str, Amounts]) -> MemoryState:
    """Return the state in which a pod's containers, as far as they hold something, hold these parts of what the pod
    holds."""
    whole = state.pod_assignments[uid]
    nodes = numa_nodes(whole)
    entries = {
        name: blocks_on(nodes, {kind: size for kind, size in slices[name].items() if size})
        for name in state.entries(uid)
        if name in slices
    }
    return state.resize_pod(uid, whole, {**state.entries(uid), **entries})


def blocks_on(nodes: Bits, request: Amounts) -> Blocks:
    """Return one block on these nodes for each type of memory."""
    affinity = tuple(ids_of(nodes))
    return tuple([Block(affinity, name, size) for name, size in sorted(request.items())])


def _same_types(blocks: Blocks, request: Amounts) -> bool:
    return len(blocks) == len(request) and all(block.type in request for block in blocks)


def _shrink_blocks(state: MemoryState, held: Blocks, request: Amounts, near: Bits | None) -> Blocks:
    """Return blocks of the requested amounts on the held blocks' nodes; with `near` on as few of them as it takes,
    those `near` first."""
    nodes = numa_nodes(held)
    if near is not None:
        nodes = choose_kept_nodes(state.ledger_without(held), nodes, request, near)
    return blocks_on(nodes, request)


def _move(entries: Entries, nodes: Bits) -> Entries:
    # Containers have their pod's NUMA nodes; only their amounts differ.
    affinity = tuple(ids_of(nodes))
    return {name: tuple(Block(affinity, one.type, one.size) for one in own) for name, own in entries.items()}
