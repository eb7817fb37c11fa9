"""Choose NUMA nodes for memory under policy Static (memory-device 1.4, 1.8, 1.9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from podslice.machine.memory import MachineState
from podslice.machine.model import Machine
from podslice.node.memory.hints import Groups, Request, is_part_of_group, is_short, joint_nodes
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import BestHint, HintSet
from podslice.values.cpuset import Bits, format_bits, union
from podslice.values.errors import AdmissionError, RefusalKind, StartError, StartKind
from podslice.values.quantity import bytes_text, hugepage_resource
from podslice.values.reasons import MEMORY_GROUP

_NO_ROOM = StartKind(
    "no-room",
    "reservedMemory: {size} bytes of {resource} cannot be reserved on NUMA node {node}, which has {room} (reserve "
    "between 0 and that many, huge pages do not count as memory)",
)

_NO_DEFAULT = RefusalKind(
    "no-default-affinity",
    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
)
_NO_PREFERRED_DEFAULT = RefusalKind("no-preferred-default", "[memorymanager] failed to find the default preferred hint")
_NO_EXTENSION = RefusalKind(
    "no-extension", "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
)
_NO_PREFERRED_EXTENSION = RefusalKind(
    "no-preferred-extension", "[memorymanager] failed to find the extended preferred hint"
)
_GROUPED = RefusalKind(
    "memory-scattered",
    "[memorymanager] {nodes} {verb} enough free for {amounts}, but {groups}: NUMA nodes in use do not form a new group",
    MEMORY_GROUP,
)
_VIOLATED = RefusalKind("group-violated", "[memorymanager] preferred hint violates NUMA node allocation")


def check_reservation(machine: Machine, reserved: Mapping[int, Mapping[str, int]]) -> None:
    """Refuse reservations that a NUMA node cannot hold; upstream's arithmetic wraps and invents memory (memory-device
    4.9, 4.10).

    Raises `StartError`.
    """
    for node in machine.nodes:
        capacity = {hugepage_resource(pool.page_size_ki): pool.bytes for pool in node.hugepages}
        capacity["memory"] = node.memory - sum(pool.bytes for pool in node.hugepages)
        for name in sorted({"memory", *reserved.get(node.id, ())}):
            size, room = reserved.get(node.id, {}).get(name, 0), capacity.get(name, 0)
            if not 0 <= size <= room:
                facts = {"size": size, "resource": name, "node": node.id, "room": max(room, 0)}
                raise StartError("memoryManager", _NO_ROOM, **facts)


class Resolved(msgspec.Struct, frozen=True):
    """The nodes an allocation uses; `proven`: no fewer suffice."""

    mask: Bits
    proven: bool


def resolve(
    machine: MachineState,
    affinity: Hint,
    request: Request,
    hints: Callable[[], HintSet | None],
    *,
    whole_groups: bool,
    keep_groups: bool = True,
    names_groups: bool = True,
    crash: bool = False,
) -> Resolved:
    """Return the nodes for an allocation: the affinity, a default without one, or a superset that is large enough.

    `whole_groups` extends a single node of a group as well; `keep_groups` refuses nodes that break one; `names_groups`
    says so where nodes have enough together, but not as a group; `crash` raises `UpstreamDefectError` for a node that
    lacks a table of a requested resource. Raises `AdmissionError`, otherwise with upstream's text.
    """
    proven = True

    def require(within: Bits, none: RefusalKind, worse: RefusalKind) -> BestHint:
        found = _best(hints(), within)
        if found is None and names_groups:
            _check_groups(machine, request, within)
        return _require(found, none, worse, preferred=affinity.preferred)

    if affinity.mask is None:
        affinity, proven = require(0, _NO_DEFAULT, _NO_PREFERRED_DEFAULT)
    # Free memory is checked without what may be reused, so a container that only fits by reuse is extended
    # (memory-device 1.8).
    mask = affinity.mask or 0
    if is_short(machine, mask, request, crash=crash) or (whole_groups and is_part_of_group(machine, mask)):
        affinity, surely = require(mask, _NO_EXTENSION, _NO_PREFERRED_EXTENSION)
        mask, proven = affinity.mask or 0, proven and surely
    if keep_groups and mask & (mask - 1) and Groups.of(machine).is_violated_by(mask):
        raise AdmissionError(_VIOLATED)
    return Resolved(mask, proven)


def _check_groups(machine: MachineState, request: Request, within: Bits) -> None:
    """Refuse a request that some NUMA nodes, those `within` among them, could hold if nodes in use could be combined
    freely. Raises `AdmissionError`."""
    mask = joint_nodes(machine, request, within)
    if not mask:
        return
    members = Groups.of(machine).members
    parts = [group for group in members if group & mask and group != mask]
    alone = union(group for group in parts if not group & (group - 1))
    texts = [f"{_nodes_text(group)} are in use together" for group in sorted(parts) if group & (group - 1)]
    if alone:
        texts.insert(0, f"{_nodes_text(alone)} {'are' if alone & (alone - 1) else 'is'} in use alone")
    raise AdmissionError(
        _GROUPED,
        nodes=_nodes_text(mask),
        verb="together have" if mask & (mask - 1) else "has",
        amounts=", ".join(f"{bytes_text(amount)} {name}" for name, amount in request.items()),
        groups=" and ".join(texts),
    )


def _nodes_text(mask: Bits) -> str:
    return f"NUMA node{'s' if mask & (mask - 1) else ''} {format_bits(mask)}"


def _best(hints: HintSet | None, within: Bits) -> BestHint | None:
    return None if hints is None else hints.best(within)


def _require(found: BestHint | None, none: RefusalKind, worse: RefusalKind, *, preferred: bool) -> BestHint:
    """Return the hint, or raise `AdmissionError`: `none` where there is none, `worse` where a preferred one is
    required."""
    if found is None:
        raise AdmissionError(none)
    if preferred and not found.hint.preferred:
        raise AdmissionError(worse)
    return found
