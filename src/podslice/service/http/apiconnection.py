"""A connection to an API server over HTTP: answers in bounded pieces, and errors that name the place to look.

This is common to the agent and the cluster's service; their calls are in `agent.api_server.apiclient` and
`cluster.apiclient`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Protocol

from podslice.service.answers import ApiError, GoneError
from podslice.service.http.failures import LARGEST_SAID, describe_answer, describe_failure, read_error_body
from podslice.service.http.leanhttp import LeanAnswer, LeanClient, with_query
from podslice.service.http.lines import LineCutter, LongLineError
from podslice.service.http.proxycalls import ProxyCalls, needs_proxy, read_authorization
from podslice.service.podaccess import pod_access
from podslice.service.trust import trust_as_go
from podslice.values.errors import InputError

QUIET_SECONDS = 90.0
"""Seconds of silence after which a watch is begun again: a server sends a bookmark about once a minute."""
REQUEST_SECONDS = 10.0
LONGEST_SECONDS = 300.0
"""Most seconds for a whole answer that is not a watch, however slowly it arrives."""
PLAIN = {"Accept": "application/json", "Accept-Encoding": "identity"}
CONNECTIONS = 64
_PIECE = 64 << 10
_LARGEST_ANSWER = 1 << 20


class AnswerError(ApiError):
    """Raised for an error answer. `code`: HTTP status. `later`: seconds after which the server wants to be asked again
    (Retry-After), 0 where it has none."""

    def __init__(self, text: str, code: int, *, later: int = 0) -> None:
        self.code, self.later = code, later
        super().__init__(text)


class ApiCalls(Protocol):
    """The way in which calls are made. `errors`: what it may raise beside `OSError` and `TimeoutError`."""

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    async def call(self, method: str, path: str, body: bytes | None, *, kind: str, timeout: float) -> LeanAnswer: ...

    def stream(self, path: str, *, begin: float, quiet: float) -> AsyncGenerator[bytes | LeanAnswer, None]: ...

    async def close(self) -> None: ...


class ApiConnection:
    """A connection with the in-cluster service account (its token is read again when it was rotated), or by KUBECONFIG.

    `config`: a lightkube configuration instead. `quiet`: seconds of silence that end a watch. `path`: the setting that
    asked for the connection, for messages. Raises `InputError` where there is no usable configuration.

    Calls are made by `service.http.leanhttp`, or by httpx through the proxy that the environment names.
    """

    def __init__(self, config: Any = None, *, quiet: float = QUIET_SECONDS, path: str) -> None:
        self._quiet = quiet
        self._calls: ApiCalls
        try:
            access = None if config else pod_access(os.environ)
        except OSError as error:
            raise _no_access(error, path) from None
        if access is None or needs_proxy(access.server):
            self._errors = self._configure(config, path)
            return
        self._server = access.server
        self._calls = LeanClient(access.server, access.trust.latest, access.token.header, limit=CONNECTIONS)
        self._errors = (*self._calls.errors, OSError, TimeoutError)

    def _configure(self, config: Any, path: str) -> tuple[type[Exception], ...]:
        """Connect by a configuration, with all that lightkube can do. Return the errors that calls may raise."""
        # Imported here: in a pod with a service account these megabytes are not needed.
        from lightkube.config.client_adapter import ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError

        try:
            chosen = config or KubeConfig.from_env().get()
            if chosen is None or not chosen.user:
                raise ConfigError("Missing user")
            parameters = ConnectionParams().httpx_params(chosen)
            context = parameters["verify"]
            trust_as_go(context)
            self._server = str(chosen.cluster.server)
            if needs_proxy(self._server):
                self._calls = ProxyCalls(parameters, CONNECTIONS)
            else:
                authorization = functools.partial(read_authorization, parameters["auth"], self._server)
                self._calls = LeanClient(self._server, lambda: context, authorization, limit=CONNECTIONS)
        except (ConfigError, KeyError, OSError, ValueError) as error:
            raise _no_access(error, path) from None
        return (*self._calls.errors, ConfigError, OSError, TimeoutError)

    async def close(self) -> None:
        """Close the connection."""
        await self._calls.close()

    async def pieces(
        self, path: str, parameters: dict[str, str], *, ends: bool = False, timeout: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Send a GET and yield the body in pieces of at most 64 KiB. Raises `ApiError`, `GoneError`."""
        quiet = self._quiet if timeout is None else timeout
        with self.translate_errors(path):
            stream = self._calls.stream(with_query(path, parameters), begin=REQUEST_SECONDS + quiet, quiet=quiet)
            async with contextlib.aclosing(stream) as parts:
                head = await anext(parts)
                assert isinstance(head, LeanAnswer)
                if head.status == 410:
                    raise GoneError
                if head.status != 200:
                    text = b""
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(REQUEST_SECONDS):
                            async for part in parts:
                                text += part if isinstance(part, bytes) else b""
                                if len(text) >= LARGEST_SAID:
                                    break
                    raise AnswerError(f"{path}: {describe_answer(head.status, head.phrase, text)}", head.status)
                loop = asyncio.get_running_loop()
                end = math.inf if ends else loop.time() + LONGEST_SECONDS
                try:
                    async for part in parts:
                        assert isinstance(part, bytes)
                        if loop.time() > end:
                            raise ApiError(f"{path}: the answer takes more than {LONGEST_SECONDS:.0f} s")
                        for start in range(0, len(part), _PIECE):
                            yield part[start : start + _PIECE]
                            await asyncio.sleep(0)  # a list of all pods takes long to decode; hooks go in between
                except TimeoutError:
                    if not ends:
                        raise

    async def lines(self, path: str, parameters: dict[str, str], *, most: int) -> AsyncGenerator[bytes, None]:
        """GET a watch: yield its events, lines of at most `most` bytes, until it ends. Raises `ApiError`,
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
        """Send a request whose answer has no use. Raises `AnswerError` for a status that is not `good`, `ApiError`."""
        answer = await self.answer(method, path, body, kind=kind)
        if answer.status not in good:
            raise refusal(path, answer)

    async def ask(
        self, path: str, body: bytes | None = None, *, method: str = "", most: int = _LARGEST_ANSWER
    ) -> bytes:
        """Return the body of the answer, at most `most` bytes. The method is POST, or GET where there is no `body`, or
        `method`. Raises `ApiError`, `AnswerError`."""
        answer = await self.answer(method or ("GET" if body is None else "POST"), path, body)
        if answer.status not in (200, 201):
            raise refusal(path, answer)
        if len(answer.body) > most:
            raise ApiError(f"{path}: the answer is larger than {most} bytes")
        return answer.body

    async def answer(self, method: str, path: str, body: bytes | None, *, kind: str = "application/json") -> LeanAnswer:
        """Make a call and return any answer, also an error answer. Raises `ApiError` where there is none."""
        with self.translate_errors(path):
            return await self._calls.call(method, path, body, kind=kind, timeout=REQUEST_SECONDS)

    @contextlib.contextmanager
    def translate_errors(self, path: str) -> Iterator[None]:
        """Turn the errors of a connection into an `ApiError` that names the server and `path`."""
        try:
            yield
        except self._errors as error:
            raise ApiError(f"{self._server}{path}: {describe_failure(error)}") from None


def refusal(path: str, answer: LeanAnswer) -> AnswerError:
    """Return the exception for an error answer."""
    text = describe_answer(answer.status, answer.phrase, answer.body[:LARGEST_SAID])
    return AnswerError(f"{path}: {text}", answer.status, later=answer.later)


def _no_access(error: Exception, path: str) -> InputError:
    return InputError(
        f"no access to an API server: {_explain(error)}", path=path, remedy="run in a pod, or set KUBECONFIG"
    )


def _explain(error: Exception) -> str:
    """Return what is wrong with a configuration. A `KeyError` holds the entry that a context names and the file
    lacks."""
    return f"there is no entry {error}" if isinstance(error, KeyError) else str(error)


async def describe_response(response: Any) -> str:
    """Return a line about an error answer of httpx."""
    return describe_answer(response.status_code, response.reason_phrase, await read_error_body(response))


async def read_pieces(response: Any, path: str) -> AsyncGenerator[bytes, None]:
    """Yield the body of an answer of httpx in pieces, with a turn of the loop in between. Raises `ApiError`."""
    if response.status_code != 200:
        raise ApiError(f"{path}: {await describe_response(response)}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiError(f"{path}: the answer is compressed, which was not asked for")
    async for chunk in response.aiter_raw():
        for start in range(0, len(chunk), _PIECE):
            yield chunk[start : start + _PIECE]
            await asyncio.sleep(0)
