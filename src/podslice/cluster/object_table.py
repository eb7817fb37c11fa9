"""Tables of the API server's objects, kept current by list, watch, and a new list after a 410.

A table reports one changed object at a time, after a new list too, where objects that are gone are reported as such. An
object that cannot be read is counted and skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from podslice.cluster.apiclient import NODES, PODS, RUNNING, ClusterApi, ObjectData, ObjectPage, list_pages
from podslice.cluster.log_lines import Log, NoLog
from podslice.cluster.packed_table import PackedTable
from podslice.replica.uids import pack_uid
from podslice.service.answers import ApiError
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod, read_node, read_pod
from podslice.service.listwatch import ListWatch
from podslice.service.pacing import BackOff, LoopTurn

LIST_SECONDS = 300.0


class Named(Protocol):
    """An object of a table."""

    @property
    def name(self) -> str: ...


V = TypeVar("V", bound=Named)
_KINDS = ("ADDED", "MODIFIED", "DELETED")
Trouble = Callable[[str, str], None]
"""Called with failures: where, and the problem."""


class ReadChange(NamedTuple):
    """A change of a watch. `found` is its object, None where there is none or it cannot be read."""

    kind: str
    found: Any
    version: str


class ObjectTable(Generic[V]):
    """Objects of one kind by key, in `objects`. `ready` since the first list; `relists` counts lists.

    - `read`: decodes an object. May await, and raise `ApiError`.
    - `on_change`: called with the old and the new object; one is None where the object came or went.
    - `after`: tables that are listed before this one, or have tried to.
    - `listed`: called with the time at which a list began, once it is taken in.
    """

    def __init__(
        self,
        api: ClusterApi,
        path: str,
        selector: str,
        *,
        read: Callable[[ObjectData], Awaitable[V]],
        key: Callable[[V], str],
        on_change: Callable[[V | None, V | None], None],
        trouble: Trouble,
        objects: MutableMapping[str, V] | None = None,
        after: Sequence[ObjectTable[Any]] = (),
        listed: Callable[[float], None] | None = None,
        log: Log | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.objects: MutableMapping[str, V] = {} if objects is None else objects
        self.tried = asyncio.Event()
        self._after, self._listed, self._clock = after, listed, clock
        self._log = log or NoLog()
        self.ready = False
        self.relists = 0
        self.unreadable = 0
        self._api, self._path, self._selector = api, path, selector
        self.on_change = on_change
        self._read, self._key, self._trouble, self._sleep = read, key, trouble, sleep

    async def run(self, back_off: BackOff | None = None) -> None:
        """Keep the table current, for ever."""
        for one in self._after:
            await one.tried.wait()
        following = ListWatch(self._list, self._watch, self._take, failed=self._report_failure, sleep=self._sleep)
        await following.run(back_off)

    def _report_failure(self, cause: str) -> None:
        self.tried.set()
        self._trouble(self._path, cause)

    async def _watch(self, version: str) -> AsyncIterator[ReadChange]:
        async for kind, data, seen in self._api.watch(self._path, self._selector, version):
            found = await self._read_or_none(data) if kind in _KINDS else None
            yield ReadChange(kind, found, seen)

    async def _list(self) -> str:
        """List all objects. Each page is taken in before the next is requested, so that a large cluster's list is never
        in memory as a whole. Objects that are not in the list are dropped, unless the table was empty."""
        began, version = self._clock(), ""
        # Packed, because there may be hundreds of thousands of keys.
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
        took = round(self._clock() - began, 3)
        self._log.info("listed", path=self._path, objects=len(self.objects), lists=self.relists, seconds=took)
        if self._listed is not None:
            self._listed(began)
        return version

    async def _take_in(self, page: ObjectPage, seen: PackedTable | None) -> None:
        turn = LoopTurn()
        # Popped from the end, each object's bytes are freed as soon as it is taken in.
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
        """Add or replace an object, and report it."""
        key = self._key(new)
        old = self.objects.get(key)
        self.objects[key] = new
        self.on_change(old, new)

    def drop(self, key: str) -> None:
        """Drop an object, and report it."""
        old = self.objects.pop(key, None)
        if old is not None:
            self.on_change(old, None)


def synchronous(read: Callable[[ObjectData], V]) -> Callable[[ObjectData], Awaitable[V]]:
    async def reading(data: ObjectData) -> V:
        return read(data)

    return reading


PodChange = Callable[[ScheduledPod | None, ScheduledPod | None], None]
NodeChange = Callable[[ScheduledNode | None, ScheduledNode | None], None]


def pod_table(api: ClusterApi, on_change: PodChange, trouble: Trouble, **options: Any) -> ObjectTable[ScheduledPod]:
    """Return the table of pods that may still run, by UID. A decoded specification is kept while it is the same."""

    def report(old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        if old is not None and new is not None and new.has_same_spec(old):
            new.adopt(old)
        on_change(old, new)

    return ObjectTable(
        api,
        PODS,
        RUNNING,
        read=synchronous(read_pod),
        key=lambda pod: pod.uid,
        on_change=report,
        trouble=trouble,
        **options,
    )


def node_table(api: ClusterApi, on_change: NodeChange, trouble: Trouble, **options: Any) -> ObjectTable[ScheduledNode]:
    """Return the table of nodes by name. Changes that no scheduler reads, such as heartbeats, are not reported."""

    def report(old: ScheduledNode | None, new: ScheduledNode | None) -> None:
        if old != new:
            on_change(old, new)

    return ObjectTable(
        api,
        NODES,
        "",
        read=synchronous(read_node),
        key=lambda node: node.name,
        on_change=report,
        trouble=trouble,
        **options,
    )
