"""An API server that exists only in memory and answers as the agent's interface asks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from podslice.agent.apiserver import Listing
from podslice.k8s.podlist import ApiError, Change, GoneError, decode_change, decode_list


def _uid(data: dict[str, Any]) -> str:
    return str((data.get("metadata") or {}).get("uid") or "")


class FakeApiServer:
    """An API server in memory. Changes made with `apply` and `delete` reach the watchers; `expire` forgets history
    and cuts the streams, so that watchers get 410; while `down` is set everything fails."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.down = False
        self._version = 1
        self._oldest = 0
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self._news = asyncio.Condition()

    async def apply(self, data: dict[str, Any]) -> None:
        known = _uid(data) in self.objects
        await self._record("MODIFIED" if known else "ADDED", data)
        self.objects[_uid(data)] = data

    async def delete(self, uid: str) -> None:
        await self._record("DELETED", self.objects.pop(uid))

    async def bookmark(self) -> None:
        await self._record("BOOKMARK", {"metadata": {}})

    async def expire(self) -> None:
        async with self._news:
            self._version += 1
            self._history.clear()
            self._oldest = self._version
            self._news.notify_all()

    async def _record(self, kind: str, data: dict[str, Any]) -> None:
        async with self._news:
            self._version += 1
            data.setdefault("metadata", {})["resourceVersion"] = str(self._version)
            self._history.append((self._version, kind, data))
            self._news.notify_all()

    async def list_pods(self, node: str) -> Listing:
        if self.down:
            raise ApiError("connection refused")
        page = decode_list([msgspec.json.encode({"items": list(self.objects.values())})], node)
        return Listing(list(page.pods), list(page.problems), str(self._version))

    async def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
        position = int(version)
        while True:
            if self.down:
                raise ApiError("connection reset")
            if position < self._oldest:
                raise GoneError
            for number, kind, data in list(self._history):
                if number > position:
                    position = number
                    yield decode_change(msgspec.json.encode({"type": kind, "object": data}), node)
            async with self._news:
                if self._version == position or not any(number > position for number, _, _ in self._history):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await self._news.wait()

    async def create_event(self, event: dict[str, Any]) -> None:
        if self.down:
            raise ApiError("connection refused")
        self.events.append(event)
