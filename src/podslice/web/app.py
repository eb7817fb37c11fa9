"""The local page: what is on a node now, and what it would do with a pod that is dropped on the page.

`App.respond` is a function from request to response and knows no sockets; `server` feeds it. Everything is refused
that did not come from this page: other hosts' names in `Host` (DNS rebinding), posts without our own header (another
page's form cannot send it), and with a token everybody who does not know it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from podslice.core.errors import InputError, PodsliceError
from podslice.core.node import Node
from podslice.k8s.manifest import PodReading, load_pods_text, unique
from podslice.web.pages import answer_fragment, explained, node_fragment, problem_fragment, shell

LARGEST_BODY = 1 << 20
MOST_PODS = 20
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_COOKIE = "podslice_token"
_OWN_HEADER = "x-podslice"


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


class App:
    """`make_node` builds the node from what is on the disk, `stamp` changes when that does, `reading` is how pods are
    read."""

    def __init__(
        self,
        make_node: Callable[[], Node],
        stamp: Callable[[], object],
        *,
        token: str = "",
        reading: PodReading | None = None,
    ) -> None:
        self._reading = reading or PodReading()
        self._make_node = make_node
        self._stamp = stamp
        self._token = token
        self._known: tuple[object, Node] | None = None

    def respond(self, request: Request) -> Response:
        """Answer one request; never raises for what a client sends."""
        refusal = self._refused(request)
        if refusal is not None:
            return refusal
        if request.method == "GET" and request.path == "/":
            return self._shell(request)
        if request.method == "GET" and request.path == "/node":
            return self._node(request)
        if request.method == "POST" and request.path == "/explain":
            return self._explain(request)
        if request.path in ("/", "/node", "/explain"):
            return _plain(405, "method not allowed")
        return _plain(404, "not found")

    # Who may ask

    def _refused(self, request: Request) -> Response | None:
        if not self._token:
            host = request.headers.get("host", "").lower()
            name = host[: host.rindex(":")] if ":" in host.rpartition("]")[2] else host
            return None if name in LOOPBACK_NAMES else _plain(403, "this page answers only to localhost")
        given = parse_qs(request.query).get("token", [""])[0] if request.path == "/" else ""
        if hmac.compare_digest((given or self._cookie(request)).encode(), self._token.encode()):
            return None
        return _plain(401, "give the token: /?token=…")

    @staticmethod
    def _cookie(request: Request) -> str:
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == _COOKIE:
                return value
        return ""

    # Answers

    def _shell(self, request: Request) -> Response:
        if self._token and "token=" in request.query:
            cookie = f"{_COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            return Response(303, b"", (("Location", "/"), ("Set-Cookie", cookie)))
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return _html(200, shell(nonce), (("Content-Security-Policy", policy),))

    def _node(self, request: Request) -> Response:
        stamp = self._stamp()
        tag = f'"{hash(stamp) & 0xFFFFFFFFFFFFFFFF:x}"'
        if request.headers.get("if-none-match") == tag:
            return Response(304, b"", (("ETag", tag),))
        try:
            body = node_fragment(self._current(stamp))
        except PodsliceError as error:
            body = problem_fragment(str(error))
        return _html(200, body, (("ETag", tag),))

    def _explain(self, request: Request) -> Response:
        if _OWN_HEADER not in request.headers:
            return _plain(403, "only this page may ask")
        if len(request.body) > LARGEST_BODY:
            return _plain(413, f"more than {LARGEST_BODY} bytes")
        try:
            node = self._current(self._stamp())
            loaded = load_pods_text(request.body.decode("utf-8"), "the pod", **self._reading._asdict())
            pods = unique(loaded, taken=set(node.kubelet.active))
            if len(pods) > MOST_PODS:
                raise InputError(f"{len(pods)} pods at once", remedy=f"give at most {MOST_PODS}")
            warnings = [warning for one in pods for warning in one.warnings]
            fragment = answer_fragment(explained(node, [one.pod for one in pods]), warnings)
            return _html(200, fragment)
        except UnicodeDecodeError:
            return _html(422, problem_fragment("the pod is not UTF-8 text"))
        except PodsliceError as error:
            return _html(422, problem_fragment(str(error)))

    def _current(self, stamp: object) -> Node:
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, self._make_node()
        return self._known[1]


def _plain(status: int, text: str) -> Response:
    return Response(status, (text + "\n").encode(), (("Content-Type", "text/plain; charset=utf-8"),))


def _html(status: int, text: str, more: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status, text.encode(), (("Content-Type", "text/html; charset=utf-8"), *more))
