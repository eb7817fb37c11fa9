"""Choose NUMA nodes for memory under policy Static (memory-device 1.4, 1.8, 1.9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from podslice.machine.memory import MachineState
from podslice.machine.model import Machine
from podslice.node.memory.hints import Groups, Request, is_part_of_group, is_short
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import BestHint, HintSet
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, RefusalKind, StartError, StartKind
from podslice.values.quantity import hugepage_resource

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
    crash: bool = False,
) -> Resolved:
    """Return the nodes for an allocation: the affinity, a default without one, or a superset that is large enough.

    `whole_groups` extends a single node of a group as well; `keep_groups` refuses nodes that break one; `crash` raises
    `UpstreamDefectError` for a node that lacks a table of a requested resource. Raises `AdmissionError` with upstream's
    text.
    """
    proven = True
    if affinity.mask is None:
        affinity, proven = _require(_best(hints(), 0), _NO_DEFAULT, _NO_PREFERRED_DEFAULT, preferred=affinity.preferred)
    # Free memory is checked without what may be reused, so a container that only fits by reuse is extended
    # (memory-device 1.8).
    mask = affinity.mask or 0
    if is_short(machine, mask, request, crash=crash) or (whole_groups and is_part_of_group(machine, mask)):
        affinity, surely = _require(
            _best(hints(), mask), _NO_EXTENSION, _NO_PREFERRED_EXTENSION, preferred=affinity.preferred
        )
        mask, proven = affinity.mask or 0, proven and surely
    if keep_groups and mask & (mask - 1) and Groups.of(machine).is_violated_by(mask):
        raise AdmissionError(_VIOLATED)
    return Resolved(mask, proven)


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
