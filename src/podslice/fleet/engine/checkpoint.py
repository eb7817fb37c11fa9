"""Encode a cell in the middle of its run as bytes, and restore it: the restored run comes to the same result.

Every attribute of the parts of a run is saved, except those that come from the cell's inputs (`_NOT_SAVED`), so that a
new attribute cannot be forgotten; one that is not plain data is an error at once. The scheduler's ledgers and all memos
are not saved: ledgers are rebuilt from the running pods, and memos are computed again.

With profile `kubelet-1.36` nodes keep whole states, which are not plain data: such cells have no checkpoints and begin
anew.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from podslice.fleet.engine.alignment import Alignment
from podslice.fleet.engine.clock import Clock, EventKind, FleetEvent
from podslice.fleet.engine.live import LiveNodes
from podslice.fleet.engine.notes import FragmentNotes, Notes
from podslice.fleet.engine.pods import PodTable
from podslice.fleet.engine.refusals import Loops, ParkedPod
from podslice.fleet.scheduler.queue import PodQueue
from podslice.fleet.scheduler.watch import LoopWatch
from podslice.machine.memory import Block, MachineState
from podslice.node.answers import FleetState, PodHolding
from podslice.node.cpu.state import CPUState
from podslice.node.memory.state import MemoryState
from podslice.values.cpuset import Bits
from podslice.values.errors import PodsliceError

FORMAT = 6
"""Version of the encoding. Raise it whenever an attribute of a saved part is added, removed or renamed: attribute names
are part of the format."""
_NOT_SAVED: dict[type, frozenset[str]] = {
    Clock: frozenset({"_arrivals"}),
    PodQueue: frozenset(
        {"fleet", "workload", "options", "clock", "live", "pods", "popular", "fragmentation", "models", "policy",
         "scheduler", "loops", "watch", "alignment", "nrt", "_constrained",
         "_rooms", "_budgets"}
    ),
    PodTable: frozenset({"workload", "holding"}),
    Loops: frozenset({"_delay"}),
    LoopWatch: frozenset({"_scheduler", "_admits"}),
    Alignment: frozenset({"_classes", "_known"}),
    Notes: frozenset({"_queue", "_options", "_by_gpu", "_requests", "_all", "fragments"}),
    FragmentNotes: frozenset({"_queue"}),
}  # fmt: skip
"""Attributes by class that are given by the cell's inputs, or rebuilt from what is saved."""
_TUPLES = {one.__name__: one for one in (ParkedPod, FleetEvent)}


class NotPlainError(PodsliceError, TypeError):
    """Raised when an attribute of a run cannot be encoded as plain data."""


def can_checkpoint(queue: PodQueue) -> bool:
    """Whether the states of all nodes are plain data."""
    return all(state.named is None for state in queue.live.states)


def take_checkpoint(queue: PodQueue, notes: Notes) -> bytes:
    """Encode the run as it is between two events."""
    states = _States()
    live, pods = queue.live, queue.pods
    nodes = [states.add(kind, state) for kind, state in zip(live.kinds, live.states, strict=True)]
    nrt = None
    if queue.nrt is not None:
        seen = [states.add(live.kinds[node], state) for node, state in enumerate(queue.nrt.seen)]
        # States on their way to the scheduler may be older than any node's present state.
        coming = [(at, node, states.add(live.kinds[node], state)) for at, node, state in queue.nrt.coming]
        nrt = [seen, coming]
    data = {
        "parts": [_encode_part(part) for part in _parts(queue, notes)],
        "kinds": live.kinds,
        "closed": np.flatnonzero(live.columns.closed).tolist(),
        "gone": np.flatnonzero(~live.columns.domains.present).tolist(),
        "start": queue.scheduler.start,
        "log": live.columns.log.position,
        "states": states.encoded,
        "nodes": nodes,
        "nrt": nrt,
        "holdings": [[pod, _encode(one.cpus), one.blocks, _encode(one.devices)] for pod, one in pods.holding.items()],
    }
    return msgspec.msgpack.encode(data)


def restore_checkpoint(data: bytes, queue: PodQueue, notes: Notes) -> None:
    """Restore a run that has not begun. Raises `msgspec.DecodeError`, `LookupError`, `TypeError` and others for bytes
    that `take_checkpoint` did not make."""
    found = msgspec.msgpack.decode(data)
    # The queue was made from the same inputs, so everything that is not saved is there already.
    for part, saved in zip(_parts(queue, notes), found["parts"], strict=True):
        for name, value in saved.items():
            setattr(part, name, _decode(value))
    clock = queue.clock
    clock.now, clock.reached = _decode_event(clock.now), _decode_event(clock.reached)
    live, pods = queue.live, queue.pods
    pods.holding = {pod: _decode_holding(cpus, blocks, devices) for pod, cpus, blocks, devices in found["holdings"]}
    # Classes first: the states below belong to them.
    for node, kind in enumerate(found["kinds"]):
        if kind != live.kinds[node]:
            live.restart(node, kind)
    states = [_decode_state(live, *saved) for saved in found["states"]]
    for node, place in enumerate(found["nodes"]):
        live.set_state(node, states[place])
    closed = set(found["closed"])
    for node in np.flatnonzero(live.columns.closed).tolist():
        live.columns.set_closed(node, closed=False)
    for node in sorted(closed):
        live.columns.set_closed(node, closed=True)
    live.columns.domains.present[:] = True
    for node in found["gone"]:
        live.columns.domains.set_present(node, present=False)
    # Rebuild the ledgers after restarts and states: a restart moves a node to another class, and its load with it.
    live.booked[:] = [0, 0, 0, 0]
    for pod in sorted(pods.holding):
        live.book(pods.node[pod], queue.workload.shape[pod], pods.gpus[pod])
    # The log only has to continue at the same position: what it held is gone, and readers then take all nodes as
    # changed.
    live.columns.log.reset(found["log"])
    queue.scheduler.start = found["start"]
    if queue.nrt is not None:
        seen, coming = found["nrt"]
        queue.nrt.restore([states[one] for one in seen], deque((at, node, states[one]) for at, node, one in coming))


def _parts(queue: PodQueue, notes: Notes) -> Iterator[object]:
    yield from (queue.clock, queue, queue.pods, queue.loops, queue.watch, queue.alignment, notes)
    if notes.fragments is not None:
        yield notes.fragments


# States of nodes


class _States:
    """The distinct states of nodes, each encoded once and referred to by its position."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], int] = {}
        self.encoded: list[list[Any]] = []

    def add(self, kind: int, state: FleetState) -> int:
        """Return the position of a state, encoding it when it is new."""
        # Numbers of states are unique within a class only.
        key = kind, state.number
        if key not in self._places:
            self._places[key] = len(self.encoded)
            self.encoded.append([kind, _encode(state.cpus), state.machine, _encode(state.used)])
        return self._places[key]


def _decode_state(live: LiveNodes, kind: int, cpus: Any, machine: Any, used: Any) -> FleetState:
    """Return a state of class `kind` with its decoded parts, and everything else from the class."""
    start = live.fleet.classes[kind].state
    memory = MemoryState(msgspec.convert(machine, MachineState, strict=False))
    devices = dict(zip(start.device.pools, _decode(used), strict=True))
    device = replace(start.device, used={name: bits for name, bits in devices.items() if bits})
    return live.classes[kind].state_of(replace(start, cpu=CPUState(_decode(cpus)), memory=memory, device=device))


def _decode_holding(cpus: Any, blocks: Any, devices: Any) -> PodHolding:
    return PodHolding(_decode(cpus), msgspec.convert(blocks, tuple[tuple[Block, ...], ...]), _decode(devices))


def _decode_event(event: FleetEvent) -> FleetEvent:
    # The enum was encoded as its integer.
    return event._replace(kind=EventKind(event.kind))


# Plain data


def _encode_part(part: object) -> dict[str, Any]:
    """Return the saved attributes of a part by name. Raises `NotPlainError`."""
    left_out = _NOT_SAVED[type(part)]
    found = {}
    for name, value in vars(part).items():
        if name not in left_out:
            try:
                found[name] = _encode(value)
            except NotPlainError as error:
                raise NotPlainError(f"{type(part).__name__}.{name}: {error}") from None
    return found


def _encode(value: Any) -> Any:
    """Return the value as msgpack has it. Values that msgpack cannot tell apart become a list that begins with their
    kind."""
    kind = type(value)
    if value is None or kind in (bool, str, bytes):
        return value
    if isinstance(value, (int, np.integer)):
        # msgpack encodes neither numpy's integers nor those of more than 64 bits, such as CPU masks.
        return int(value) if -(1 << 63) <= value < 1 << 63 else ["i", f"{value:x}"]
    if kind is array:
        return ["a", value.tobytes()]
    if kind is np.ndarray:
        return ["v", value.dtype.str, list(value.shape), value.tobytes()]
    if kind is dict:
        return ["d", _encode_items(list(value)), _encode_items(list(value.values()))]
    if kind in (list, tuple):
        return ["l" if kind is list else "t", _encode_items(value)]
    if kind.__name__ in _TUPLES:
        return ["n", kind.__name__, _encode_items(value)]
    raise NotPlainError(f"{kind.__name__} is not plain data")


def _encode_items(values: Sequence[Any]) -> Any:
    """Encode whole numbers as one column; where some exceed 64 bits (CPU masks), as positions in a table of the
    distinct values."""
    if values and all(isinstance(value, int) and type(value) is not bool for value in values):
        try:
            return array("q", values).tobytes()
        except OverflowError:
            places: dict[Bits, int] = {}
            column = array("q", [places.setdefault(value, len(places)) for value in values])
            return {"table": [f"{one:x}" for one in places], "places": column.tobytes()}
    return [_encode(value) for value in values]


def _decode(value: Any) -> Any:
    """Return the value that `_encode` was given."""
    if not isinstance(value, list):
        return value
    kind = value[0]
    if kind == "i":
        return int(value[1], 16)
    if kind == "a":
        return _decode_column(value[1])
    if kind == "v":
        # Copied, because an array over a bytes object cannot be written.
        return np.frombuffer(value[3], dtype=value[1]).reshape(value[2]).copy()
    if kind == "d":
        return dict(zip(_decode_items(value[1]), _decode_items(value[2]), strict=True))
    if kind == "l":
        return _decode_items(value[1])
    if kind == "t":
        return tuple(_decode_items(value[1]))
    return _TUPLES[value[1]](*_decode_items(value[2]))


def _decode_items(data: Any) -> list[Any]:
    """Return the values that `_encode_items` was given."""
    if isinstance(data, bytes):
        return _decode_column(data).tolist()
    if isinstance(data, dict):
        known = [int(text, 16) for text in data["table"]]
        return [known[place] for place in _decode_column(data["places"])]
    return [_decode(value) for value in data]


def _decode_column(data: bytes) -> array[int]:
    column = array("q")
    column.frombytes(data)
    return column
