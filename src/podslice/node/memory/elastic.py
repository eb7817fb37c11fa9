"""What a Memory Manager's state becomes in a resize (docs/resize.md): first everything shrinks, then everything grows.

Only amounts change; a container that has blocks of other types than it asks for keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import Amounts
from podslice.machine.memory import Block
from podslice.node.cpu.state import numa_nodes
from podslice.node.memory.pod_level import Own
from podslice.node.memory.resize import grown_hints, grown_nodes, kept_nodes
from podslice.node.memory.reuse import Entries
from podslice.node.memory.state import Blocks, MemoryState
from podslice.node.topology.hint import NO_AFFINITY, Hint
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits, ids_of


def fits(blocks: Blocks, request: Amounts) -> bool:
    """True when the blocks are what is asked for."""
    return len(blocks) == len(request) and all(request.get(block.type) == block.size for block in blocks)


def grows(blocks: Blocks, request: Amounts) -> bool:
    """True when more is asked for than the blocks hold."""
    return _same_types(blocks, request) and any(request[block.type] > block.size for block in blocks)


def shrinks(blocks: Blocks, request: Amounts) -> bool:
    """True when less is asked for than the blocks hold, and of nothing more."""
    return _same_types(blocks, request) and not grows(blocks, request) and not fits(blocks, request)


def hints(
    state: MemoryState, blocks: Blocks, request: Amounts, search_budget: SearchBudget | None = None
) -> HintSet | None:
    """Where blocks that grow to these amounts could be; None: nowhere."""
    return grown_hints(state.without(blocks), numa_nodes(blocks), request, search_budget)


def hints_of_growing(
    state: MemoryState, pod: AdmissionPod, own: Own, search_budget: SearchBudget | None = None
) -> ProviderHints:
    """Where the first container of a pod could be that has to leave its NUMA nodes to grow; None where none has to."""
    for container in pod.containers:
        held, request = state.blocks(pod.uid, container.name), own(container)
        if not container.plain_init and grows(held, request):
            found = hints(state, held, request, search_budget)
            if found is None or found.support != numa_nodes(held):
                return dict.fromkeys(request, found or [])
            state = grown(state, pod.uid, container.name, request, NO_AFFINITY, search_budget)
    return None


def shrunk(
    state: MemoryState, pod: AdmissionPod, own: Own, *, near: Callable[[str], Bits], follows: bool
) -> MemoryState:
    """Without what containers have beyond what they ask for now; `follows`: on no more NUMA nodes than that takes,
    those that are `near` a container first."""
    for container in pod.containers:
        name, held = container.name, state.blocks(pod.uid, container.name)
        if held and not container.plain_init:
            request = own(container)
            if not request:
                state = state.resize(pod.uid, name, ())
            elif shrinks(held, request):
                state = state.resize(pod.uid, name, _smaller(state, held, request, near(name) if follows else None))
    return state


def shrunk_pod(state: MemoryState, uid: str, request: Amounts, *, near: Bits, follows: bool) -> MemoryState:
    """The same of a pod that holds memory as a whole; its containers' blocks go along where it leaves a NUMA node."""
    held = state.pod_assignments[uid]
    if not shrinks(held, request):
        return state
    blocks = _smaller(state, held, request, near if follows else None)
    return state.resize_pod(uid, blocks, _moved(state.entries(uid), numa_nodes(blocks)))


def grown(
    state: MemoryState, uid: str, name: str, request: Amounts, affinity: Hint, search_budget: SearchBudget | None = None
) -> MemoryState:
    """With a container that holds these larger amounts. Raises `AdmissionError`."""
    held = state.blocks(uid, name)
    nodes = grown_nodes(hints(state, held, request, search_budget), affinity)
    return state.resize(uid, name, blocks_on(nodes, request))


def grown_pod(
    state: MemoryState, uid: str, request: Amounts, affinity: Hint, search_budget: SearchBudget | None = None
) -> MemoryState:
    """The same of a pod that holds memory as a whole. Raises `AdmissionError`."""
    held = state.pod_assignments[uid]
    nodes = grown_nodes(hints(state, held, request, search_budget), affinity)
    return state.resize_pod(uid, blocks_on(nodes, request), _moved(state.entries(uid), nodes))


def divide(state: MemoryState, uid: str, slices: dict[str, Amounts]) -> MemoryState:
    """With a pod whose containers, as far as they hold something, hold these parts of what it has."""
    whole = state.pod_assignments[uid]
    nodes = numa_nodes(whole)
    entries = {
        name: blocks_on(nodes, {kind: size for kind, size in slices[name].items() if size})
        for name in state.entries(uid)
        if name in slices
    }
    return state.resize_pod(uid, whole, {**state.entries(uid), **entries})


def blocks_on(nodes: Bits, request: Amounts) -> Blocks:
    """One block for each type of memory."""
    affinity = tuple(ids_of(nodes))
    return tuple([Block(affinity, name, size) for name, size in sorted(request.items())])


def _same_types(blocks: Blocks, request: Amounts) -> bool:
    return len(blocks) == len(request) and all(block.type in request for block in blocks)


def _smaller(state: MemoryState, held: Blocks, request: Amounts, near: Bits | None) -> Blocks:
    """On all nodes of the held blocks, or on some of them, those `near` first."""
    nodes = numa_nodes(held)
    if near is not None:
        nodes = kept_nodes(state.without(held), nodes, request, near)
    return blocks_on(nodes, request)


def _moved(entries: Entries, nodes: Bits) -> Entries:
    affinity = tuple(ids_of(nodes))
    return {name: tuple(Block(affinity, one.type, one.size) for one in own) for name, own in entries.items()}
