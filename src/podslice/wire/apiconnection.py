"""A connection to an API server over HTTP: bounded pieces of answers, and errors that tell a person where to look.

What the agent and the cluster's service have in common; what they ask is theirs (`agent.apiclient`,
`cluster.apiclient`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from podslice.core.errors import InputError
from podslice.k8s.podlist import ApiError, GoneError
from podslice.k8s.trust import trust_as_go
from podslice.wire.reach import answered, said_by, why

QUIET_SECONDS = 90.0
"""A server sends a bookmark about once a minute. Who says nothing for longer may be gone: then it is asked again."""
REQUEST_SECONDS = 10.0
PLAIN = {"Accept": "application/json", "Accept-Encoding": "identity"}
CONNECTIONS = 64
_KEPT_SECONDS = 60.0
"""A new connection costs more than twenty requests."""
_PIECE = 64 << 10
_LARGEST_ANSWER = 1 << 20
_LARGEST_PASSED_OVER = 4 << 20


class AnswerError(ApiError):
    """The server's answer is that it does not do what was asked; `code` is HTTP's."""

    def __init__(self, text: str, code: int) -> None:
        self.code = code
        super().__init__(text)


class ApiConnection:
    """By the in-cluster service account (its token is read again when it was rotated) or KUBECONFIG. `path` is the
    setting that asked for it. Raises `InputError` when there is no usable configuration."""

    def __init__(self, config: Any = None, *, quiet: float = QUIET_SECONDS, path: str) -> None:
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
            limits = httpx2.Limits(
                max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=_KEPT_SECONDS
            )
            self._client = httpx2.AsyncClient(**parameters, limits=limits)
            self._server = str(chosen.cluster.server)
        except (ConfigError, KeyError, OSError) as error:
            raise InputError(
                f"no access to an API server: {_said(error)}",
                path=path,
                remedy="run in a pod, or set KUBECONFIG",
            ) from None
        self._quiet = httpx2.ReadTimeout
        self._errors = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ConfigError, OSError, TimeoutError)

    async def close(self) -> None:
        await self._client.aclose()

    async def pieces(
        self, path: str, parameters: dict[str, str], *, ends: bool = False, **options: Any
    ) -> AsyncGenerator[bytes, None]:
        """The body of a good answer to GET; `ends`: silence ends it and is no error. Raises `ApiError`, `GoneError`."""
        with self.translated(path):
            async with self._client.stream("GET", path, params=parameters, headers=PLAIN, **options) as response:
                if response.status_code == 410:
                    raise GoneError
                try:
                    async for piece in pieces_of(response, path):
                        yield piece
                except self._quiet:
                    if not ends:
                        raise

    async def send(
        self, method: str, path: str, body: bytes, *, kind: str = "application/json", good: tuple[int, ...] = (200, 201)
    ) -> None:
        """A request whose answer matters only where it is none of the good ones. Raises `ApiError`, `AnswerError`."""
        headers = {"Content-Type": kind} | PLAIN
        with self.translated(path):
            request = self._client.stream(method, path, content=body, headers=headers, timeout=REQUEST_SECONDS)
            async with request as response:
                if response.status_code not in good:
                    raise AnswerError(f"{path}: {await answer_text(response)}", response.status_code)
                await _passed_over(response)

    async def ask(self, path: str, body: bytes | None = None, *, most: int = _LARGEST_ANSWER) -> bytes:
        """What is answered to a POST, to a GET without a body, of at most so many bytes. Raises `ApiError`,
        `AnswerError`."""
        headers, answer = PLAIN if body is None else {"Content-Type": "application/json"} | PLAIN, bytearray()
        method = "GET" if body is None else "POST"
        with self.translated(path):
            request = self._client.stream(method, path, content=body, headers=headers, timeout=REQUEST_SECONDS)
            async with request as response:
                if response.status_code not in (200, 201):
                    raise AnswerError(f"{path}: {await answer_text(response)}", response.status_code)
                async for piece in response.aiter_raw():
                    answer += piece
                    if len(answer) > most:
                        raise ApiError(f"{path}: the answer is larger than {most} bytes")
        return bytes(answer)

    @contextlib.contextmanager
    def translated(self, path: str) -> Iterator[None]:
        """What goes wrong with a connection is an `ApiError`."""
        try:
            yield
        except self._errors as error:
            raise ApiError(f"{self._server}{path}: {why(error)}") from None


def _said(error: Exception) -> str:
    """What a configuration lacks; the client names an entry that its context names and the file has not."""
    return f"there is no entry {error}" if isinstance(error, KeyError) else str(error)


async def _passed_over(response: Any) -> None:
    """Read an answer that nobody needs: a connection serves again only after all of it has come."""
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > _LARGEST_PASSED_OVER:
            return


async def answer_text(response: Any) -> str:
    """An answer that is none, in a line."""
    return answered(response.status_code, response.reason_phrase, await said_by(response))


async def pieces_of(response: Any, path: str) -> AsyncGenerator[bytes, None]:
    """The body of a good answer, a little at a time, with room for others in between. Raises `ApiError`."""
    if response.status_code != 200:
        raise ApiError(f"{path}: {await answer_text(response)}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiError(f"{path}: the answer is compressed, which was not asked for")
    async for chunk in response.aiter_raw():
        for start in range(0, len(chunk), _PIECE):
            yield chunk[start : start + _PIECE]
            await asyncio.sleep(0)
