"""A count of the service's writes to the API server: Bindings, nominations, evictions, annotations, Events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from podslice.cluster.apiclient import Binding, ClusterApi, ObjectPage
from podslice.service.answers import ObjectChange
from podslice.service.http.apiconnection import AnswerError


class CountedApi:
    """A `ClusterApi` that calls `counted` after each write, with its kind and `done`, `refused` or `failed`."""

    def __init__(self, api: ClusterApi, counted: Callable[[str, str], None]) -> None:
        self._api, self._counted = api, counted

    async def page(self, path: str, selector: str, more: str) -> ObjectPage:
        return await self._api.page(path, selector, more)

    def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        return self._api.watch(path, selector, version)

    async def bind(self, binding: Binding) -> None:
        await self._write("bind", self._api.bind(binding))

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        await self._write("nominate", self._api.nominate(namespace, name, uid, node))

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool) -> None:
        await self._write("evict", self._api.evict(namespace, name, uid, dry_run=dry_run))

    async def wake(self, node: str, value: str) -> None:
        await self._write("wake", self._api.wake(node, value))

    async def create_event(self, event: dict[str, Any]) -> None:
        await self._write("event", self._api.create_event(event))

    async def remove_node_state(self, node: str) -> None:
        await self._api.remove_node_state(node)

    async def _write(self, kind: str, call: Awaitable[None]) -> None:
        # Stays so for a call that is cancelled as well.
        result = "failed"
        try:
            await call
            result = "done"
        except AnswerError:
            result = "refused"
            raise
        finally:
            self._counted(kind, result)
