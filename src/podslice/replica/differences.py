"""The differences between two states of one node, as lines for a log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from podslice.node.holding import Holding, holding_of
from podslice.node.state import NodeState
from podslice.values.cpuset import format_bits

MOST_LINES = 20


def differences(mine: NodeState, theirs: NodeState) -> tuple[str, ...]:
    """Return at most `MOST_LINES` lines; none for states that give every pod the same."""
    return tuple(islice(_lines(mine, theirs), MOST_LINES))


def _lines(mine: NodeState, theirs: NodeState) -> Iterator[str]:
    if mine.cpu.default != theirs.cpu.default:
        yield f"shared pool: {format_bits(mine.cpu.default)} here, {format_bits(theirs.cpu.default)} on the node"
    for uid in dict.fromkeys((*mine.pods, *theirs.pods)):
        here, there = _text(mine, uid), _text(theirs, uid)
        if here != there:
            # Cut, because UIDs and holdings of a lying node may be of any length.
            yield f"pod {uid[:80]}: {here} here, {there} on the node"
    if mine.memory.machine_state != theirs.memory.machine_state:
        yield "the memory ledgers differ"
    if mine.device.used != theirs.device.used:
        yield "the devices in use differ"


def _text(state: NodeState, uid: str) -> str:
    return _describe(holding_of(state, uid)) if uid in state.pods else "nothing"


def _describe(holding: Holding) -> str:
    parts = [_cpus(one.cpus) for one in holding.containers]
    parts += [] if holding.pod_cpus is None else [f"all of it {_cpus(holding.pod_cpus)}"]
    blocks = [block for one in holding.containers for block in one.blocks or ()] + list(holding.blocks or ())
    parts += [f"{one.size} {one.type} on {list(one.numa_affinity or ())}" for one in blocks]
    parts += [f"{name}={','.join(ids)}" for one in holding.containers for name, ids in one.devices]
    return f"({'; '.join(parts)})"[:300]


def _cpus(cpus: int | None) -> str:
    return "shared" if cpus is None else f"CPUs {format_bits(cpus)}"
