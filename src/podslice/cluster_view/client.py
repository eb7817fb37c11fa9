"""Client of the cluster service (`podslice cluster`): by its address, or through the API server.

Every replica of the service has the whole model, so the first one that answers will do.
"""

from __future__ import annotations

import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from podslice.kubectl.agents import AgentPod, Listener, pod_error, read_agent_pod, read_secret_token
from podslice.kubectl.client import Cluster
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.credentials import TOKEN_HEADER, is_sendable
from podslice.kubectl.portforward import forward_request
from podslice.kubectl.reply import Reply, read_reply, timed_response_class
from podslice.values.errors import InputError

LABEL = "app.kubernetes.io/name=podslice-cluster"
PAGE = Listener("page", 9101, "page-token")
_OWN_HEADER = {"X-Podslice": "1"}
_DOCS = "docs/cluster-scheduler.md"


class Page(Protocol):
    """A source of answers as plain data. May raise `InputError`."""

    def ask(self, target: str, body: bytes | None = None) -> Any:
        """Return one document; with a body the request is a POST."""


class PageAtAddress(NamedTuple):
    """The page at an address, such as http://127.0.0.1:9101. `authority` is a file with certificates to verify the
    server's, empty for the system's."""

    url: str
    token: str = ""
    authority: str = ""
    timeout: float = 60.0

    def ask(self, target: str, body: bytes | None = None) -> Any:
        """Return one document. Raises `InputError`."""
        if not is_sendable(self.token):
            raise InputError("holds what is not a token", path="--token-file", remedy=f"one word; {_DOCS}")
        headers = {**_OWN_HEADER, **({TOKEN_HEADER: self.token} if self.token else {})}
        try:
            connection = self._connection()
            # The socket's timeout is per read; this bounds the whole answer.
            connection.response_class = timed_response_class(self.timeout)  # type: ignore[assignment]
            try:
                connection.request("GET" if body is None else "POST", target, body, headers)
                return _document(read_reply(connection.getresponse()), self.url)
            finally:
                connection.close()
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or error or type(error).__name__
            remedy = "is it up, and --page-address set? --url names another"
            raise InputError(f"cannot be reached: {reason}", source=self.url, remedy=remedy) from None

    def _connection(self) -> HTTPConnection:
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or parts.scheme not in ("http", "https") or parts.path or parts.query or parts.username:
            raise InputError(f"{self.url!r} is not an address", path="--url", remedy="http://127.0.0.1:9101")
        if parts.scheme == "http":
            return HTTPConnection(host, port or 80, timeout=self.timeout)
        try:
            context = ssl.create_default_context(cafile=self.authority or None)
        except OSError as error:
            raise InputError(f"no certificates: {error.strerror or error}", source=self.authority) from None
        return HTTPSConnection(host, port or 443, timeout=self.timeout, context=context)


class ClusterPages(NamedTuple):
    """The replicas of the service in a cluster. `via`: `proxy`, `port-forward`, or empty for the way that fits each."""

    cluster: Cluster
    namespace: str = "podslice"
    label: str = LABEL
    via: str = ""

    def ask(self, target: str, body: bytes | None = None) -> Any:
        """Return the answer of the first replica that gives one. Raises `InputError`."""
        listed = self.cluster.items(f"/api/v1/namespaces/{self.namespace}/pods", {"labelSelector": self.label})
        pods = [read_agent_pod(pod, PAGE) for pod in listed]
        if not pods:
            raise InputError(
                f"podslice cluster does not run in namespace {self.namespace}",
                remedy=f"--agent-namespace names another; {_DOCS}",
            )
        problem: InputError | None = None
        # Pods in trouble come last: their own message is reported only if no other answers.
        for pod in sorted(pods, key=lambda one: (bool(one.trouble), one.name)):
            try:
                return self._ask_pod(pod, target, body)
            except InputError as error:
                problem = problem or error
        assert problem is not None
        raise problem

    def _ask_pod(self, pod: AgentPod, target: str, body: bytes | None) -> Any:
        if pod.trouble:
            # Not asked: its own trouble is a better message than a failed connection.
            remedy = f"kubectl -n {pod.namespace} describe pod {pod.name}"
            raise InputError(f"{pod.namespace}/{pod.name} {pod.trouble}", remedy=remedy)
        place = f"{pod.namespace}/{pod.name}"
        try:
            reply = self._reply(pod, target, body)
        except ClusterError as error:
            raise pod_error(error, place, pod) from None
        return _document(reply, place)

    def _reply(self, pod: AgentPod, target: str, body: bytes | None) -> Reply:
        """Return the reply of one pod. A page with a token is beyond the loopback and speaks TLS, which the API
        server's proxy can; one without is reached by a port-forward."""
        headers = dict(_OWN_HEADER)
        if not pod.secret and self.via != "proxy":
            return forward_request(self.cluster, pod.path, pod.port, target, headers, body=body)
        if not pod.secret or self.via == "port-forward":
            has, remedy = ("no token", "port-forward") if not pod.secret else ("a token", "proxy")
            raise InputError(f"the page of {pod.name} has {has}", path="--via", remedy=f"--via {remedy}, or neither")
        headers[TOKEN_HEADER] = read_secret_token(self.cluster, pod.namespace, pod.secret)
        place = f"/api/v1/namespaces/{pod.namespace}/pods/https:{pod.name}:{pod.port}/proxy"
        return self.cluster.ask(f"{place}{target}", headers, body)


def _document(reply: Reply, source: str) -> Any:
    """Return the document of a reply. Raises `InputError` with the text of any other answer."""
    text = " ".join(reply.body[:400].decode("utf-8", "replace").split())
    if reply.code in (401, 403):
        raise ClusterError(text or "refused", source=source, remedy=f"is it the token that it reads? {_DOCS}")
    if reply.code != 200:
        raise InputError(text or f"HTTP {reply.code}", source=source)
    try:
        return reply.decode()
    except ValueError:
        raise InputError("the answer is not from a podslice cluster", source=source, remedy=f"see {_DOCS}") from None
