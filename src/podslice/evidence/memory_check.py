"""The amounts of memory in the Memory Manager's file against those of the machine that is given for it.

A kubelet starts only where the totals in the file are those that it measures itself, so the file has them to the byte.
Programs print them rounded, and a Node object has only their sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from podslice.evidence.contradiction import Contradiction
from podslice.machine.model import Machine
from podslice.node.checkpoints.content import Content
from podslice.node.checkpoints.names import MEMORY_STATE_FILE
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.assumption import Assumption

replace = msgspec.structs.replace
NODES_OF_STATE = "Is it the machine of these files? `numactl -H` on the node says (--from)"
_SUM_UNIT = 64 << 20
"""Bytes by which the sum may differ from the capacity of a Node object, which is often rounded by hand."""
_SPLIT = ("memory", "nodes")
"""Subjects of assumptions on which the share of each NUMA node rests."""


def find_memory_file(contents: Mapping[str, Content]) -> MemoryCheckpoint | None:
    """Return the content of the Memory Manager's file, None without one."""
    found = (content.checkpoint for content in contents.values())
    return next((one for one in found if isinstance(one, MemoryCheckpoint)), None)


def memory_totals(checkpoint: MemoryCheckpoint | None) -> dict[int, int]:
    """Return the bytes of memory of each NUMA node in a Memory Manager's file."""
    ledger = {} if checkpoint is None else checkpoint.machine_state or {}
    tables = {node: (state.memory_map or {}).get("memory") for node, state in ledger.items()}
    return {node: table.total for node, table in tables.items() if table is not None}


def take_memory(
    machine: Machine, contents: Mapping[str, Content], *, unit: int, assumed: Collection[Assumption], capacity: int = 0
) -> Machine | None:
    """Return the machine with the memory that the file gives its NUMA nodes, where the machine does not know it better:
    printed in units of `unit` bytes, or assumed. `capacity` is the sum by a Node object, 0 where it is not known. None
    where nothing is to be taken from the file."""
    totals = memory_totals(find_memory_file(contents))
    have = {node.id: node.memory for node in machine.nodes}
    if not totals or totals.keys() != have.keys() or totals == have:
        return None
    rounded = all(abs(have[node] - total) < unit for node, total in totals.items())
    split = any(one.about in _SPLIT for one in assumed)
    if not rounded and not (split and (not capacity or abs(capacity - sum(totals.values())) <= _SUM_UNIT)):
        return None
    return replace(machine, nodes=tuple(replace(node, memory=totals[node.id]) for node in machine.nodes))


def check_memory(contents: Mapping[str, Content], machine: Machine, *, measured: bool) -> tuple[Contradiction, ...]:
    """Return the NUMA nodes whose memory is not what the Memory Manager's file says. A kubelet does not start with such
    a file, unless memory may drift. `measured`: the machine was read from the node's own system, so that the file is in
    doubt."""
    have = {node.id: node.memory for node in machine.nodes}
    totals = memory_totals(find_memory_file(contents))
    wrong = {node: total for node, total in totals.items() if have.get(node, total) != total}
    if not wrong:
        return ()
    parts = [f"NUMA {node} {total} bytes, the machine {have[node]}" for node, total in sorted(wrong.items())]
    text = f"{MEMORY_STATE_FILE} gives {'; '.join(parts)}"
    if measured:
        return (Contradiction("memory-differs", "state", text),)
    return (Contradiction("memory-differs", "memory", text, NODES_OF_STATE),)
