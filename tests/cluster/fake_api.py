"""An API server on paper: objects by path, with versions, watches, pages and 410."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from podslice.cluster.apiclient import Binding, ObjectPage
from podslice.service.answers import ApiError, GoneError, ObjectChange
from podslice.service.http.apiconnection import AnswerError

Json = dict[str, Any]


class FakeClusterApi:
    """`objects[path]` are what is there by key; `broken` fails every call with that text. `bound` and `nominated` are
    what was asked, `evicted` names with whether it was a dry run, `woken` nodes; `refuse` answers bind, nominate and
    wake with that code, `kept` evictions by name."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {}
        self.version = 1
        self.oldest = 0
        self.broken = ""
        self.refuse = 0
        self.per_page = 3
        self.bound: list[Binding] = []
        self.nominated: list[tuple[str, str]] = []
        self.evicted: list[tuple[str, bool]] = []
        self.kept: dict[str, int] = {}
        self.woken: list[str] = []
        self.events: list[Json] = []
        self.removed_states: list[str] = []
        self._log: list[tuple[int, str, str, Json]] = []
        self._news = asyncio.Event()

    def put(self, path: str, key: str, document: Json) -> None:
        kind = "MODIFIED" if key in self.objects.setdefault(path, {}) else "ADDED"
        self._change(path, kind, key, document)
        self.objects[path][key] = document

    def drop(self, path: str, key: str) -> None:
        self._change(path, "DELETED", key, self.objects[path].pop(key))

    def _change(self, path: str, kind: str, key: str, document: Json) -> None:
        self.version += 1
        document.setdefault("metadata", {})["resourceVersion"] = str(self.version)
        self._log.append((self.version, path, kind, json.loads(json.dumps(document))))
        self._news.set()

    def forget(self) -> None:
        """Versions up to now are too old, and all watches end."""
        self.oldest = self.version
        self._news.set()

    async def page(self, path: str, selector: str, more: str) -> ObjectPage:
        self._check()
        items = list(self.objects.get(path, {}).values())
        first = int(more or 0)
        rest = first + self.per_page
        shown = [bytearray(json.dumps(item).encode()) for item in items[first:rest]]
        return ObjectPage(shown, str(self.version), str(rest) if rest < len(items) else "")

    async def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        self._check()
        last = int(version)
        while True:
            if last < self.oldest:
                raise GoneError
            for number, where, kind, document in self._log:
                if number > last and where == path:
                    yield ObjectChange(kind, msgspec.Raw(json.dumps(document).encode()), str(number))
            last = self.version
            self._news.clear()
            await self._news.wait()
            self._check()

    def _check(self) -> None:
        if self.broken:
            raise ApiError(self.broken)

    async def bind(self, binding: Binding) -> None:
        self._check()
        if self.refuse:
            raise AnswerError("refused", self.refuse)
        self.bound.append(binding)

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        self._check()
        if self.refuse:
            raise AnswerError("refused", self.refuse)
        self.nominated.append((name, node))

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool) -> None:
        self._check()
        assert uid == f"uid-{name}"
        self.evicted.append((name, dry_run))
        if name in self.kept:
            raise AnswerError("refused", self.kept[name])

    async def wake(self, node: str, value: str) -> None:
        self._check()
        if self.refuse:
            raise AnswerError("refused", self.refuse)
        assert value.isdigit()
        self.woken.append(node)

    async def create_event(self, event: Json) -> None:
        self._check()
        self.events.append(event)

    async def remove_node_state(self, node: str) -> None:
        self._check()
        self.removed_states.append(node)
