"""A cell in the middle of its run as bytes, and back: what went on goes on, to the same end.

Whatever the parts of a run keep is taken, but for what they have of the cell's inputs (`_OF_INPUTS`), so that a new
attribute is never forgotten; one that cannot be told as plain data is an error at once. The scheduler's ledgers and all
that is remembered are not taken: ledgers are made again of the pods that run, and what is forgotten is computed again.

With profile `kubelet-1.36` nodes keep whole states, which are no plain data: such cells begin anew.
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

FORMAT = 6
_OF_INPUTS: dict[type, frozenset[str]] = {
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
_TUPLES = {one.__name__: one for one in (ParkedPod, FleetEvent)}


class NotPlainError(TypeError):
    """Something in a run cannot be told as plain data."""


def can_be_taken(queue: PodQueue) -> bool:
    """True where the states of nodes are plain data."""
    return all(state.named is None for state in queue.live.states)


def taken(queue: PodQueue, notes: Notes) -> bytes:
    """The run as it is, between two events."""
    states = _States()
    live, pods = queue.live, queue.pods
    nodes = [states.place(kind, state) for kind, state in zip(live.kinds, live.states, strict=True)]
    nrt = None
    if queue.nrt is not None:
        seen = [states.place(live.kinds[node], state) for node, state in enumerate(queue.nrt.seen)]
        coming = [(at, node, states.place(live.kinds[node], state)) for at, node, state in queue.nrt.coming]
        nrt = [seen, coming]
    data = {
        "parts": [_plain_part(part) for part in _parts(queue, notes)],
        "kinds": live.kinds,
        "closed": np.flatnonzero(live.columns.closed).tolist(),
        "gone": np.flatnonzero(~live.columns.domains.there).tolist(),
        "start": queue.scheduler.start,
        "log": live.columns.log.position,
        "states": states.told,
        "nodes": nodes,
        "nrt": nrt,
        "holdings": [[pod, _plain(one.cpus), one.blocks, _plain(one.devices)] for pod, one in pods.holding.items()],
    }
    return msgspec.msgpack.encode(data)


def go_on(data: bytes, queue: PodQueue, notes: Notes) -> None:
    """Take a run that has not begun to where it was. Raises `msgspec.DecodeError` and others for what `taken` did not
    make."""
    found = msgspec.msgpack.decode(data)
    for part, told in zip(_parts(queue, notes), found["parts"], strict=True):
        for name, value in told.items():
            setattr(part, name, _back(value))
    clock = queue.clock
    clock.now, clock.reached = _event(clock.now), _event(clock.reached)
    live, pods = queue.live, queue.pods
    pods.holding = {pod: _holding(cpus, blocks, devices) for pod, cpus, blocks, devices in found["holdings"]}
    for node, kind in enumerate(found["kinds"]):
        if kind != live.kinds[node]:
            live.restart(node, kind)
    states = [_state(live, *told) for told in found["states"]]
    for node, place in enumerate(found["nodes"]):
        live.go_to(node, states[place])
    closed = set(found["closed"])
    for node in np.flatnonzero(live.columns.closed).tolist():
        live.columns.close(node, closed=False)
    for node in sorted(closed):
        live.columns.close(node, closed=True)
    live.columns.domains.there[:] = True
    for node in found["gone"]:
        live.columns.domains.come(node, there=False)
    live.booked[:] = [0, 0, 0, 0]
    for pod in sorted(pods.holding):
        live.book(pods.node[pod], queue.workload.shape[pod], pods.gpus[pod])
    live.columns.log.restart(found["log"])
    queue.scheduler.start = found["start"]
    if queue.nrt is not None:
        seen, coming = found["nrt"]
        queue.nrt.go_to([states[one] for one in seen], deque((at, node, states[one]) for at, node, one in coming))


def _parts(queue: PodQueue, notes: Notes) -> Iterator[object]:
    yield from (queue.clock, queue, queue.pods, queue.loops, queue.watch, queue.alignment, notes)
    if notes.fragments is not None:
        yield notes.fragments


# States of nodes


class _States:
    """States of nodes, each once, by place."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], int] = {}
        self.told: list[list[Any]] = []

    def place(self, kind: int, state: FleetState) -> int:
        """Where a state of a class is."""
        key = kind, state.number
        if key not in self._places:
            self._places[key] = len(self.told)
            self.told.append([kind, _plain(state.cpus), state.machine, _plain(state.used)])
        return self._places[key]


def _state(live: LiveNodes, kind: int, cpus: Any, machine: Any, used: Any) -> FleetState:
    start = live.fleet.classes[kind].state
    memory = MemoryState(msgspec.convert(machine, MachineState, strict=False))
    devices = dict(zip(start.device.pools, _back(used), strict=True))
    device = replace(start.device, used={name: bits for name, bits in devices.items() if bits})
    return live.classes[kind].state_of(replace(start, cpu=CPUState(_back(cpus)), memory=memory, device=device))


def _holding(cpus: Any, blocks: Any, devices: Any) -> PodHolding:
    return PodHolding(_back(cpus), msgspec.convert(blocks, tuple[tuple[Block, ...], ...]), _back(devices))


def _event(event: FleetEvent) -> FleetEvent:
    return event._replace(kind=EventKind(event.kind))


# Plain data


def _plain_part(part: object) -> dict[str, Any]:
    left_out = _OF_INPUTS[type(part)]
    found = {}
    for name, value in vars(part).items():
        if name not in left_out:
            try:
                found[name] = _plain(value)
            except NotPlainError as error:
                raise NotPlainError(f"{type(part).__name__}.{name}: {error}") from None
    return found


def _plain(value: Any) -> Any:
    """Data that msgpack has: what is not plain there is a list that begins with what it is."""
    kind = type(value)
    if value is None or kind in (bool, str, bytes):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value) if -(1 << 63) <= value < 1 << 63 else ["i", f"{value:x}"]
    if kind is array:
        return ["a", value.tobytes()]
    if kind is np.ndarray:
        return ["v", value.dtype.str, list(value.shape), value.tobytes()]
    if kind is dict:
        return ["d", _plain_items(list(value)), _plain_items(list(value.values()))]
    if kind in (list, tuple):
        return ["l" if kind is list else "t", _plain_items(value)]
    if kind.__name__ in _TUPLES:
        return ["n", kind.__name__, _plain_items(value)]
    raise NotPlainError(f"{kind.__name__} is no plain data")


def _plain_items(values: Sequence[Any]) -> Any:
    """Whole numbers are a column, large ones (sets of CPUs) places in a table of those that differ."""
    if values and all(isinstance(value, int) and type(value) is not bool for value in values):
        try:
            return array("q", values).tobytes()
        except OverflowError:
            places: dict[Bits, int] = {}
            column = array("q", [places.setdefault(value, len(places)) for value in values])
            return {"table": [f"{one:x}" for one in places], "places": column.tobytes()}
    return [_plain(value) for value in values]


def _back(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind = value[0]
    if kind == "i":
        return int(value[1], 16)
    if kind == "a":
        return _column(value[1])
    if kind == "v":
        return np.frombuffer(value[3], dtype=value[1]).reshape(value[2]).copy()
    if kind == "d":
        return dict(zip(_items(value[1]), _items(value[2]), strict=True))
    if kind == "l":
        return _items(value[1])
    if kind == "t":
        return tuple(_items(value[1]))
    return _TUPLES[value[1]](*_items(value[2]))


def _items(told: Any) -> list[Any]:
    if isinstance(told, bytes):
        return _column(told).tolist()
    if isinstance(told, dict):
        known = [int(text, 16) for text in told["table"]]
        return [known[place] for place in _column(told["places"])]
    return [_back(value) for value in told]


def _column(data: bytes) -> array[int]:
    column = array("q")
    column.frombytes(data)
    return column
