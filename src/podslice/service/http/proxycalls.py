"""The calls that `leanhttp` leaves to httpx: those through a proxy of the environment, and authorization by lightkube.

lightkube reads tokens from a file, and again when they were rotated, or gets them from a program.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from podslice.service.http.leanhttp import LARGEST_ANSWER, LeanAnswer

_PLAIN = {"Accept": "application/json", "Accept-Encoding": "identity"}


def needs_proxy(server: str) -> bool:
    """Whether the environment names a proxy for this server."""
    where, proxies = urlsplit(server), getproxies()
    return (where.scheme in proxies or "all" in proxies) and not proxy_bypass(where.netloc)


async def read_authorization(auth: Any, server: str, again: bool) -> str:  # noqa: FBT001
    """Return the Authorization header, empty without credentials; `again`: the last one was refused."""
    import httpx2

    if auth is None:
        return ""
    request = httpx2.Request("GET", server)
    flow = auth.async_auth_flow(request)
    async with contextlib.aclosing(flow):
        await anext(flow)
        # lightkube's flow reads the credentials again only after a 401, so it gets one.
        if again:
            with contextlib.suppress(StopAsyncIteration):
                await flow.asend(httpx2.Response(401, request=request))
    return str(request.headers.get("Authorization", ""))


class ProxyCalls:
    """Calls by httpx, which handles proxies. `parameters`: those of lightkube for its client."""

    def __init__(self, parameters: dict[str, Any], connections: int) -> None:
        import httpx2

        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx2.AsyncClient(**parameters, limits=limits)
        self._timeout = httpx2.Timeout
        self.errors: tuple[type[Exception], ...] = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError)
        self._late = httpx2.TimeoutException

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, kind: str = "application/json", timeout: float
    ) -> LeanAnswer:
        """Make a call. Raises `errors`."""
        found = bytearray()
        headers = _PLAIN | ({"Content-Type": kind} if body is not None else {})
        async with self._client.stream(method, path, content=body, headers=headers, timeout=timeout) as response:
            async for piece in self._raw(response):
                found += piece
                if len(found) > LARGEST_ANSWER:
                    raise ConnectionError(f"the answer is larger than {LARGEST_ANSWER} bytes")
            return LeanAnswer(response.status_code, response.reason_phrase, bytes(found), _later(response))

    async def stream(self, path: str, *, begin: float, quiet: float) -> AsyncGenerator[bytes | LeanAnswer, None]:
        """GET: yield the answer without its body, then the body as it arrives. Raises `errors`, `TimeoutError`."""
        timeout = self._timeout(begin, read=quiet)
        async with self._client.stream("GET", path, headers=_PLAIN, timeout=timeout) as response:
            yield LeanAnswer(response.status_code, response.reason_phrase, b"", _later(response))
            try:
                async for piece in self._raw(response):
                    yield piece
            except self._late as error:
                raise TimeoutError(str(error)) from error

    @staticmethod
    def _raw(response: Any) -> AsyncIterator[bytes]:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ConnectionError("the answer is compressed, which was not asked for")
        found: AsyncIterator[bytes] = response.aiter_raw()
        return found

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _later(response: Any) -> int:
    text = response.headers.get("Retry-After", "")
    return int(text) if text.isdigit() and len(text) < 5 else 0
