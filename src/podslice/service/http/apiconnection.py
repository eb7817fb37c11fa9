"""A connection to an API server over HTTP: bounded pieces of answers, and errors that tell a person where to look.

What the agent and the cluster's service have in common; what they ask is theirs (`agent.api_server.apiclient`,
`cluster.apiclient`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Protocol

from podslice.service.http.leanhttp import LeanAnswer, LeanClient, with_query
from podslice.service.http.lines import LineCutter, LongLineError
from podslice.service.http.proxycalls import ProxyCalls, authorization_of, proxied
from podslice.service.podaccess import pod_access
from podslice.service.podlist import ApiError, GoneError
from podslice.service.reach import LARGEST_SAID, answered, said_by, why
from podslice.service.trust import trust_as_go
from podslice.values.errors import InputError

QUIET_SECONDS = 90.0
"""A server sends a bookmark about once a minute. Who says nothing for longer may be gone: then it is asked again."""
REQUEST_SECONDS = 10.0
LONGEST_SECONDS = 300.0
"""A whole answer that is not a watch, which may come a little at a time."""
PLAIN = {"Accept": "application/json", "Accept-Encoding": "identity"}
CONNECTIONS = 64
_PIECE = 64 << 10
_LARGEST_ANSWER = 1 << 20


class AnswerError(ApiError):
    """The server's answer is that it does not do what was asked; `code` is HTTP's, `later` the seconds after which it
    wants to be asked again, 0 where it does not say."""

    def __init__(self, text: str, code: int, *, later: int = 0) -> None:
        self.code, self.later = code, later
        super().__init__(text)


class ApiCalls(Protocol):
    """How calls are made. `errors`: what may go wrong beside `OSError` and `TimeoutError`."""

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    async def call(self, method: str, path: str, body: bytes | None, *, kind: str, timeout: float) -> LeanAnswer: ...

    def stream(self, path: str, *, begin: float, quiet: float) -> AsyncGenerator[bytes | LeanAnswer, None]: ...

    async def close(self) -> None: ...


class ApiConnection:
    """By the in-cluster service account (its token is read again when it was rotated) or KUBECONFIG. `path` is the
    setting that asked for it. Raises `InputError` when there is no usable configuration.

    Calls go the short way (`service.http.leanhttp`), or through the proxy that the environment names."""

    def __init__(self, config: Any = None, *, quiet: float = QUIET_SECONDS, path: str) -> None:
        self._quiet = quiet
        self._calls: ApiCalls
        try:
            access = None if config else pod_access(os.environ)
        except OSError as error:
            raise _no_access(error, path) from None
        if access is None or proxied(access.server):
            self._errors = self._configured(config, path)
            return
        self._server = access.server
        self._calls = LeanClient(access.server, access.context, access.token.header, limit=CONNECTIONS)
        self._errors = (*self._calls.errors, OSError, TimeoutError)

    def _configured(self, config: Any, path: str) -> tuple[type[Exception], ...]:
        """As a configuration says, which may do all that lightkube can; what may go wrong then."""
        from lightkube.config.client_adapter import ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError

        try:
            chosen = config or KubeConfig.from_env().get()
            if chosen is None or not chosen.user:
                raise ConfigError("Missing user")
            parameters = ConnectionParams().httpx_params(chosen)
            trust_as_go(parameters["verify"])
            self._server = str(chosen.cluster.server)
            if proxied(self._server):
                self._calls = ProxyCalls(parameters, CONNECTIONS)
            else:
                authorization = functools.partial(authorization_of, parameters["auth"], self._server)
                self._calls = LeanClient(self._server, parameters["verify"], authorization, limit=CONNECTIONS)
        except (ConfigError, KeyError, OSError, ValueError) as error:
            raise _no_access(error, path) from None
        return (*self._calls.errors, ConfigError, OSError, TimeoutError)

    async def close(self) -> None:
        await self._calls.close()

    async def pieces(
        self, path: str, parameters: dict[str, str], *, ends: bool = False, timeout: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The body of a good answer to GET; `ends`: silence ends it and is no error, `timeout`: seconds of silence that
        are one. Raises `ApiError`, `GoneError`."""
        quiet = self._quiet if timeout is None else timeout
        with self.translated(path):
            stream = self._calls.stream(with_query(path, parameters), begin=REQUEST_SECONDS + quiet, quiet=quiet)
            async with contextlib.aclosing(stream) as parts:
                head = await anext(parts)
                assert isinstance(head, LeanAnswer)
                if head.status == 410:
                    raise GoneError
                if head.status != 200:
                    said = b""
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(REQUEST_SECONDS):
                            async for part in parts:
                                said += part if isinstance(part, bytes) else b""
                                if len(said) >= LARGEST_SAID:
                                    break
                    raise AnswerError(f"{path}: {answered(head.status, head.phrase, said)}", head.status)
                loop = asyncio.get_running_loop()
                end = math.inf if ends else loop.time() + LONGEST_SECONDS
                try:
                    async for part in parts:
                        assert isinstance(part, bytes)
                        if loop.time() > end:
                            raise ApiError(f"{path}: the answer takes more than {LONGEST_SECONDS:.0f} s")
                        for start in range(0, len(part), _PIECE):
                            yield part[start : start + _PIECE]
                            await asyncio.sleep(0)
                except TimeoutError:
                    if not ends:
                        raise

    async def lines(self, path: str, parameters: dict[str, str], *, most: int) -> AsyncGenerator[bytes, None]:
        """What a watch says until it ends, an event a line of at most `most` bytes. Raises `ApiError`,
        `GoneError`."""
        cutter = LineCutter(most)
        async with contextlib.aclosing(self.pieces(path, parameters, ends=True)) as pieces:
            async for piece in pieces:
                try:
                    lines = cutter.feed(piece)
                except LongLineError:
                    raise ApiError(f"{path}: watch: an event is too large") from None
                for line in lines:
                    yield line

    async def send(
        self, method: str, path: str, body: bytes, *, kind: str = "application/json", good: tuple[int, ...] = (200, 201)
    ) -> None:
        """A request whose answer matters only where it is none of the good ones. Raises `ApiError`, `AnswerError`."""
        answer = await self.answer(method, path, body, kind=kind)
        if answer.status not in good:
            raise refusal(path, answer)

    async def ask(
        self, path: str, body: bytes | None = None, *, method: str = "", most: int = _LARGEST_ANSWER
    ) -> bytes:
        """What is answered to a POST, to a GET without a body, or to another `method`, of at most so many bytes. Raises
        `ApiError`, `AnswerError`."""
        answer = await self.answer(method or ("GET" if body is None else "POST"), path, body)
        if answer.status not in (200, 201):
            raise refusal(path, answer)
        if len(answer.body) > most:
            raise ApiError(f"{path}: the answer is larger than {most} bytes")
        return answer.body

    async def answer(self, method: str, path: str, body: bytes | None, *, kind: str = "application/json") -> LeanAnswer:
        """Whatever is answered. Raises `ApiError`."""
        with self.translated(path):
            return await self._calls.call(method, path, body, kind=kind, timeout=REQUEST_SECONDS)

    @contextlib.contextmanager
    def translated(self, path: str) -> Iterator[None]:
        """What goes wrong with a connection is an `ApiError`."""
        try:
            yield
        except self._errors as error:
            raise ApiError(f"{self._server}{path}: {why(error)}") from None


def refusal(path: str, answer: LeanAnswer) -> AnswerError:
    """What a server answered that does not do what was asked."""
    text = answered(answer.status, answer.phrase, answer.body[:LARGEST_SAID])
    return AnswerError(f"{path}: {text}", answer.status, later=answer.later)


def _no_access(error: Exception, path: str) -> InputError:
    return InputError(
        f"no access to an API server: {_said(error)}", path=path, remedy="run in a pod, or set KUBECONFIG"
    )


def _said(error: Exception) -> str:
    """What a configuration lacks; the client names an entry that its context names and the file has not."""
    return f"there is no entry {error}" if isinstance(error, KeyError) else str(error)


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
