"""Publish the node's slices to the API server: at a start, when the machine or the policy changes, and when they were
deleted, as a kubelet does when it starts (cluster-integration A.2, A.4).

A slice whose fields the server drops, because a gate is off, is written once and not again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from podslice.dra.accounting import accounting_field, add_accounting
from podslice.dra.names import DRIVER
from podslice.dra.publish import SliceNames, plan_writes
from podslice.service.answers import ApiError
from podslice.service.listwatch import ListWatch
from podslice.service.pacing import BackOff

Json = dict[str, Any]
LOOK_SECONDS = 1.0
SETTLE_SECONDS = 2.0
"""Seconds to wait after a foreign change: a kubelet that starts deletes one slice after the other."""
_MEANING = {"allowMultipleAllocations", "consumesCounters", "sharedCounters"}
"""Fields without which the scheduler would allocate devices wrongly: as a whole, or twice."""


class SliceChange(NamedTuple):
    """An event of a watch: its kind, the slice, and the version to continue from."""

    kind: str
    slice: Json
    version: str


class SliceServer(Protocol):
    """The calls that the publisher makes to an API server. Every call may raise `ApiError`."""

    async def node_uid(self, node: str) -> str: ...
    async def server_version(self) -> str: ...
    async def device_fields(self) -> frozenset[str]: ...
    async def list_slices(self, node: str, driver: str) -> tuple[list[Json], str]: ...
    def watch_slices(self, node: str, driver: str, version: str) -> AsyncGenerator[SliceChange, None]: ...
    async def create_slice(self, one: Json) -> Json: ...
    async def replace_slice(self, one: Json) -> Json: ...
    async def delete_slice(self, one: Json) -> None: ...


class Publisher:
    """Keeps the slices of node `node`.

    `wanted`: returns their specs without generation, None while there is no state.
    `accounting`: devices have the field by which the scheduler counts claims, in the form that the server knows.
    `writes`: how many succeeded. `dropped`: fields that the server does not keep.
    """

    def __init__(
        self,
        api: SliceServer,
        node: str,
        wanted: Callable[[], list[Json] | None],
        *,
        trouble: Callable[[str, str], None],
        accounting: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.writes = 0
        self.published = False
        self.dropped: tuple[str, ...] = ()
        self._api = api
        self._node = node
        self._wanted = wanted
        self._trouble = trouble
        self._sleep = sleep
        self._accounting = accounting
        self._field = ""
        self._version = ""
        """Version of the server whose schema was read last."""
        self._unanswered = asyncio.Event()
        self._slices: dict[str, Json] = {}
        self._listed = asyncio.Event()
        self._stored: dict[int, tuple[Json, Json]] = {}
        self._uid = ""
        self._due = asyncio.Event()
        self._last: list[Json] | None = None
        self._unserved: list[Json] | None = None
        """Slices that this server cannot keep whole, and that would mislead the scheduler."""

    def look(self) -> None:
        """Compare the slices soon: something may have changed."""
        self._due.set()

    async def follow(self) -> None:
        """Follow all changes of the slices in the API server, for ever."""

        async def watch(version: str) -> AsyncIterator[SliceChange]:
            await self._look_for_another_server()
            # A generator that is left to the garbage collector would keep its connection open.
            async with contextlib.aclosing(self._api.watch_slices(self._node, DRIVER, version)) as changes:
                async for change in changes:
                    yield change

        watching = ListWatch(self._list, watch, self._take, failed=self._fail, sleep=self._sleep)
        await asyncio.gather(watching.run(), self._probe_again())

    async def _list(self) -> str:
        if self._accounting:
            await self._probe()
        found, version = await self._api.list_slices(self._node, DRIVER)
        self._slices = {one["metadata"]["name"]: one for one in found}
        # Another server may answer from now on, which may keep the fields.
        self._unserved = None
        self._listed.set()
        self.look()
        return version

    async def _look_for_another_server(self) -> None:
        """Read the schema again where another version answers: a watch ends without error when one of several servers
        is replaced."""
        if not self._accounting:
            return
        with contextlib.suppress(ApiError):
            version = await self._api.server_version()
            if self._version and version != self._version:
                await self._probe()
                self.look()
            self._version = version

    async def _probe(self) -> None:
        """Read from the server's schema which field for accounting it knows. While that fails, slices are published as
        before."""
        try:
            self._field = accounting_field(await self._api.device_fields())
        except Exception as error:
            self._fail(f"what form of accounting the API server knows cannot be read (dra.accounting): {error}")
            self._unanswered.set()
            return
        # Read, whatever the answer is: a schema without the field is an answer, and is not asked for again.
        self._unanswered.clear()
        if not self._field:
            self._fail(
                "the API server knows no form of accounting that we know: claims are not counted (dra.accounting)"
            )

    async def _probe_again(self) -> None:
        back_off = BackOff(1.0, 60.0)
        while True:
            await self._unanswered.wait()
            await self._sleep(back_off.next())
            await self._probe()
            if not self._unanswered.is_set():
                back_off.reset()

    def _take(self, change: SliceChange) -> None:
        # Bookmarks have a version and no name.
        name = change.slice.get("metadata", {}).get("name", "")
        if not name:
            return
        known = self._slices.get(name)
        if change.kind == "DELETED":
            self._slices.pop(name, None)
        # Events of a watch may be older than the answer to our own write.
        elif known is None or _version(change.slice) >= _version(known):
            self._slices[name] = change.slice
        if change.kind == "DELETED" or known is None or known.get("spec") != change.slice.get("spec"):
            self.look()

    def _fail(self, cause: str) -> None:
        self._trouble("resourceSlices", cause)

    async def run(self, back_off: BackOff | None = None) -> None:
        """Write the slices that differ, for ever; waits grow after failures."""
        # The first list also finds out which form of accounting the server knows; slices written before would lack it.
        back_off = back_off or BackOff(1.0, 60.0)
        await self._listed.wait()
        while True:
            wanted = self._specs()
            if wanted is None or (wanted == self._last and not self._due.is_set()):
                await self._sleep(LOOK_SECONDS)
                continue
            if self._last is not None and wanted == self._last:
                # Nothing of ours has changed, so a foreign change woke us; more of them may follow.
                await self._sleep(SETTLE_SECONDS)
            # Before the writes, so that a change which arrives during them makes another round.
            self._due.clear()
            try:
                await self.publish(wanted)
            except ApiError as error:
                self._fail(str(error))
                self._due.set()
                self.published = False
                await self._sleep(back_off.next())
                continue
            self._last = wanted
            self.published = True
            back_off.reset()

    def _specs(self) -> list[Json] | None:
        wanted = self._wanted()
        return None if wanted is None else [add_accounting(one, self._field) for one in wanted]

    async def publish(self, wanted: list[Json]) -> None:
        """Make the server's slices these, or none where it drops fields that the scheduler needs. Raises `ApiError`."""
        await self._write([] if wanted == self._unserved else wanted)
        if wanted != self._unserved and any(one.rpartition(".")[2] in _MEANING for one in self.dropped):
            # Remembered, so that slices which this server cannot keep are not written and removed in turns.
            self._unserved = wanted
            self._fail(
                "nothing is offered to claims without these fields: turn the gate on, or change claims.devices in the "
                "policy"
            )
            await self._write([])

    async def _write(self, wanted: list[Json]) -> None:
        name = SliceNames(DRIVER, self._node)
        found, _ = await self._api.list_slices(self._node, DRIVER)
        self._slices = {one["metadata"]["name"]: one for one in found}
        plan = plan_writes(wanted, found, name, lambda index, spec: self._is_stored(index, wanted[index], spec))
        if not plan:
            return
        # The Node owns the slices, so they go with it. Its UID is read once, as the agent's pod goes with the Node,
        # too.
        self._uid = self._uid or await self._api.node_uid(self._node)
        # Deletes come first, so that the pool never has more slices of a generation than it announces.
        for one in plan.deletes:
            await self._api.delete_slice(one)
            self._slices.pop(one["metadata"]["name"], None)
            self.writes += 1
        replaced = await asyncio.gather(*(self._api.replace_slice(self._whole(one)) for one in plan.replaces))
        created = await asyncio.gather(*(self._api.create_slice(self._whole(one)) for one in plan.creates))
        dropped: set[str] = set()
        for one in (*replaced, *created):
            self.writes += 1
            self._slices[one["metadata"]["name"]] = one
            index = name.place(one["metadata"]["name"], len(wanted))
            if index is not None:
                self._stored[index] = wanted[index], _plain(one["spec"])
                dropped |= _missing(_plain(wanted[index]), _plain(one["spec"]), "")
        # A round that wrote nothing has learned nothing about the server's fields.
        if replaced or created:
            self._say_dropped(tuple(sorted(dropped)))

    def _is_stored(self, index: int, wanted: Json, spec: Json) -> bool:
        """Whether the server has our spec, or what it stored when we wrote that."""
        if _plain(spec) == _plain(wanted):
            return True
        # Servers fill in defaults and drop fields; comparing with what we sent would write such a slice for ever.
        sent, stored = self._stored.get(index, ({}, {}))
        return sent == wanted and stored == _plain(spec)

    def _say_dropped(self, gone: tuple[str, ...]) -> None:
        if gone and gone != self.dropped:
            self._trouble("resourceSlices", f"the API server does not keep {', '.join(gone)[:300]}: a gate is off")
        self.dropped = gone

    def _whole(self, one: Json) -> Json:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._uid, "controller": True}
        # With its version the server refuses a write over a newer object; managedFields are the server's own.
        kept = ("name", "generateName", "uid", "resourceVersion")
        metadata = {key: value for key, value in one["metadata"].items() if key in kept} | {"ownerReferences": [owner]}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": one["spec"]}


def _version(one: Json) -> int:
    text = str(one.get("metadata", {}).get("resourceVersion", ""))
    # Until release 1.35 the API promised no order of versions; those of etcd have always counted up.
    return int(text) if text.isdecimal() else 0


def _plain(spec: Json) -> Json:
    """Return a spec without the parts that change with every write."""
    return {**spec, "pool": {key: value for key, value in spec.get("pool", {}).items() if key == "name"}}


def _missing(wanted: Any, stored: Any, path: str) -> set[str]:
    """Return the paths of fields that were sent and not stored, without the names of devices."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        lost = {f"{path}.{key}".lstrip(".") for key in wanted if key not in stored}
        return lost.union(*(_missing(wanted[key], stored[key], f"{path}.{key}") for key in wanted if key in stored))
    if isinstance(wanted, list) and isinstance(stored, list):
        return set[str]().union(*(_missing(one, other, path) for one, other in zip(wanted, stored, strict=False)))
    return set()
