"""The agent's calls to an API server over HTTP. Answers are read in pieces and within bounds; `service.podlist` decodes
them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeVar

import msgspec

from podslice.agent.api_server.apiserver import Listing
from podslice.agent.dra.publisher import SliceChange
from podslice.api.pod.spec import from_dict
from podslice.dra.objects import ResourceClaim
from podslice.replica.nodestate import NODE_STATES, NodeStateStatus, new_node_state
from podslice.service.answers import ApiError, GoneError
from podslice.service.http.apiconnection import QUIET_SECONDS, REQUEST_SECONDS, AnswerError, ApiConnection
from podslice.service.http.leanhttp import with_query
from podslice.service.podlist import Change, ChangeReader, KnownPod, PageReader, PodListPage
from podslice.values.errors import InputError

WATCH_SECONDS = 300
LIST_SECONDS = 60.0
PAGE = 100
MOST_PAGES = 120
LARGEST_PAGE = 256 << 20
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
RESOURCES = "/apis/resource.k8s.io/v1"
COORDINATION = "/apis/coordination.k8s.io/v1"
_LARGEST_OBJECT = 4 << 20
T = TypeVar("T")


class _Identity(msgspec.Struct):
    uid: str = ""


class _NodeInfo(msgspec.Struct, rename="camel"):
    kubelet_version: str = ""


class _OwnNodeStatus(msgspec.Struct, rename="camel"):
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo)


class _NamedNode(msgspec.Struct):
    metadata: _Identity = msgspec.field(default_factory=_Identity)
    status: _OwnNodeStatus = msgspec.field(default_factory=_OwnNodeStatus)


class _SliceListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _DeviceSchema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _DeviceSchemas(msgspec.Struct):
    device: _DeviceSchema = msgspec.field(default_factory=_DeviceSchema, name="io.k8s.api.resource.v1.Device")


class _SchemaComponents(msgspec.Struct):
    schemas: _DeviceSchemas = msgspec.field(default_factory=_DeviceSchemas)


class _OpenAPI(msgspec.Struct):
    components: _SchemaComponents = msgspec.field(default_factory=_SchemaComponents)


class _ServerVersion(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _Slices(msgspec.Struct):
    items: list[dict[str, Any]]
    metadata: _SliceListMetadata = msgspec.field(default_factory=_SliceListMetadata)


class HTTPApiServer:
    """The agent's calls to the API server. Raises `InputError` where there is no usable configuration."""

    def __init__(self, config: Any = None, *, quiet: float = QUIET_SECONDS) -> None:
        self._connection = ApiConnection(config, quiet=quiet, path="sources.apiServer")

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def list_pods(self, node: str) -> Listing:
        """List the node's pods, page by page. Raises `ApiError`, also for a list that does not end."""
        pods: list[KnownPod] = []
        problems: list[str] = []
        more = ""
        with self._connection.translate_errors("/api/v1/pods"):
            async with asyncio.timeout(LIST_SECONDS):
                for _ in range(MOST_PAGES):
                    page = await self._page(node, more)
                    pods += page.pods
                    problems += page.problems
                    if not page.more:
                        return Listing(pods, problems, page.version)
                    # A server that repeats a page would otherwise be read up to MOST_PAGES times.
                    if page.more == more:
                        raise ApiError("/api/v1/pods: the list repeats itself: the same continue token twice")
                    more = page.more
        raise ApiError(f"/api/v1/pods: the list has more than {MOST_PAGES} pages")

    async def _page(self, node: str, more: str) -> PodListPage:
        parameters = {"fieldSelector": _selector(node), "limit": str(PAGE)} | ({"continue": more} if more else {})
        pieces = self._connection.pieces("/api/v1/pods", parameters, timeout=REQUEST_SECONDS)
        return await read_page(pieces, node, LARGEST_PAGE, "/api/v1/pods: a page")

    async def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
        """Yield changes of the node's pods until the server ends the watch or is silent. Raises `ApiError`,
        `GoneError`."""
        parameters = {
            "fieldSelector": _selector(node),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        reader = ChangeReader(node)
        async with contextlib.aclosing(self._connection.pieces("/api/v1/pods", parameters, ends=True)) as pieces:
            async for piece in pieces:
                for change in reader.feed(piece):
                    yield change

    async def find_pod(self, namespace: str, name: str) -> KnownPod | None:
        """Find a pod by name. Raises `ApiError`."""
        # A list of one: it needs no right but to list pods, which the agent has anyway.
        path = f"/api/v1/namespaces/{namespace}/pods"
        pieces = self._connection.pieces(path, {"fieldSelector": f"metadata.name={name}"}, timeout=REQUEST_SECONDS)
        page = await read_page(pieces, "", LARGEST_PAGE, f"{path}: the answer")
        return next((one for one in page.pods if one.name == name), None)

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post a v1 Event. Raises `ApiError`, `AnswerError`."""
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        await self._connection.send("POST", path, msgspec.json.encode(event), good=(200, 201, 202))

    async def patch_pod_status(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        """Patch a pod's status by a strategic merge, as a kubelet does. Raises `ApiError`, `AnswerError`."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        await self._connection.send("PATCH", path, msgspec.json.encode(patch), kind=STRATEGIC_MERGE, good=(200,))

    async def node_uid(self, node: str) -> str:
        """Return the UID of the Node. Raises `ApiError`."""
        return (await self._node(node)).metadata.uid

    async def kubelet_version(self, node: str) -> str:
        """Return the version of the Node's kubelet. Raises `ApiError`."""
        return (await self._node(node)).status.node_info.kubelet_version

    async def _node(self, node: str) -> _NamedNode:
        found = await self._object(f"/api/v1/nodes/{node}", _NamedNode)
        if found is None or not found.metadata.uid:
            raise ApiError(f"there is no Node {node}")
        return found

    async def read_topology(self, node: str) -> dict[str, Any] | None:
        """Return the node's NodeResourceTopology, None where there is none. Raises `ApiError`."""
        return await self._object(f"{TOPOLOGIES}/{node}", dict[str, Any])

    async def apply_topology(self, node: str, topology: dict[str, Any]) -> None:
        """Write the node's NodeResourceTopology by server-side apply, which keeps other writers' fields. Raises
        `ApiError`."""
        await self._apply(f"{TOPOLOGIES}/{node}", topology)

    async def apply_lease(self, lease: dict[str, Any]) -> None:
        """Create or renew a Lease by server-side apply. Raises `ApiError`."""
        metadata = lease["metadata"]
        await self._apply(f"{COORDINATION}/namespaces/{metadata['namespace']}/leases/{metadata['name']}", lease)

    async def _apply(self, path: str, one: dict[str, Any]) -> None:
        path += "?fieldManager=podslice&force=true"
        await self._connection.send("PATCH", path, msgspec.json.encode(one), kind=APPLY)

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """Return the ResourceClaim, None where there is none. Raises `ApiError`."""
        path = f"{RESOURCES}/namespaces/{namespace}/resourceclaims/{name}"
        found = await self._object(path, dict[str, Any])
        try:
            return None if found is None else from_dict(found, ResourceClaim)
        except InputError as error:
            raise ApiError(f"{path}: {error}") from None

    async def patch_claim_status(self, namespace: str, name: str, patch: list[dict[str, Any]]) -> None:
        """Patch a claim's status by JSON patch, which leaves all other fields as they are. Raises `ApiError`,
        `AnswerError`."""
        path = f"{RESOURCES}/namespaces/{namespace}/resourceclaims/{name}/status"
        await self._connection.send("PATCH", path, msgspec.json.encode(patch), kind=JSON_PATCH, good=(200,))

    async def server_version(self) -> str:
        """Return the version of the API server, empty where it has none. Raises `ApiError`."""
        found = await self._object("/version", _ServerVersion)
        return "" if found is None else found.git_version

    async def device_fields(self) -> frozenset[str]:
        """Return the fields of a slice's devices in the server's schema. Raises `ApiError`."""
        found = await self._object(f"/openapi/v3{RESOURCES}", _OpenAPI)
        return frozenset() if found is None else frozenset(found.components.schemas.device.properties)

    async def list_slices(self, node: str, driver: str) -> tuple[list[dict[str, Any]], str]:
        """Return the slices of a driver on a node, and the version to watch from. Raises `ApiError`."""
        path = with_query(f"{RESOURCES}/resourceslices", _slices_of(node, driver))
        found = await self._object(path, _Slices)
        if found is None:
            raise ApiError(f"{RESOURCES}: the server does not serve it")
        return found.items, found.metadata.resource_version

    async def watch_slices(self, node: str, driver: str, version: str) -> AsyncGenerator[SliceChange, None]:
        """Yield changes of a driver's slices on a node. Raises `ApiError`, `GoneError`."""
        parameters = _slices_of(node, driver) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        watch = self._connection.lines(f"{RESOURCES}/resourceslices", parameters, most=_LARGEST_OBJECT)
        async with contextlib.aclosing(watch) as lines:
            async for line in lines:
                yield decode_slice_change(line)

    async def create_slice(self, one: dict[str, Any]) -> dict[str, Any]:
        """Create a slice. Return it as the server has stored it. Raises `ApiError`."""
        return await self._write_slice("POST", f"{RESOURCES}/resourceslices", one)

    async def replace_slice(self, one: dict[str, Any]) -> dict[str, Any]:
        """Replace a slice. Return it as the server has stored it. Raises `ApiError`."""
        return await self._write_slice("PUT", f"{RESOURCES}/resourceslices/{one['metadata']['name']}", one)

    async def _write_slice(self, method: str, path: str, one: dict[str, Any]) -> dict[str, Any]:
        body = await self._connection.ask(path, msgspec.json.encode(one), method=method, most=_LARGEST_OBJECT)
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(f"{path}: {str(error)[:200]}") from None

    async def delete_slice(self, one: dict[str, Any]) -> None:
        """Delete a slice, unless it has changed since it was read. Raises `ApiError`."""
        metadata = one["metadata"]
        known = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": known})
        path = f"{RESOURCES}/resourceslices/{metadata['name']}"
        try:
            await self._connection.ask(path, body, method="DELETE", most=_LARGEST_OBJECT)
        except AnswerError as error:
            if error.code != 404:
                raise

    async def _object(self, path: str, kind: type[T]) -> T | None:
        """Read an object, None where there is none. Raises `ApiError`."""
        try:
            return msgspec.json.decode(await self._connection.ask(path, most=_LARGEST_OBJECT), type=kind)
        except AnswerError as error:
            if error.code != 404:
                raise
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(f"{path}: {str(error)[:200]}") from None

    async def write_node_state(self, node: str, status: NodeStateStatus) -> None:
        """Write the status of the node's NodeState. Raises `ApiError`."""
        # The object is created only where the patch finds none, so that every later write is one call.
        path, body = f"{NODE_STATES}/{node}/status", msgspec.json.encode({"status": status})
        try:
            await self._connection.send("PATCH", path, body, kind=MERGE, good=(200,))
        except AnswerError as error:
            if error.code != 404:
                raise
            await self._connection.send("POST", NODE_STATES, msgspec.json.encode(new_node_state(node)))
            await self._connection.send("PATCH", path, body, kind=MERGE, good=(200,))


async def read_page(pieces: AsyncGenerator[bytes, None], node: str, most: int, what: str) -> PodListPage:
    """Read an answer of at most `most` bytes with pods of `node`. `what`: its name in errors. Raises `ApiError`."""
    reader, size = PageReader(node), 0
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            size += len(piece)
            if size > most:
                raise ApiError(f"{what} is larger than {most} bytes")
            reader.feed(piece)
    return reader.finish()


def _slices_of(node: str, driver: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={node},spec.driver={driver}"}


def decode_slice_change(line: bytes) -> SliceChange:
    """Decode a line of a watch of slices. Raises `ApiError`, `GoneError`."""
    try:
        event = msgspec.json.decode(line, type=dict[str, Any])
        kind, found = str(event["type"]), event["object"]
        if kind == "ERROR":
            if found.get("code") == 410:
                raise GoneError
            raise ApiError(f"{RESOURCES}: {str(found.get('message'))[:200]}")
        version = str(found["metadata"]["resourceVersion"])
        return SliceChange(kind, {} if kind == "BOOKMARK" else found, version)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ApiError(f"{RESOURCES}: a watch that makes no sense: {str(error)[:200]}") from None


def _selector(node: str) -> str:
    """Return the field selector of the node's pods that have not ended; those that have may be very many."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
