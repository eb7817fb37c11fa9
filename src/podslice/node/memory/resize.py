"""On which NUMA nodes memory is after a resize (KEP-5554 leaves memory out; docs/resize.md).

Everything here asks the ledgers as they are without the blocks that are resized: what the blocks hold is free there,
and their nodes are unused where nobody else holds memory on them. Only such nodes can come to a group or leave it,
since all blocks of a group are on the same nodes.
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


def grown_hints(
    ledger: MachineState, held: Bits, request: Request, search_budget: SearchBudget | None = None
) -> HintSet | None:
    """Where memory on the nodes `held` could be with these amounts: there, or if they are too full on them and nodes
    that nobody uses. None: nowhere."""
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


def grown_nodes(hints: HintSet | None, affinity: Hint) -> Bits:
    """The nodes for memory that grows, among the hints for it: those of the affinity, or the fewest with as many of
    them as can be. Raises `AdmissionError`."""
    if hints is None:
        raise AdmissionError(_NO_ROOM)
    wish = affinity.mask or 0
    if wish and wish in hints:
        return wish
    best = hints.best(wish) or hints.best()
    if best is None:
        raise AdmissionError(_NO_ROOM)
    return best.hint.mask or 0


def kept_nodes(ledger: MachineState, held: Bits, request: Request, near: Bits) -> Bits:
    """The nodes that memory keeps which shrinks to these amounts: those `near` first, lower ids first, as many as it
    fills; all of them where others hold memory there too."""
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
