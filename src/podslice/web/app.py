"""The local page: what is on a node now, and what it would do with a pod that is dropped on the page.

`App.respond` is a function from request to response and knows no sockets; `server` feeds it. It refuses what did not
come from this page: other hosts' names in `Host` (DNS rebinding), and posts without our own header, which another
page's form cannot send. With a token it refuses everybody who does not know it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from podslice.advise.explain.explain import explain_each
from podslice.core.errors import InputError, PodsliceError
from podslice.core.node import Node
from podslice.k8s.manifest import PodReading, load_pods_text, unique
from podslice.render.answers import ShownExplanation, answer_fragment
from podslice.web.access import asks_localhost, knows
from podslice.web.pages import node_fragment, problem_fragment, shell

LARGEST_BODY = 256 << 10
MOST_PODS = 20
MOST_CONTAINERS = 200
_COOKIE = "podslice_token"
_OWN_HEADER = "x-podslice"
_METHODS = {"/": "GET", "/node": "GET", "/explain": "POST"}


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
        refusal = self.refused(request)
        if refusal is not None:
            return refusal
        if request.method == "GET" and request.path == "/":
            return self._shell(request)
        if request.method == "GET" and request.path == "/node":
            return self._node(request)
        return self._explain(request)

    # Who may ask

    def refused(self, request: Request) -> Response | None:
        """The refusal of a request that is not answered whatever its body says, None for the others."""
        stranger = self._stranger(request)
        if stranger is not None:
            return stranger
        if request.path not in _METHODS:
            return _plain(404, "not found")
        if request.method != _METHODS[request.path]:
            return _plain(405, "method not allowed")
        if request.method == "POST" and _OWN_HEADER not in request.headers:
            return _plain(403, "only this page may ask")
        return None

    def _stranger(self, request: Request) -> Response | None:
        if not self._token:
            return (
                None
                if asks_localhost(request.headers.get("host", ""))
                else _plain(403, "this page answers only to localhost")
            )
        given = parse_qs(request.query).get("token", [""])[0] if request.path == "/" else ""
        if knows(given or self._cookie(request), self._token):
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
        if len(request.body) > LARGEST_BODY:
            return _plain(413, f"more than {LARGEST_BODY} bytes")
        try:
            node = self._current(self._stamp())
            loaded = load_pods_text(request.body.decode("utf-8"), "the pod", **self._reading._asdict())
            pods = unique(loaded, taken=set(node.pods))
            if len(pods) > MOST_PODS:
                raise InputError(f"{len(pods)} pods at once", remedy=f"give at most {MOST_PODS}")
            containers = sum(len(one.pod.spec.init_containers) + len(one.pod.spec.containers) for one in pods)
            if containers > MOST_CONTAINERS:
                raise InputError(f"{containers} containers at once", remedy=f"give at most {MOST_CONTAINERS}")
            warnings = [warning for one in pods for warning in one.warnings]
            answers = [ShownExplanation.of(one) for one in explain_each(node, [one.pod for one in pods])]
            fragment = answer_fragment(answers, warnings)
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
