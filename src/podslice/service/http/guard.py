"""Requests and responses of the pages, and which requests are permitted: those with the token, or where there is none,
those of this machine.

Requests that another page made a browser send are refused: a foreign name in `Host` (DNS rebinding), and a POST without
our own header, which a form of another page cannot send.
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
    """A request. `headers` by lower-case name; neither `path` nor `query` has the `?` between them."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Response(NamedTuple):
    """A response; the server adds the length."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Guard:
    """Decides which requests of a page are permitted.

    `methods`: by path, the methods that it has, with blanks between them; the page itself is at `/`.
    `token`: returns the token, empty where none is needed. `secure`: the token only travels over TLS.
    """

    def __init__(self, methods: Mapping[str, str], token: Callable[[], str], *, secure: bool = False) -> None:
        self._methods = methods
        self._token = token
        self._secure = secure

    def refusal_of(self, request: Request) -> Response | None:
        """Return the refusal of a request that is not permitted, None for the others. The body has no part in that."""
        refusal = self._authenticate(request, self._token())
        if refusal is not None:
            return refusal
        if request.path not in self._methods:
            return plain(404, "not found")
        if request.method not in self._methods[request.path].split():
            return plain(405, "method not allowed")
        if request.method == "POST" and _OWN_HEADER not in request.headers:
            return plain(403, "only this page may ask")
        return None

    def welcome(self, request: Request) -> Response | None:
        """Return the redirect that moves the token from the page's address into a cookie, None where the address has
        none."""
        token = self._token()
        if not token or "token=" not in request.query:
            return None
        # Not readable by scripts, and not sent with requests that another site starts.
        cookie = f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/{'; Secure' if self._secure else ''}"
        return Response(303, b"", (("Location", "."), ("Set-Cookie", cookie)))

    def _authenticate(self, request: Request, token: str) -> Response | None:
        """Return the refusal of a request without the token, None where it has it."""
        if not token:
            local = is_local_host(request.headers.get("host", ""))
            return None if local else plain(403, "this page answers only to localhost")
        # The address ends up in histories and logs, so the token is accepted there for the page alone, which moves it.
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
    """Return the header that lets a page run its own script and call its own server, and nothing else."""
    return (
        "Content-Security-Policy",
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )


def plain(status: int, text: str) -> Response:
    """Return a response of plain text, a line."""
    return Response(status, (text + "\n").encode(), (("Content-Type", "text/plain; charset=utf-8"),))


def html(status: int, text: str, more: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return a response of HTML; `more` are further headers."""
    return Response(status, text.encode(), (("Content-Type", "text/html; charset=utf-8"), *more))
