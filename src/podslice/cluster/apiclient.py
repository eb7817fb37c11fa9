"""The service's calls to an API server: list and watch of pods and nodes, Bindings, nominations, evictions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from podslice.replica.nodestate import NODE_STATES
from podslice.service.answers import (
    LARGEST_ITEM,
    ApiError,
    ItemStream,
    ListMetadata,
    ObjectChange,
    read_change,
    read_list_end,
)
from podslice.service.http.apiconnection import QUIET_SECONDS, REQUEST_SECONDS, AnswerError, ApiConnection

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
WATCH_SECONDS = 300
PAGE = 500
MOST_PAGES = 4000
LARGEST_PAGE = 256 << 20
"""Most bytes of a page. 500 objects of etcd's largest size would be three times as much."""
AT_ONCE = 4 << 20
"""Most bytes of a page that is decoded in one go, which takes up to 2.5 ms; a larger one is split as it arrives."""
_PIECE = 64 << 10
ObjectData: TypeAlias = "bytes | bytearray | msgspec.Raw"
"""An object as JSON."""
_RETRY_DELAYS = (0.05, 0.2, 0.6)
"""Seconds before each retry of a call; together less than kube-scheduler waits for bind."""
_RETRYABLE = (429, 500, 502, 503, 504)
_LONGEST_WAIT = 1
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
ROOM_ANNOTATION = "podslice.io/room"
"""Annotation of a Node: the Unix time at which room was last announced. Only its change matters, which is an event for
schedulers."""


class ObjectPage(NamedTuple):
    """Items of one answer to a list, the list's version, and the token of the next page, empty on the last."""

    items: list[ObjectData]
    version: str
    more: str


class ClusterApi(Protocol):
    """The calls of the service. Each may raise `ApiError`."""

    async def page(self, path: str, selector: str, more: str) -> ObjectPage: ...

    def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        """Yield changes from a version on, until the server ends the stream. Raises `GoneError`."""

    async def bind(self, binding: Binding) -> None:
        """Write a Binding. Raises `AnswerError` where the server refuses."""

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Write `status.nominatedNodeName`. Raises `AnswerError`."""

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool) -> None:
        """Evict a pod, or with `dry_run` only check. Raises `AnswerError`: 429 where a PodDisruptionBudget forbids
        it."""

    async def wake(self, node: str, value: str) -> None:
        """Change `ROOM_ANNOTATION` of a Node, so that schedulers try refused pods again. Raises `AnswerError`."""

    async def create_event(self, event: dict[str, Any]) -> None:
        """Create an Event. Raises `AnswerError`."""

    async def remove_node_state(self, node: str) -> None:
        """Delete the NodeState of a node. Raises `AnswerError`."""


class Binding(NamedTuple):
    """A pod on its way to a node; `annotations` are written with it."""

    namespace: str
    name: str
    uid: str
    node: str
    annotations: dict[str, str]


class _RawList(msgspec.Struct, frozen=True):
    metadata: ListMetadata
    items: list[msgspec.Raw] | None


class HTTPClusterApi:
    """The calls over HTTP; see `ApiConnection`."""

    def __init__(self, config: Any = None, *, quiet: float = QUIET_SECONDS) -> None:
        self._connection = ApiConnection(config, quiet=quiet, path="cluster")

    async def close(self) -> None:
        await self._connection.close()

    async def page(self, path: str, selector: str, more: str) -> ObjectPage:
        """Return one page of a list. Raises `ApiError`, `GoneError`."""
        parameters = {"limit": str(PAGE)} | ({"fieldSelector": selector} if selector else {})
        parameters |= {"continue": more} if more else {}
        async with contextlib.aclosing(self._connection.pieces(path, parameters, timeout=REQUEST_SECONDS)) as pieces:
            return await read_page(path, pieces)

    async def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        """Watch as `ClusterApi` says, with bookmarks."""
        parameters = {
            "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        } | ({"fieldSelector": selector} if selector else {})  # fmt: skip
        async with contextlib.aclosing(self._connection.lines(path, parameters, most=LARGEST_ITEM)) as lines:
            async for line in lines:
                for change in read_changes(line):
                    yield change

    async def ask(self, path: str, body: bytes) -> bytes:
        """Return the answer to a POST, such as a review. Raises `ApiError`."""
        return await self._connection.ask(path, body)

    async def read(self, path: str) -> bytes:
        """Return the answer to a GET. Raises `ApiError`."""
        return await self._connection.ask(path)

    async def bind(self, binding: Binding) -> None:
        """Write a Binding, with the UID as precondition: it never binds another pod of the same name."""
        path = f"/api/v1/namespaces/{binding.namespace}/pods/{binding.name}/binding"
        # The API server copies annotations of a Binding to the pod.
        metadata = {"name": binding.name, "uid": binding.uid, "annotations": binding.annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": binding.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._send_with_retry("POST", path, msgspec.json.encode(body), kind="application/json")

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Write `status.nominatedNodeName`, with the UID as precondition."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        body = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}
        await self._send_with_retry("PATCH", path, msgspec.json.encode(body), kind=STRATEGIC_MERGE)

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool) -> None:
        """Evict a pod, with the UID as precondition."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        options: dict[str, Any] = {"preconditions": {"uid": uid}} | ({"dryRun": ["All"]} if dry_run else {})
        metadata = {"name": name, "namespace": namespace}
        # Not repeated by `_send_with_retry`: a 429 is the answer of a PodDisruptionBudget here, not of a busy server.
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        await self._connection.send("POST", path, msgspec.json.encode(body))

    async def wake(self, node: str, value: str) -> None:
        """Write `ROOM_ANNOTATION` through the status subresource, which needs no right to change specifications of
        nodes."""
        body = {"metadata": {"annotations": {ROOM_ANNOTATION: value}}}
        await self._send_with_retry("PATCH", f"{NODES}/{node}/status", msgspec.json.encode(body), kind=STRATEGIC_MERGE)

    async def create_event(self, event: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        await self._connection.send("POST", path, msgspec.json.encode(event))

    async def remove_node_state(self, node: str) -> None:
        """Delete the NodeState of a node. Raises `AnswerError`."""
        await self._connection.send("DELETE", f"{NODE_STATES}/{node}", b"")

    async def _send_with_retry(self, method: str, path: str, body: bytes, *, kind: str) -> None:
        """Send a request, and retry a few times where the server is busy or away for a moment. A 409 after a call with
        an unknown outcome may be that call's own success: then the `ApiError` of that call is raised."""
        unknown: ApiError | None = None
        for wait in (*_RETRY_DELAYS, None):
            try:
                return await self._connection.send(method, path, body, kind=kind)
            except AnswerError as error:
                if error.code == 409 and unknown is not None:
                    raise unknown from None
                if error.code not in _RETRYABLE or wait is None:
                    raise
                # A 429 comes before any work; after another code the write may have been done.
                if error.code != 429:
                    unknown = ApiError(str(error))
                wait = max(wait, min(error.later, _LONGEST_WAIT))
            except ApiError as error:
                unknown = ApiError(str(error))
                if wait is None:
                    raise
            await asyncio.sleep(wait)
        raise AssertionError("the last try returns or raises")


async def list_pages(api: ClusterApi, path: str, selector: str) -> AsyncIterator[ObjectPage]:
    """Yield all objects, page by page; the last page has the version to watch from. Raises `ApiError`, also for a list
    that does not end."""
    more = ""
    for _ in range(MOST_PAGES):
        page = await api.page(path, selector, more)
        yield page
        if not page.more:
            return
        if page.more == more:
            raise ApiError(f"{path}: the list repeats itself: the same continue token twice")
        more = page.more
    raise ApiError(f"{path}: the list has more than {MOST_PAGES} pages")


async def read_page(path: str, pieces: AsyncIterator[bytes]) -> ObjectPage:
    """Read a page of a list. A usual one is decoded as a whole, which is fifty times as fast. A larger one, or one that
    is nested more deeply than any Kubernetes object, is split as it comes. Raises `ApiError`."""
    whole = bytearray()
    async for piece in pieces:
        whole += piece
        if len(whole) > AT_ONCE:
            break
    else:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            found = msgspec.json.decode(whole, type=_RawList)
            return ObjectPage(list(found.items or ()), found.metadata.version or "", found.metadata.more or "")
    return await _split_page(path, whole, pieces)


async def _split_page(path: str, begun: bytearray, pieces: AsyncIterator[bytes]) -> ObjectPage:
    """Read a page whose beginning is there already, item by item. Raises `ApiError`."""
    stream, items, size = ItemStream(within=2), list[ObjectData](), len(begun)
    while begun:
        items += [item for item in stream.feed(bytes(begun[:_PIECE])) if item is not None]
        del begun[:_PIECE]
        await asyncio.sleep(0)
    async for piece in pieces:
        size += len(piece)
        if size > LARGEST_PAGE:
            raise ApiError(f"{path}: a page of the list has more than {LARGEST_PAGE >> 20} MiB")
        items += [item for item in stream.feed(piece) if item is not None]
    try:
        end = read_list_end(stream.rest)
    except ApiError as error:
        raise ApiError(f"{path}: {error}") from None
    return ObjectPage(items, end.version, end.more)


def read_changes(line: bytes) -> list[ObjectChange]:
    """Read the event of a line. One that is nested more deeply than any Kubernetes object, or several on a line, are
    split first. Raises `ApiError`, `GoneError`."""
    try:
        return [read_change(line)]
    except ApiError:
        pass
    stream = ItemStream(within=0)
    found = [read_change(event) for event in stream.feed(line) if event is not None]
    if stream.rest.strip(b"0\r\n\t "):
        raise ApiError(f"watch: {bytes(stream.rest[:80])!r} is not an event")
    return found
