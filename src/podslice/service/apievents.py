"""Kubernetes Events, sent in the background and limited in number."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections import OrderedDict
from typing import Any, Protocol, TypeVar

from podslice.service.identity import Identity

_About = tuple[str, str, str, str]
"""Kind, namespace, name and UID of the object that an event is about."""
_Key = TypeVar("_Key")
_MOST_WAITING = 256
_REMEMBERED = 1024
_REPEAT_AFTER = 300.0
_MINUTE, _MOST_HELD = 60.0, 20
LONGEST_MESSAGE = 1000


class EventTaker(Protocol):
    """The API call that creates an event."""

    async def create_event(self, event: dict[str, Any]) -> None: ...


class ApiEvents:
    """Sends events in the background; `run` does the work.

    The same event is sent once in five minutes. Of one pod and reason one event is sent a minute; messages that come
    meanwhile are held and become one event when the minute is over. While the API server is slow the newest events are
    dropped, and counted in `dropped`.
    """

    def __init__(self, api: EventTaker, node: str) -> None:
        self._api = api
        self._node = node
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)
        self._sent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._last: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._held: dict[tuple[str, str], list[str]] = {}
        self.dropped = 0

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
        """Send an event about a pod; `kind` is Normal or Warning."""
        self._emit(("Pod", identity.namespace, identity.name, identity.uid), kind, reason, message)

    def emit_node(self, kind: str, reason: str, message: str) -> None:
        """Send an event about the node; `kind` is Normal or Warning."""
        self._emit(("Node", "", self._node, self._node), kind, reason, message)

    def _emit(self, about: _About, kind: str, reason: str, message: str) -> None:
        now = asyncio.get_running_loop().time()
        said, topic = (about[3], reason, message), (about[3], reason)
        if now - self._sent.get(said, -_REPEAT_AFTER) < _REPEAT_AFTER:
            return
        # Noted before it is sent: an event that is dropped is not worth another try within five minutes.
        _remember(self._sent, said, now)
        wait = self._last.get(topic, -_MINUTE) + _MINUTE - now
        if about[0] != "Pod" or wait <= 0:
            self._send(about, kind, reason, message)
        elif topic in self._held:
            del self._held[topic][_MOST_HELD:]
            self._held[topic].append(message)
        elif len(self._held) < _REMEMBERED:
            self._held[topic] = [message]
            asyncio.get_running_loop().call_later(wait, self._release, about, kind, reason)
        else:
            self.dropped += 1

    def _release(self, about: _About, kind: str, reason: str) -> None:
        self._send(about, kind, reason, "; ".join(self._held.pop((about[3], reason))))

    def _send(self, about: _About, kind: str, reason: str, message: str) -> None:
        _remember(self._last, (about[3], reason), asyncio.get_running_loop().time())
        try:
            self._queue.put_nowait(self._event(about, kind, reason, message))
        except asyncio.QueueFull:
            self.dropped += 1

    def _event(self, about: _About, kind: str, reason: str, message: str) -> dict[str, Any]:
        what, namespace, name, uid = about
        # An event must be in the namespace of its object; those of nodes, which have none, are in `default`.
        involved = {"apiVersion": "v1", "kind": what, "name": name, "uid": uid}
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{uuid.uuid4().hex[:16]}"[:253], "namespace": namespace or "default"},
            "involvedObject": {**involved, "namespace": namespace} if namespace else involved,
            "type": kind,
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "source": {"component": "podslice", "host": self._node},
            "reportingComponent": "podslice",
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    async def run(self) -> None:
        """Send events for ever. One that the API server refuses is dropped: it is not worth a second call."""
        while True:
            event = await self._queue.get()
            try:
                await self._api.create_event(event)
            except Exception:
                self.dropped += 1


def _remember(times: OrderedDict[_Key, float], key: _Key, now: float) -> None:
    """Set a time, and forget the oldest beyond `_REMEMBERED`."""
    times[key] = now
    times.move_to_end(key)
    while len(times) > _REMEMBERED:
        times.popitem(last=False)
