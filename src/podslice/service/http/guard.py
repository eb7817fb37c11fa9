"""Requests and answers of the pages, and who may ask: whoever knows the token, or, where there is none, this machine.

What did not come from the page itself is refused: other hosts' names in `Host` (DNS rebinding), and posts without our
own header, which another page's form cannot send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from podslice.service.http.access import is_local_host, is_token

LARGEST_BODY = 256 << 10
_COOKIE = "podslice_token"
_OWN_HEADER = "x-podslice"
TOKEN_HEADER = "x-podslice-token"


class Request(NamedTuple):
    """`headers` by lower-case name; `path` without, `query` without `?`."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Response(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Guard:
    """`methods` by path, with blanks between them, are all there is; the page itself is at `/`. `token` is empty where
    none is needed. `secure`: the token only travels over TLS."""

    def __init__(self, methods: Mapping[str, str], token: Callable[[], str], *, secure: bool = False) -> None:
        self._methods = methods
        self._token = token
        self._secure = secure

    def refused(self, request: Request) -> Response | None:
        """The refusal of a request that is not answered whatever its body says, None for the others."""
        stranger = self._stranger(request, self._token())
        if stranger is not None:
            return stranger
        if request.path not in self._methods:
            return plain(404, "not found")
        if request.method not in self._methods[request.path].split():
            return plain(405, "method not allowed")
        if request.method == "POST" and _OWN_HEADER not in request.headers:
            return plain(403, "only this page may ask")
        return None

    def welcome(self, request: Request) -> Response | None:
        """Takes the token out of the page's address and into a cookie; None where it is not in the address."""
        token = self._token()
        if not token or "token=" not in request.query:
            return None
        cookie = f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/{'; Secure' if self._secure else ''}"
        return Response(303, b"", (("Location", "."), ("Set-Cookie", cookie)))

    def _stranger(self, request: Request, token: str) -> Response | None:
        if not token:
            local = is_local_host(request.headers.get("host", ""))
            return None if local else plain(403, "this page answers only to localhost")
        given = parse_qs(request.query).get("token", [""])[0] if request.path == "/" else ""
        if is_token(given or request.headers.get(TOKEN_HEADER) or _cookie(request), token):
            return None
        return plain(401, "give the token: /?token=…")


def _cookie(request: Request) -> str:
    for part in request.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == _COOKIE:
            return value
    return ""


def page_policy(nonce: str) -> tuple[str, str]:
    """The header that lets a page run its own script and ask its own server, and nothing else."""
    return (
        "Content-Security-Policy",
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )


def plain(status: int, text: str) -> Response:
    return Response(status, (text + "\n").encode(), (("Content-Type", "text/plain; charset=utf-8"),))


def html(status: int, text: str, more: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status, text.encode(), (("Content-Type", "text/html; charset=utf-8"), *more))
