"""This node's pods from the API server: list, watch, and relist-and-diff whenever the watch cannot go on.

`ApiServer` is the small interface; `HTTPApiServer` talks to a real one with the in-cluster service account or a
kubeconfig, `FakeApiServer` is for tests. `ApiSource` keeps the pods and is a `PodSource`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Protocol

import msgspec

from podslice.agent.identity import HASH_ANNOTATION, Identity
from podslice.core.errors import InputError
from podslice.core.pod.spec import Pod, pod_from_dict
from podslice.wire.nri import BackOff

WATCH_SECONDS = 300
PAGE = 500
MOST_PODS = 10_000
_LONG_WATCH = 10.0
"""Seconds after which a watch without news is a quiet node's rather than a broken server's."""


class GoneError(Exception):
    """410: the version to continue from is too old."""


class ApiError(Exception):
    """The API server cannot be reached or refuses."""


class ApiServer(Protocol):
    """What the agent asks of an API server. Every call may raise `ApiError`."""

    async def list_pods(self, node: str) -> tuple[list[dict[str, Any]], str]:
        """The node's pods, and the version at which to start watching."""

    def watch_pods(self, node: str, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Changes (ADDED, MODIFIED, DELETED, BOOKMARK) from a version on, until the server ends the stream. Raises
        `GoneError`."""

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post a v1 Event."""


class ApiSource:
    """Pods of one node as the API server has them. `run` keeps them current for ever; `trouble` hears of failures."""

    def __init__(self, api: ApiServer, node: str, *, trouble: Callable[[str, str], None]) -> None:
        self.name = "apiServer"
        self.ready = False
        self.changed = asyncio.Event()
        self.relists = 0
        self._api = api
        self._node = node
        self._trouble = trouble
        self._pods: dict[str, Pod | InputError] = {}
        self._by_hash: dict[str, str] = {}

    def find(self, identity: Identity) -> Pod | None:
        """By UID; a static pod's mirror has another UID and names the kubelet's in an annotation."""
        pod = self._pods.get(identity.uid)
        if pod is None:
            pod = self._pods.get(self._by_hash.get(identity.uid, ""))
        if isinstance(pod, InputError):
            raise pod
        return pod

    async def run(self, back_off: BackOff | None = None) -> None:
        """List, watch, and list again after every failure, more and more slowly until a watch tells something."""
        back_off = back_off or BackOff(0.2, 30.0)
        while True:
            try:
                version = await self._list()
                while True:
                    told, version = await self._watch(version, back_off)
                    if not told:
                        await asyncio.sleep(back_off.next())
            except GoneError:
                pass
            except ApiError as error:
                self._trouble("apiServer", str(error))
            await asyncio.sleep(back_off.next())

    async def _list(self) -> str:
        """Replace what we know by a full list."""
        objects, version = await self._api.list_pods(self._node)
        listed: dict[str, dict[str, Any]] = {}
        for data in objects[:MOST_PODS]:
            listed[_uid(data)] = data
        for uid in set(self._pods) - set(listed):
            self._drop(uid)
        for data in listed.values():
            self._take(data)
        self.relists += 1
        self.ready = True
        self.changed.set()
        return version

    async def _watch(self, version: str, back_off: BackOff) -> tuple[bool, str]:
        """Follow one stream; returns whether it was of use, and the version to continue from."""
        clock = asyncio.get_running_loop().time
        began, told = clock(), False
        async with contextlib.aclosing(self._stream(version)) as events:
            async for kind, data in events:
                told = True
                back_off.reset()
                version = str((data.get("metadata") or {}).get("resourceVersion") or version)
                if kind == "DELETED":
                    self._drop(_uid(data))
                elif kind in ("ADDED", "MODIFIED") and (_uid(data) in self._pods or len(self._pods) < MOST_PODS):
                    self._take(data)
                    self.changed.set()
        if clock() - began > _LONG_WATCH:
            told = True
            back_off.reset()
        return told, version

    async def _stream(self, version: str) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        async for event in self._api.watch_pods(self._node, version):
            yield event

    def _take(self, data: dict[str, Any]) -> None:
        uid = _uid(data)
        metadata = data.get("metadata") or {}
        try:
            self._pods[uid] = pod_from_dict({"metadata": _metadata(metadata), "spec": data.get("spec") or {}})
        except InputError as error:
            self._pods[uid] = error.at(source=f"pod {metadata.get('namespace')}/{metadata.get('name')}")
        own = (metadata.get("annotations") or {}).get(HASH_ANNOTATION)
        if own:
            self._by_hash[str(own)] = uid

    def _drop(self, uid: str) -> None:
        self._pods.pop(uid, None)
        for own in [own for own, mirror in self._by_hash.items() if mirror == uid]:
            del self._by_hash[own]


def _uid(data: dict[str, Any]) -> str:
    return str((data.get("metadata") or {}).get("uid") or "")


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """The part worth keeping; annotations and managed fields can be megabytes."""
    return {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}


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

    async def list_pods(self, node: str) -> tuple[list[dict[str, Any]], str]:
        if self.down:
            raise ApiError("connection refused")
        return list(self.objects.values()), str(self._version)

    async def watch_pods(self, node: str, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        position = int(version)
        while True:
            if self.down:
                raise ApiError("connection reset")
            if position < self._oldest:
                raise GoneError
            for number, kind, data in list(self._history):
                if number > position:
                    position = number
                    yield kind, data
            async with self._news:
                if self._version == position or not any(number > position for number, _, _ in self._history):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await self._news.wait()

    async def create_event(self, event: dict[str, Any]) -> None:
        if self.down:
            raise ApiError("connection refused")
        self.events.append(event)


class HTTPApiServer:
    """A real API server, by the in-cluster service account (its token is read again when it was rotated) or
    KUBECONFIG. Raises `InputError` when there is no usable configuration."""

    def __init__(self, config: Any = None) -> None:
        import httpx2
        from lightkube.config.client_adapter import AsyncClient, ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError

        try:
            chosen = config or KubeConfig.from_env().get()
            assert chosen is not None
            params = ConnectionParams(timeout=httpx2.Timeout(10.0, read=WATCH_SECONDS + 30.0))
            self._client = AsyncClient(chosen, params)
        except (ConfigError, AssertionError, OSError) as error:
            raise InputError(
                f"no access to an API server: {error}",
                path="sources.apiServer",
                remedy="run in a pod, or set KUBECONFIG",
            ) from None
        self._errors = (httpx2.HTTPError, ConfigError, OSError)

    async def close(self) -> None:
        await self._client.aclose()

    async def list_pods(self, node: str) -> tuple[list[dict[str, Any]], str]:
        parameters = {"fieldSelector": f"spec.nodeName={node}", "limit": str(PAGE)}
        items: list[dict[str, Any]] = []
        while True:
            page = await self._get("/api/v1/pods", parameters)
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion") or "")
            parameters["continue"] = str(metadata["continue"])

    async def _get(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        try:
            response = await self._client.get(path, params=parameters, timeout=10.0)
        except self._errors as error:
            raise ApiError(f"{type(error).__name__}: {error}") from None
        if response.status_code == 410:
            raise GoneError
        if response.status_code != 200:
            raise ApiError(f"{path}: {response.status_code} {response.reason_phrase}")
        return _decoded(response.content)

    async def watch_pods(self, node: str, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        parameters = {
            "fieldSelector": f"spec.nodeName={node}",
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        try:
            async with self._client.stream("GET", "/api/v1/pods", params=parameters) as response:
                if response.status_code == 410:
                    raise GoneError
                if response.status_code != 200:
                    raise ApiError(f"watch: {response.status_code} {response.reason_phrase}")
                async for line in response.aiter_lines():
                    event = _decoded(line.encode())
                    data = event.get("object") or {}
                    if event.get("type") == "ERROR":
                        if data.get("code") == 410:
                            raise GoneError
                        raise ApiError(f"watch: {data.get('message')}")
                    yield str(event.get("type")), data
        except self._errors as error:
            raise ApiError(f"watch: {type(error).__name__}: {error}") from None

    async def create_event(self, event: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        try:
            response = await self._client.post(path, json=event, timeout=10.0)
        except self._errors as error:
            raise ApiError(f"{type(error).__name__}: {error}") from None
        if response.status_code not in (200, 201, 202):
            raise ApiError(f"{path}: {response.status_code} {response.reason_phrase}")


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ApiError(f"the answer is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError("the answer is no object")
    return value
