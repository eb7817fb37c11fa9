"""A real API server over HTTP. Answers are read in pieces and within bounds; what they mean is `k8s.podlist`'s."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import msgspec

from podslice.agent.apiserver import AnswerError, Listing
from podslice.agent.reach import answered, said_by, why
from podslice.core.errors import InputError
from podslice.k8s.podlist import ApiError, Change, ChangeReader, GoneError, KnownPod, PageReader, PodListPage
from podslice.k8s.trust import trust_as_go

WATCH_SECONDS = 300
QUIET_SECONDS = 90.0
"""A server sends a bookmark about once a minute. Who says nothing for longer may be gone: then it is asked again."""
LIST_SECONDS = 60.0
REQUEST_SECONDS = 10.0
PAGE = 100
MOST_PAGES = 120
LARGEST_PAGE = 256 << 20
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_PIECE = 64 << 10
PLAIN = {"Accept": "application/json", "Accept-Encoding": "identity"}


def _said(error: Exception) -> str:
    """What a configuration lacks; the client names an entry that its context names and the file has not."""
    return f"there is no entry {error}" if isinstance(error, KeyError) else str(error)


class HTTPApiServer:
    """By the in-cluster service account (its token is read again when it was rotated) or KUBECONFIG. Raises
    `InputError` when there is no usable configuration."""

    def __init__(self, config: Any = None, *, quiet: float = QUIET_SECONDS) -> None:
        import httpx2
        from lightkube.config.client_adapter import ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError

        try:
            chosen = config or KubeConfig.from_env().get()
            if chosen is None or not chosen.user:
                raise ConfigError("Missing user")
            timeout = httpx2.Timeout(REQUEST_SECONDS, read=quiet)
            parameters = ConnectionParams(timeout=timeout).httpx_params(chosen)
            trust_as_go(parameters["verify"])
            self._client = httpx2.AsyncClient(**parameters)
            self._server = str(chosen.cluster.server)
        except (ConfigError, KeyError, OSError) as error:
            raise InputError(
                f"no access to an API server: {_said(error)}",
                path="sources.apiServer",
                remedy="run in a pod, or set KUBECONFIG",
            ) from None
        self._quiet = httpx2.ReadTimeout
        self._errors = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ConfigError, OSError, TimeoutError)

    async def close(self) -> None:
        await self._client.aclose()

    async def list_pods(self, node: str) -> Listing:
        """Raises `ApiError`, also for a list that does not end."""
        pods: list[KnownPod] = []
        problems: list[str] = []
        more = ""
        with self._translated("/api/v1/pods"):
            async with asyncio.timeout(LIST_SECONDS):
                for _ in range(MOST_PAGES):
                    page = await self._page(node, more)
                    pods += page.pods
                    problems += page.problems
                    if not page.more:
                        return Listing(pods, problems, page.version)
                    if page.more == more:
                        raise ApiError("/api/v1/pods: the list repeats itself: the same continue token twice")
                    more = page.more
        raise ApiError(f"/api/v1/pods: the list has more than {MOST_PAGES} pages")

    async def _page(self, node: str, more: str) -> PodListPage:
        parameters = {"fieldSelector": _selector(node), "limit": str(PAGE)} | ({"continue": more} if more else {})
        pieces = self._pieces("/api/v1/pods", parameters, timeout=REQUEST_SECONDS)
        return await read_page(pieces, node, LARGEST_PAGE, "/api/v1/pods: a page")

    async def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
        """Ends where the server does not say anything any more. Raises `ApiError`, `GoneError`."""
        parameters = {
            "fieldSelector": _selector(node),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        reader = ChangeReader(node)
        async with contextlib.aclosing(self._pieces("/api/v1/pods", parameters, ends=True)) as pieces:
            async for piece in pieces:
                for change in reader.feed(piece):
                    yield change

    async def _pieces(
        self, path: str, parameters: dict[str, str], *, ends: bool = False, **options: Any
    ) -> AsyncGenerator[bytes, None]:
        with self._translated(path):
            async with self._client.stream("GET", path, params=parameters, headers=PLAIN, **options) as response:
                if response.status_code == 410:
                    raise GoneError
                try:
                    async for piece in pieces_of(response, path):
                        yield piece
                except self._quiet:
                    if not ends:
                        raise

    async def find_pod(self, namespace: str, name: str) -> KnownPod | None:
        """By a list of one, for which the right to list pods is enough. Raises `ApiError`."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        pieces = self._pieces(path, {"fieldSelector": f"metadata.name={name}"}, timeout=REQUEST_SECONDS)
        page = await read_page(pieces, "", LARGEST_PAGE, f"{path}: the answer")
        return next((one for one in page.pods if one.name == name), None)

    async def create_event(self, event: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        with self._translated(path):
            request = self._client.stream("POST", path, json=event, timeout=REQUEST_SECONDS)
            async with request as response:
                if response.status_code not in (200, 201, 202):
                    raise ApiError(f"{path}: {await _answer(response)}")

    async def patch_pod_status(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        """As a kubelet does it. Raises `ApiError`, `AnswerError`."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        body, kind = msgspec.json.encode(patch), {"Content-Type": STRATEGIC_MERGE}
        with self._translated(path):
            request = self._client.stream("PATCH", path, content=body, headers=kind | PLAIN, timeout=REQUEST_SECONDS)
            async with request as response:
                if response.status_code != 200:
                    raise AnswerError(f"{path}: {await _answer(response)}", response.status_code)

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise ApiError(f"{self._server}{path}: {why(error)}") from None


async def _answer(response: Any) -> str:
    return answered(response.status_code, response.reason_phrase, await said_by(response))


async def pieces_of(response: Any, path: str) -> AsyncGenerator[bytes, None]:
    """The body of a good answer, a little at a time, with room for others in between. Raises `ApiError`."""
    if response.status_code != 200:
        raise ApiError(f"{path}: {await _answer(response)}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiError(f"{path}: the answer is compressed, which was not asked for")
    async for chunk in response.aiter_raw():
        for start in range(0, len(chunk), _PIECE):
            yield chunk[start : start + _PIECE]
            await asyncio.sleep(0)


async def read_page(pieces: AsyncGenerator[bytes, None], node: str, most: int, what: str) -> PodListPage:
    """The pods of `node` in an answer of at most so many bytes; `what` it is called in errors. Raises `ApiError`."""
    reader, size = PageReader(node), 0
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            size += len(piece)
            if size > most:
                raise ApiError(f"{what} is larger than {most} bytes")
            reader.feed(piece)
    return reader.finish()


def _selector(node: str) -> str:
    """Pods of this node that may still run; what has ended may be very many."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
