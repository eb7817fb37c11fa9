"""From request to response: the page, and the same answers as JSON documents for the page and for `kubectl podslice`.

It runs in threads of its own. Queries of the model run on the service's event loop (`ClusterQueries`); long searches
work on values in the thread, one at a time.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace

from podslice.api.manifests.loaded import LoadedPod
from podslice.api.manifests.manifest import load_pods_text
from podslice.cluster.page.queries import ClusterQueries, FitLook, PendingKind
from podslice.cluster.page.shell import node_fragment, shell
from podslice.cluster.page.survey import AskedPod
from podslice.cluster.page.ways_out import CrowdedNode, ways_out
from podslice.cluster_view.answers import PendingPodList, PodFit, PodFitList, WayOut
from podslice.node.answers import with_uid
from podslice.service.clusterobjects import read_terms
from podslice.service.http.guard import LARGEST_BODY, Guard, Request, Response, html, page_policy, plain
from podslice.values.document import document
from podslice.values.errors import InputError, PodsliceError

MOST_PODS = 20
MOST_CONTAINERS = 200
MOST_SEARCHED = 16
"""Most kinds of pending pods for which one request searches ways out: those with the highest priority."""
AT_ONCE = 8
_METHODS = {
    "/": "GET", "/nodes": "GET", "/node": "GET", "/pending": "GET", "/fit": "GET POST", "/fragmentation": "GET",
}  # fmt: skip
_PATIENCE = 30.0
_WORTH_PACKING = 2048
_ASKED_UID = "podslice-asked"
T = TypeVar("T")
Answer = Callable[["ClusterPage", Request, Mapping[str, str]], Response]


class BusyError(PodsliceError):
    """Raised where the service has no time for a request now."""


class Asker(Protocol):
    """Runs a coroutine and waits for its result. May raise `BusyError`."""

    def __call__(self, question: Coroutine[Any, Any, T], /) -> T: ...


def on_loop(loop: asyncio.AbstractEventLoop) -> Asker:
    """Return an asker that runs coroutines on the event loop of another thread."""

    def ask(question: Coroutine[Any, Any, T], /) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(question, loop)
        except RuntimeError:
            # Else Python warns of a coroutine that was never awaited.
            question.close()
            raise BusyError("the service is ending") from None
        try:
            return future.result(_PATIENCE)
        except (TimeoutError, CancelledError):
            future.cancel()
            raise BusyError("the service is busy; try again") from None

    return ask


class ClusterPage:
    """Implements `page_server.PageApp`. `ask` runs the queries. `token` returns the token that requests need,
    empty for none; it is called for each request, because secrets are replaced."""

    def __init__(
        self,
        queries: ClusterQueries,
        ask: Asker,
        *,
        token: Callable[[], str],
        secure: bool = False,
    ) -> None:
        self._queries, self._ask = queries, ask
        self._guard = Guard(_METHODS, token, secure=secure)
        self._searching = threading.Lock()

    def refusal_of(self, request: Request) -> Response | None:
        """Return the refusal of a request by its head alone, None for one to read and answer."""
        try:
            return self._guard.refusal_of(request)
        except InputError as error:
            return plain(503, str(error))

    def respond(self, request: Request) -> Response:
        """Answer one request; never raises, whatever a client sends."""
        refusal = self.refusal_of(request)
        if refusal is not None:
            return refusal
        query = {name: values[-1] for name, values in parse_qs(request.query, keep_blank_values=True).items()}
        try:
            return _ANSWERS[request.path](self, request, query)
        except BusyError as error:
            return plain(503, str(error))
        except PodsliceError as error:
            return plain(422, str(error))

    # Answers

    def page(self, request: Request, query: Mapping[str, str]) -> Response:
        """Answer with the page, whose script fetches the rest."""
        welcome = self._guard.welcome(request)
        if welcome is not None:
            return welcome
        nonce = secrets.token_urlsafe(16)
        return html(200, shell(nonce), (page_policy(nonce),))

    def nodes(self, request: Request, query: Mapping[str, str]) -> Response:
        """Answer with the nodes' maps: all, or with `since` those that changed. The revision is the ETag as well."""
        known = request.headers.get("if-none-match", "").strip('"')
        found = self._ask(self._queries.nodes(query.get("since", known)))
        tag = ("ETag", f'"{found.revision}"')
        if known == found.revision:
            return Response(304, b"", (tag,))
        return _json(request, found, tag)

    def node(self, request: Request, query: Mapping[str, str]) -> Response:
        """Answer with a fragment of HTML: one node with its pods."""
        name = query.get("name", "")
        look = self._ask(self._queries.node(name))
        return html(200, node_fragment(name, look))

    def fragmentation(self, request: Request, query: Mapping[str, str]) -> Response:
        """Answer with the fragmentation of free CPUs, now and before."""
        return _json(request, self._ask(self._queries.fragmentation()))

    def pending(self, request: Request, query: Mapping[str, str]) -> Response:
        """Answer with the pending pods; with `ways=1` and a way out for each refused kind of pod."""
        wanted = query.get("ways", "") == "1"
        look = self._ask(self._queries.pending(stuck=wanted))
        ways = self._ways_of_kinds(look.stuck) if wanted else {}
        items = tuple(replace(one, way=ways.get(one.uid)) for one in look.items)
        return _with_etag(request, PendingPodList(look.total, wanted, items))

    def fit(self, request: Request, query: Mapping[str, str]) -> Response:
        """Answer with the nodes that pods of a manifest, or a pending one, could go to; with `ways=1` and ways out
        where there is none."""
        wanted = query.get("ways", "") == "1"
        if request.method == "GET":
            look = self._ask(self._queries.fit_pending(query.get("pod", "")))
            return _json(request, PodFitList((self._with_ways(look, wanted=wanted),)))
        if len(request.body) > LARGEST_BODY:
            return plain(413, f"more than {LARGEST_BODY} bytes")
        loaded = read_pods(request.body)
        looks = [self._ask(self._queries.fit(one)) for one in map(read_asked_pod, loaded)]
        warnings = tuple(warning for one in loaded for warning in one.warnings)
        return _json(request, PodFitList(tuple(self._with_ways(one, wanted=wanted) for one in looks), warnings))

    # Ways out

    def _with_ways(self, look: FitLook, *, wanted: bool) -> PodFit:
        if not wanted or look.fit.fitting or look.fit.held:
            return look.fit
        return replace(look.fit, ways=self._ways(look.asked, look.crowded))

    def _ways_of_kinds(self, stuck: Mapping[str, PendingKind]) -> dict[str, WayOut]:
        """Return the cheapest way out by UID; pods of one kind share one search."""
        kinds = list({id(kind): kind for kind in stuck.values()}.values())[:MOST_SEARCHED]
        found = {id(kind): self._ways(kind.asked, kind.crowded)[:1] for kind in kinds}
        return {uid: way for uid, kind in stuck.items() for way in found.get(id(kind), ())}

    def _ways(self, asked: AskedPod, crowded: Iterable[CrowdedNode]) -> tuple[WayOut, ...]:
        nodes = tuple(crowded)
        names = {one.uid: self._queries.name_of(one.uid) for node in nodes for one in node.running}
        if not self._searching.acquire(timeout=_PATIENCE):
            raise BusyError("another search for ways out is running; try again")
        try:
            return ways_out(with_uid(asked.pod, _ASKED_UID), nodes, names)
        finally:
            self._searching.release()


_ANSWERS: dict[str, Answer] = {
    "/": ClusterPage.page,
    "/nodes": ClusterPage.nodes,
    "/node": ClusterPage.node,
    "/pending": ClusterPage.pending,
    "/fit": ClusterPage.fit,
    "/fragmentation": ClusterPage.fragmentation,
}


def read_pods(body: bytes) -> list[LoadedPod]:
    """Read the pods of a manifest. Raises `InputError`."""
    try:
        loaded = load_pods_text(body.decode("utf-8"), "the pod")
    except UnicodeDecodeError:
        raise InputError("the pod is not UTF-8 text") from None
    if len(loaded) > MOST_PODS:
        raise InputError(f"{len(loaded)} pods at once", remedy=f"give at most {MOST_PODS}")
    containers = sum(len(one.pod.spec.init_containers) + len(one.pod.spec.containers) for one in loaded)
    if containers > MOST_CONTAINERS:
        raise InputError(f"{containers} containers at once", remedy=f"give at most {MOST_CONTAINERS}")
    return loaded


def read_asked_pod(loaded: LoadedPod) -> AskedPod:
    """Return the parts of a manifest's pod that decide its nodes. Raises `PodsliceError`."""
    metadata = loaded.pod.metadata
    terms = read_terms(msgspec.json.encode({"spec": loaded.data.get("spec")}, enc_hook=float))  # NumberText
    return AskedPod(metadata.full_name, loaded.pod, terms)


def _with_etag(request: Request, value: msgspec.Struct) -> Response:
    """Answer with the document, or 304 where the client has the same one."""
    tag = f'"{hashlib.blake2b(msgspec.json.encode(value), digest_size=8).hexdigest()}"'
    if request.headers.get("if-none-match") == tag:
        return Response(304, b"", (("ETag", tag),))
    return _json(request, value, ("ETag", tag))


def _json(request: Request, value: msgspec.Struct, *more: tuple[str, str]) -> Response:
    """Answer with a document, compressed where the client accepts that and it is worth it."""
    body = msgspec.json.encode(document(value))
    headers = [("Content-Type", "application/json"), ("Vary", "Accept-Encoding"), *more]
    if len(body) >= _WORTH_PACKING and "gzip" in request.headers.get("accept-encoding", ""):
        # Without the time, so that equal documents are equal bytes.
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers.append(("Content-Encoding", "gzip"))
    return Response(200, body, tuple(headers))
