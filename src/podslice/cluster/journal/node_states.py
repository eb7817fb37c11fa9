"""NodeState objects of the API server: the state of nodes before their stream begins, or without one.

They are listed in pages and watched. A node's own stream wins over them (`Journals.seed`), and they confirm nothing: an
object has the state that the node had, not the one it has. Objects of nodes that are gone are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from podslice.cluster.apiclient import ClusterApi, ObjectData
from podslice.cluster.journal.journals import Journals
from podslice.cluster.object_table import ObjectTable, Trouble
from podslice.replica.events import Stamped, WholeState
from podslice.replica.nodestate import NODE_STATES, NamedState, read_node_name, read_node_state
from podslice.replica.rulebook import PreparedState, Rulebook
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import AnswerError
from podslice.values.errors import InputError

SWEEP_SECONDS = 60.0
_MOST_AT_ONCE = 100
_NOT_FOUND = 404


class SeenState:
    """A NodeState as it was last seen. `state` and its prepared form are dropped once they are applied."""

    __slots__ = ("name", "ready", "state")

    def __init__(self, node: str, state: Stamped | None, ready: PreparedState | str | None = None) -> None:
        self.name = node
        self.state, self.ready = state, ready


def node_states(api: ClusterApi, journals: Journals, *, trouble: Trouble, **options: Any) -> ObjectTable[SeenState]:
    """Return a table that seeds `journals` with the objects. A state is prepared in the journals' thread, and ignored
    where the node has a stream."""

    async def read(data: ObjectData) -> SeenState:
        try:
            name = read_node_name(data)
            if journals.has_stream(name):
                return SeenState(name, None)
            found, ready = await journals.run_in_thread(lambda rulebook: _read_and_prepare(bytes(data), rulebook))
        except InputError as error:
            raise ApiError(str(error)) from None
        if found.state is None:
            trouble(NODE_STATES, f"{found.node[:253]}: {found.problem}")
        return SeenState(name, found.state, ready)

    def take_in(old: SeenState | None, new: SeenState | None) -> None:
        if new is not None and new.state is not None:
            journals.seed(new.name, new.state, new.ready)
            new.state = new.ready = None
        elif new is None and old is not None and not journals.has_stream(old.name):
            # Its agent was taken away for good: nothing more is expected of it.
            journals.forget(old.name)

    return ObjectTable(
        api, NODE_STATES, "", read=read, key=lambda seen: seen.name, on_change=take_in, trouble=trouble, **options
    )


def _read_and_prepare(data: bytes, rulebook: Rulebook) -> tuple[NamedState, PreparedState | str | None]:
    """Read an object and prepare its state. Raises `InputError`."""
    found = read_node_state(data, rulebook.common.decode)
    event = None if found.state is None else found.state.event
    return found, rulebook.prepare(event) if isinstance(event, WholeState) else None


class GoneStates:
    """Removes NodeStates of nodes that are gone: that are missing twice, a minute apart, because an agent may write the
    object before its Node exists. `remove` deletes an object, and may raise `ApiError`."""

    def __init__(
        self,
        states: ObjectTable[SeenState],
        nodes: ObjectTable[Any],
        *,
        remove: Callable[[str], Awaitable[None]],
        trouble: Trouble,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._states, self._nodes, self._remove = states, nodes, remove
        self._trouble, self._sleep = trouble, sleep
        self._missed: set[str] = set()

    async def run(self) -> None:
        """Sweep every minute, for ever."""
        while True:
            await self._sleep(SWEEP_SECONDS)
            await self._sweep()

    async def _sweep(self) -> None:
        if not (self._states.ready and self._nodes.ready):
            return
        missing = self._states.objects.keys() - self._nodes.objects.keys()
        for name in sorted(missing & self._missed)[:_MOST_AT_ONCE]:
            try:
                await self._remove(name)
            except AnswerError as error:
                if error.code != _NOT_FOUND:
                    self._trouble(NODE_STATES, str(error))
            except ApiError as error:
                self._trouble(NODE_STATES, str(error))
                return
        self._missed = missing
