"""The local page: the pods on a node now, and the answer for a pod that is dropped on the page.

`App.respond` is a function from request to response and knows no sockets; `server` feeds it, `guard` decides which
requests are answered.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from podslice.advise.explain.explain import explain_each
from podslice.advise.explain.page import ShownExplanation, answer_fragment
from podslice.api.manifests.loaded import assign_names
from podslice.api.manifests.manifest import read_text_manifests
from podslice.api.manifests.pipeline import ReadOptions
from podslice.evidence.contradiction import doubt_node
from podslice.evidence.provenance import Provenance
from podslice.node.node import Node
from podslice.serve.pages import node_fragment, problem_fragment, shell
from podslice.service.http.guard import LARGEST_BODY, Guard, Request, Response, html, page_policy, plain
from podslice.values.errors import InputError, PodsliceError

MOST_PODS = 20
MOST_CONTAINERS = 200
_METHODS = {"/": "GET", "/node": "GET", "/explain": "POST"}


class ShownNode(NamedTuple):
    """A node, and what it rests on."""

    node: Node
    provenance: Provenance = Provenance()


class App:
    """`make_node` builds the node from the files on disk, `stamp` changes when they do, `reading` are the options for
    reading pods."""

    def __init__(
        self,
        make_node: Callable[[], ShownNode],
        stamp: Callable[[], object],
        *,
        token: str = "",
        reading: ReadOptions | None = None,
    ) -> None:
        self._reading = reading or ReadOptions()
        self._make_node = make_node
        self._stamp = stamp
        self._guard = Guard(_METHODS, lambda: token)
        self._known: tuple[object, ShownNode] | None = None

    def respond(self, request: Request) -> Response:
        """Answer one request; never raises for what a client sends."""
        refusal = self.refusal_of(request)
        if refusal is not None:
            return refusal
        if request.method == "GET" and request.path == "/":
            return self._shell(request)
        if request.method == "GET" and request.path == "/node":
            return self._node(request)
        return self._explain(request)

    def refusal_of(self, request: Request) -> Response | None:
        """Return the refusal of a request that is not answered whatever its body says; None for all others."""
        return self._guard.refusal_of(request)

    # Answers

    def _shell(self, request: Request) -> Response:
        welcome = self._guard.welcome(request)
        if welcome is not None:
            return welcome
        nonce = secrets.token_urlsafe(16)
        return html(200, shell(nonce), (page_policy(nonce),))

    def _node(self, request: Request) -> Response:
        stamp = self._stamp()
        # The page polls every second; an unchanged stamp saves drawing the node.
        tag = f'"{hash(stamp) & 0xFFFFFFFFFFFFFFFF:x}"'
        if request.headers.get("if-none-match") == tag:
            return Response(304, b"", (("ETag", tag),))
        try:
            body = node_fragment(*self._current(stamp))
        except PodsliceError as error:
            body = problem_fragment(str(error))
        return html(200, body, (("ETag", tag),))

    def _explain(self, request: Request) -> Response:
        if len(request.body) > LARGEST_BODY:
            return plain(413, f"more than {LARGEST_BODY} bytes")
        try:
            node, provenance = self._current(self._stamp())
            loaded, notes, _ = read_text_manifests(request.body.decode("utf-8"), "the pod", self._reading)
            pods = assign_names(loaded, taken=set(node.pods))
            if len(pods) > MOST_PODS:
                raise InputError(f"{len(pods)} pods at once", remedy=f"give at most {MOST_PODS}")
            containers = sum(len(one.pod.spec.init_containers) + len(one.pod.spec.containers) for one in pods)
            # Explaining tries many changes for each container: the bound keeps one request from blocking the page.
            if containers > MOST_CONTAINERS:
                raise InputError(f"{containers} containers at once", remedy=f"give at most {MOST_CONTAINERS}")
            warnings = [*notes, *(warning for one in pods for warning in one.warnings)]
            # What makes it fit would rest on the machine or the configuration.
            fixes = doubt_node(provenance.contradictions) is None
            explained = explain_each(node, [one.pod for one in pods], fixes=fixes)
            answers = [ShownExplanation.of(one) for one in explained]
            fragment = answer_fragment(answers, warnings, provenance)
            return html(200, fragment)
        except UnicodeDecodeError:
            return html(422, problem_fragment("the pod is not UTF-8 text"))
        except PodsliceError as error:
            return html(422, problem_fragment(str(error)))

    def _current(self, stamp: object) -> ShownNode:
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, self._make_node()
        return self._known[1]
