"""Choose the NUMA nodes of memory after a resize (KEP-5554 leaves memory out; docs/resize.md).

All functions take the ledgers without the blocks that are resized: their memory is free there, and their nodes are
unused unless another holder has memory on them. Only such nodes can join a group or leave it, since all blocks of a
group are on the same nodes.
"""

from __future__ import annotations

from podslice.machine.memory import NO_TABLE, MachineState
from podslice.node.memory.hints import Groups, Request, fewest_nodes, is_short
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet
from podslice.node.topology.needs import Need, all_met
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits, iter_bits
from podslice.values.errors import AdmissionError, RefusalKind

_NO_ROOM = RefusalKind(
    "no-room-to-grow", "[memorymanager] the NUMA nodes of the container have not enough free memory for it to grow"
)


def hints_around(
    ledger: MachineState, held: Bits, request: Request, search_budget: SearchBudget | None = None
) -> HintSet | None:
    """Return the hints for memory on the nodes `held` to have these amounts: those nodes, or if they are too full those
    and unused ones. None: nowhere."""
    if not is_short(ledger, held, request, crash=False):
        return HintSet.only(held)
    used = Groups.of(ledger).used
    nodes = sum(1 << node for node in ledger)
    if held & (used | ~nodes):
        return None
    unused = nodes & ~used
    needs = *_free(ledger, request), Need.nodes(held, held.bit_count())
    smallest = fewest_nodes(ledger, request, search_budget)
    if smallest is None or not all_met(needs, unused):
        return None
    return HintSet(
        tuple(sorted(ledger)),
        smallest.nodes,
        0,
        open_nodes=unused,
        needs=needs,
        proven=smallest.proven,
        search_budget=search_budget,
    )


def choose_growth_nodes(hints: HintSet | None, affinity: Hint) -> Bits:
    """Return the nodes for memory that grows, among its hints: those of the affinity, or the fewest, with as many of
    the affinity's as possible. Raises `AdmissionError`."""
    if hints is None:
        raise AdmissionError(_NO_ROOM)
    preferred = affinity.mask or 0
    if preferred and preferred in hints:
        return preferred
    best = hints.best(preferred) or hints.best()
    if best is None:
        raise AdmissionError(_NO_ROOM)
    return best.hint.mask or 0


def choose_kept_nodes(ledger: MachineState, held: Bits, request: Request, near: Bits) -> Bits:
    """Return the nodes that memory keeps when it shrinks to these amounts: those `near` first, lower ids first, as many
    as it fills; all of them where others hold memory there too."""
    # Blocks of a group stay on the same nodes: a holder cannot leave one alone.
    if held & Groups.of(ledger).used:
        return held
    left, kept = dict(request), 0
    for node in (*iter_bits(held & near), *iter_bits(held & ~near)):
        tables = ledger[node].memory_map or {}
        share = {name: min(size, tables.get(name, NO_TABLE).free) for name, size in left.items()}
        if any(share.values()):
            kept |= 1 << node
            left = {name: size - share[name] for name, size in left.items()}
    return kept or held


def _free(ledger: MachineState, request: Request) -> tuple[Need, ...]:
    return tuple(
        Need({node: (state.memory_map or {}).get(name, NO_TABLE).free for node, state in ledger.items()}, amount)
        for name, amount in request.items()
    )
