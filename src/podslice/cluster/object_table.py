"""The cluster's pods and nodes as the API server has them, kept current: list, watch, relist after a 410.

A table tells its listener what is new about one object at a time, after a relist too: what is gone is told as gone. An
object that cannot be read is counted and passed over; it hides no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from podslice.cluster.apiclient import NODES, PODS, RUNNING, ClusterApi, ObjectData, ObjectPage, list_pages
from podslice.cluster.loop_turn import LoopTurn
from podslice.cluster.packed_table import PackedTable
from podslice.replica.uids import pack_uid
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod, read_node, read_pod
from podslice.service.listwatch import ListWatch
from podslice.service.pacing import BackOff
from podslice.service.podlist import ApiError

LIST_SECONDS = 300.0


class Named(Protocol):
    """What a table can hold."""

    @property
    def name(self) -> str: ...


V = TypeVar("V", bound=Named)
_KINDS = ("ADDED", "MODIFIED", "DELETED")
Trouble = Callable[[str, str], None]
"""Hears of failures: where, and what."""


class ReadChange(NamedTuple):
    """A change of a watch with its object, None where it cannot be read or has none."""

    kind: str
    found: Any
    version: str


class ObjectTable(Generic[V]):
    """Objects of one kind by key, in `objects`. `read` may take its time, `on_change(old, new)` is told of each change; one
    of the two is None where the object came or went. `ready` since the first list; `relists` counts lists. Tables of
    `after` are listed before this one, or have tried to. `listed` hears when a list began, once it is taken in."""

    def __init__(
        self,
        api: ClusterApi,
        path: str,
        selector: str,
        *,
        read: Callable[[ObjectData], Awaitable[V]],
        key: Callable[[V], str],
        news: Callable[[V | None, V | None], None],
        trouble: Trouble,
        objects: MutableMapping[str, V] | None = None,
        after: Sequence[ObjectTable[Any]] = (),
        listed: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.objects: MutableMapping[str, V] = {} if objects is None else objects
        self.tried = asyncio.Event()
        self._after, self._listed, self._clock = after, listed, clock
        self.ready = False
        self.relists = 0
        self.unreadable = 0
        self._api, self._path, self._selector = api, path, selector
        self.on_change = news
        self._read, self._key, self._trouble, self._sleep = read, key, trouble, sleep

    async def run(self, back_off: BackOff | None = None) -> None:
        """Keep current for ever, whatever is answered."""
        for one in self._after:
            await one.tried.wait()
        following = ListWatch(self._list, self._watch, self._take, failed=self._failed, sleep=self._sleep)
        await following.run(back_off)

    def _failed(self, cause: str) -> None:
        self.tried.set()
        self._trouble(self._path, cause)

    async def _watch(self, version: str) -> AsyncIterator[ReadChange]:
        async for kind, data, seen in self._api.watch(self._path, self._selector, version):
            found = await self._read_or_none(data) if kind in _KINDS else None
            yield ReadChange(kind, found, seen)

    async def _list(self) -> str:
        """Each page is taken in before the next is asked for: what a large cluster lists is never here all at once.
        What went meanwhile is dropped; of the first list, before which nothing was known, nothing can have gone."""
        began, version = self._clock(), ""
        seen = PackedTable() if self.objects else None
        try:
            async with asyncio.timeout(LIST_SECONDS):
                async for page in list_pages(self._api, self._path, self._selector):
                    await self._take_in(page, seen)
                    version = page.version
        except TimeoutError:
            raise ApiError(f"{self._path}: the list takes longer than {LIST_SECONDS:.0f} seconds") from None
        if seen is not None:
            await self._drop_all_but(seen)
        self.relists += 1
        self.ready = True
        self.tried.set()
        if self._listed is not None:
            self._listed(began)
        return version

    async def _take_in(self, page: ObjectPage, seen: PackedTable | None) -> None:
        turn = LoopTurn()
        page.items.reverse()
        while page.items:
            found = await self._read_or_none(page.items.pop())
            if found is not None:
                if seen is not None:
                    seen.put(pack_uid(self._key(found)), b"")
                self.put(found)
            await turn.give_way()

    async def _drop_all_but(self, seen: PackedTable) -> None:
        turn, gone = LoopTurn(), list[str]()
        for key in self.objects:
            if pack_uid(key) not in seen:
                gone.append(key)
            await turn.give_way()
        for key in gone:
            self.drop(key)
            await turn.give_way()

    def _take(self, change: ReadChange) -> None:
        if change.found is None:
            return
        if change.kind == "DELETED":
            self.drop(self._key(change.found))
        else:
            self.put(change.found)

    async def _read_or_none(self, data: ObjectData) -> V | None:
        try:
            return await self._read(data)
        except ApiError as error:
            self.unreadable += 1
            self._trouble(self._path, str(error))
            return None

    def put(self, new: V) -> None:
        """An object is there, or is another."""
        key = self._key(new)
        old = self.objects.get(key)
        self.objects[key] = new
        self.on_change(old, new)

    def drop(self, key: str) -> None:
        """An object is gone."""
        old = self.objects.pop(key, None)
        if old is not None:
            self.on_change(old, None)


def synchronous(read: Callable[[ObjectData], V]) -> Callable[[ObjectData], Awaitable[V]]:
    async def reading(data: ObjectData) -> V:
        return read(data)

    return reading


PodChange = Callable[[ScheduledPod | None, ScheduledPod | None], None]
NodeChange = Callable[[ScheduledNode | None, ScheduledNode | None], None]


def pod_table(api: ClusterApi, news: PodChange, trouble: Trouble, **options: Any) -> ObjectTable[ScheduledPod]:
    """Pods that may still run, by UID. What is decoded of a specification is kept while it is the same."""

    def told(old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        if old is not None and new is not None and new.has_same_spec(old):
            new.adopt(old)
        news(old, new)

    return ObjectTable(
        api, PODS, RUNNING, read=synchronous(read_pod), key=lambda pod: pod.uid, news=told, trouble=trouble, **options
    )


def node_table(api: ClusterApi, news: NodeChange, trouble: Trouble) -> ObjectTable[ScheduledNode]:
    """Nodes by name. News that change nothing for a scheduler, such as heartbeats, are not told."""

    def told(old: ScheduledNode | None, new: ScheduledNode | None) -> None:
        if old != new:
            news(old, new)

    return ObjectTable(
        api, NODES, "", read=synchronous(read_node), key=lambda node: node.name, news=told, trouble=trouble
    )
