"""Memory hints: the sets of NUMA nodes that could hold a container's memory and huge pages (memory-device 1.6).

All resources of a request share one set of hints. Unused nodes can be combined freely; nodes in use are taken alone or
as exactly the group they belong to. So there is a rule for the former, and a short list of the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from podslice.machine.memory import NO_TABLE, Block, MachineState
from podslice.node.topology.hint import enumerate_masks
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.needs import Need, all_met
from podslice.node.topology.search import ALONE, SearchBudget, Size, fewest, search_budget_over
from podslice.values.cpuset import Bits, bits_of, ids_of, iter_bits
from podslice.values.errors import UpstreamDefectError
from podslice.values.golang import U64

Request = Mapping[str, int]
"""Bytes by resource: `memory` and huge page resources."""
Reuse = Mapping[Bits, Request]
"""Bytes that init containers leave to the pod's next container, by exact mask and resource."""


class Groups(msgspec.Struct, frozen=True):
    """Groups of `nodes` that are used together. `used`: nodes with assignments. `grouped`: nodes that belong to a group
    of several. `members`: the used nodes of each group, by the mask of the group."""

    nodes: Bits
    used: Bits
    grouped: Bits
    members: Mapping[Bits, Bits]

    @classmethod
    def of(cls, machine: MachineState) -> Groups:
        """Return the groups in a machine's ledgers."""
        nodes = used = grouped = 0
        members: dict[Bits, Bits] = {}
        for node, state in machine.items():
            own = group = 1 << node
            nodes |= own
            if state.cells != [node]:
                group = bits_of(state.cells or ())
                if len(state.cells or ()) > 1:
                    grouped |= own
            if state.number_of_assignments > 0:
                used |= own
                members[group] = members.get(group, 0) | own
        return cls(nodes, used, grouped, members)

    def is_violated_by(self, mask: Bits) -> bool:
        """Whether a mask of several nodes contains one that is in use alone or in another group (1.6 e, 1.8.3)."""
        return mask & (mask - 1) != 0 and mask & self.used != mask & self.members.get(mask, 0)

    def is_split_by(self, mask: Bits) -> bool:
        """Whether a mask is a single node of a group (1.6 d)."""
        return mask & (mask - 1) == 0 and mask & self.grouped != 0


def memory_hints(
    machine: MachineState,
    request: Request,
    reuse: Reuse,
    *,
    crash: bool,
    wraps: bool = False,
    search_budget: SearchBudget | None = None,
) -> HintSet | None:
    """Return the hints that every requested resource shares; None when nothing fits.

    A set of nodes must be large enough when empty (this alone decides the smallest, preferred size), must respect the
    groups, and must have enough free. `crash` raises `UpstreamDefectError` for a resource that a node does not have;
    otherwise it counts as nothing. `wraps`: sums over nodes may exceed 64 bits (`sums_wrap`).
    """
    if not request:
        return None
    if crash:
        _check_tables(machine, request)
    if wraps:
        return _hints_with_wrapped_sums(machine, request, reuse)
    groups = Groups.of(machine)
    room = _Room(machine, request, groups.nodes)
    # By allocatable memory, not by free: what is in use never changes what is preferred (memory-device 1.6, step 2.c).
    smallest = ALONE if room.large else room.smallest(search_budget)
    if smallest is None:
        return None
    # A single node of a group is never a hint (memory-device 1.6, step 2.d).
    singles = room.alone & ~groups.grouped
    multis = []
    for mask in sorted(_candidates(room.nodes, groups, reuse)) if groups.grouped or reuse else ():
        if room.holds(mask, reuse.get(mask)) and not groups.is_violated_by(mask) and not groups.is_split_by(mask):
            if mask & (mask - 1):
                multis.append(mask)
            else:
                singles |= mask
    open_nodes = room.nodes & ~groups.used
    needs = room.needs
    # The rule is about sets of several nodes, and the whole of `open_nodes` must meet it (`HintSet`).
    if open_nodes & (open_nodes - 1) == 0 or not (open_nodes & room.alone or all_met(needs, open_nodes)):
        open_nodes = 0
    if not (singles or multis or open_nodes):
        return None
    return HintSet(
        tuple(sorted(machine)),
        smallest.nodes,
        singles,
        multis=tuple(multis),
        open_nodes=open_nodes,
        needs=needs,
        proven=smallest.proven,
        search_budget=search_budget,
    )


def fewest_nodes(machine: MachineState, request: Request, search_budget: SearchBudget | None = None) -> Size | None:
    """Return how many empty nodes are large enough for a request at least; None when even all are not."""
    return _Room(machine, request, bits_of(machine)).smallest(search_budget)


def joint_nodes(machine: MachineState, request: Request, within: Bits = 0) -> Bits:
    """Return the fewest nodes, those `within` among them, that have the request free, whatever groups they belong to; 0
    where all nodes have too little."""
    nodes = bits_of(machine)
    room = _Room(machine, request, nodes)
    needs = room.free + room.sizes
    if not all_met(needs, nodes):
        return 0
    found = HintSet(tuple(sorted(machine)), 1, room.alone, open_nodes=nodes, needs=needs).best(within)
    return 0 if found is None else found.hint.mask or 0


class _Room:
    """Room of a machine's nodes for one request: `sizes` when empty, `free` as they are; `large` are the nodes that
    would suffice alone when empty, `alone` those that do suffice."""

    def __init__(self, machine: MachineState, request: Request, nodes: Bits) -> None:
        self._machine = machine
        self._request = request
        self.nodes = nodes
        small = short = 0
        overfull = False
        needs = []
        for name, amount in request.items():
            free = {}
            for node, state in machine.items():
                table = state.memory_map.get(name, NO_TABLE) if state.memory_map else NO_TABLE
                left, size = table.free, table.allocatable
                free[node] = left
                if size < amount:
                    small |= 1 << node
                if left < amount:
                    short |= 1 << node
                if left > size:
                    overfull = True
            needs.append(Need(free, amount))
        self.large = nodes & ~small
        self.alone = self.large & ~short
        self.free = tuple(needs)
        self.needs = self.free + self.sizes if overfull else self.free
        """Needs of a set of unused nodes: free memory, and size only where a node has more free than its size."""

    @cached_property
    def sizes(self) -> tuple[Need, ...]:
        """Amounts of empty nodes."""
        maps = {node: state.memory_map or {} for node, state in self._machine.items()}
        return tuple(
            Need({node: tables.get(name, NO_TABLE).allocatable for node, tables in maps.items()}, amount)
            for name, amount in self._request.items()
        )

    def smallest(self, search_budget: SearchBudget | None) -> Size | None:
        """Return how many nodes are large enough at least; None when even all are not."""
        return (
            ALONE
            if self.large
            else fewest(self.nodes, self.sizes, search_budget=search_budget_over(self.nodes, search_budget))
        )

    def holds(self, mask: Bits, reuse: Request | None) -> bool:
        """Whether the nodes of a mask are large enough and have, with what may be reused, enough free."""
        if not all(size.is_met_by(mask) for size in self.sizes):
            return False
        for name, need in zip(self._request, self.free, strict=True):
            left = reuse.get(name, 0) if reuse else 0
            if sum([need.values[node] for node in iter_bits(mask)]) + left < need.amount:
                return False
        return True


def _candidates(nodes: Bits, groups: Groups, reuse: Reuse) -> set[Bits]:
    """Return the sets that may qualify beside single and unused nodes: groups in use, and masks of reusable memory."""
    masks = {mask for mask in groups.members if mask & (mask - 1)}
    masks.update(reuse)
    return {mask for mask in masks if mask and not mask & ~nodes}


def sums_wrap(machine: MachineState) -> bool:
    """Whether the sum over some nodes may exceed 64 bits, which only wrapped-around reservations bring about (quirk
    `memory_reservation_wraps`)."""
    totals: dict[str, int] = {}
    for state in machine.values():
        for name, table in (state.memory_map or {}).items():
            totals[name] = totals.get(name, 0) + max(table.allocatable, table.free + table.reserved)
    return any(total > U64 for total in totals.values())


def _hints_with_wrapped_sums(machine: MachineState, request: Request, reuse: Reuse) -> HintSet | None:
    """Return the hints where sums over nodes wrap around at 64 bits: more nodes may then have less, so every set is
    tried."""
    groups = Groups.of(machine)
    smallest = len(machine)
    singles = 0
    multis = []
    for mask in enumerate_masks(tuple(sorted(machine))):
        if any(_size_of(machine, mask, name) < amount for name, amount in request.items()):
            continue
        smallest = min(smallest, mask.bit_count())
        if groups.is_violated_by(mask) or groups.is_split_by(mask):
            continue
        left = reuse.get(mask, {})
        if any(_free_on(machine, mask, name) + left.get(name, 0) & U64 < amount for name, amount in request.items()):
            continue
        if mask & (mask - 1):
            multis.append(mask)
        else:
            singles |= mask
    if not (singles or multis):
        return None
    return HintSet(tuple(sorted(machine)), smallest, singles, multis=tuple(multis))


def _check_tables(machine: MachineState, request: Request) -> None:
    for name in request:
        for node, state in machine.items():
            if name not in (state.memory_map or {}):
                raise _missing(node, name)


def _missing(node: int, name: str) -> UpstreamDefectError:
    return UpstreamDefectError("missing_hugepages_crash", f"NUMA node {node} has no {name}")


def is_short(machine: MachineState, mask: Bits, request: Request, *, crash: bool) -> bool:
    """Whether the nodes of a mask lack some of the request; `crash` as for `memory_hints`. Sums wrap at 64 bits as
    upstream's do."""
    nodes = ids_of(mask)
    short = False
    for name, amount in request.items():
        free = 0
        for node in nodes:
            state = machine.get(node)
            table = state.memory_map.get(name) if state is not None and state.memory_map else None
            if table is not None:
                free += table.free
            elif crash:
                raise _missing(node, name)
        short = short or free & U64 < amount
    return short


def is_too_large(machine: MachineState, request: Request) -> bool:
    """Whether all nodes together, if empty, would lack some of the request."""
    sizes = [state.memory_map or {} for state in machine.values()]
    return any(
        amount > sum(tables.get(name, NO_TABLE).allocatable for tables in sizes) for name, amount in request.items()
    )


def is_part_of_group(machine: MachineState, mask: Bits) -> bool:
    """Whether a mask is a single node that belongs to a group of several (1.6 d)."""
    state = machine.get(mask.bit_length() - 1) if mask & (mask - 1) == 0 else None
    return state is not None and len(state.cells or ()) > 1


def _free_on(machine: MachineState, mask: Bits, name: str) -> int:
    """Return the free bytes of a resource on the nodes of a mask; wraps at 64 bits."""
    tables = ((machine[node].memory_map or {}).get(name) for node in iter_bits(mask))
    return sum(table.free for table in tables if table is not None) & U64


def _size_of(machine: MachineState, mask: Bits, name: str) -> int:
    """Return the bytes of a resource on the nodes of a mask if they were empty; wraps at 64 bits."""
    tables = ((machine[node].memory_map or {}).get(name) for node in iter_bits(mask))
    return sum(table.allocatable for table in tables if table is not None) & U64


def hints_for_held(blocks: tuple[Block, ...], request: Request) -> ProviderHints:
    """Return hints from blocks that a container holds already (memory-device 1.7); None when they do not match the
    request."""
    # Upstream gives no preference for a request that has changed, instead of refusing it.
    if len(blocks) != len(request) or any(request.get(block.type) != block.size for block in blocks):
        return None
    return {block.type: HintSet.only(bits_of(block.numa_affinity or ())) for block in blocks}


def hints_for_pod(held: Mapping[str, tuple[Block, ...]], request: Request) -> ProviderHints:
    """Return as hint the nodes that all containers of a pod are on (memory-device 1.7); None when they are on different
    ones."""
    masks = {bits_of(block.numa_affinity or ()) for blocks in held.values() for block in blocks}
    if len(masks) != 1:
        return None
    return dict.fromkeys(request, HintSet.only(masks.pop()))
