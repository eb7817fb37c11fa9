"""Requests to an API server: small reads, each on a connection of its own, so that threads can make them in
parallel."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from podslice.kubectl.connection import ClusterError, connect, server_of, server_text, unreachable_error
from podslice.kubectl.credentials import TOKEN_HEADER, Credential, Credentials
from podslice.kubectl.kubeconfig import Access
from podslice.kubectl.reply import Reply, read_reply, without_secrets
from podslice.kubectl.websocket import WebSocket, open_websocket
from podslice.version import running_version

_ROLES = "the roles podslice-kubectl have what this needs (deploy/manifests/kubectl.yaml)"
Query = dict[str, str]


class _Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None
    accept: str = "application/json"


class Cluster(Protocol):
    """The calls that commands make. Each may raise `InputError`, or `ClusterError` where the server refuses."""

    @property
    def namespace(self) -> str:
        """The namespace of pods that are named without one."""

    def read(self, path: str, query: Query | None = None) -> Any:
        """Return an object as plain data."""

    def items(self, path: str, query: Query | None = None) -> list[Any]:
        """Return the items of a list; the caller checks what they are."""

    def ask(self, path: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> Reply:
        """Return the answer to a GET, or with a body to a POST; a refusal by the API server itself is raised."""

    def send(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Return the answer to a request of any method, of any type; a refusal by the API server itself is raised."""

    def upgrade(self, path: str, query: Mapping[str, str | list[str]], protocol: str) -> WebSocket:
        """Open a WebSocket with this subprotocol."""


class HTTPCluster:
    """A cluster that is reached as a kubeconfig says."""

    def __init__(self, access: Access, *, timeout: float) -> None:
        self.access = access
        self.namespace = access.namespace
        self._timeout = timeout
        self._credentials = Credentials(access)
        self._prefix = server_of(access).prefix

    def read(self, path: str, query: Query | None = None) -> Any:
        """Read as `Cluster` says. Raises `ClusterError` with the server's status."""
        reply = self.ask(f"{path}?{urlencode(query)}" if query else path)
        if reply.code != 200:
            raise refusal_error(self.access, path, reply)
        try:
            found = reply.decode()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._error(f"{path}: what answers is not an API server", "look at the server in the kubeconfig")
        return found

    def items(self, path: str, query: Query | None = None) -> list[Any]:
        """Read as `Cluster` says. Raises `ClusterError` with the server's status."""
        # Go encodes an empty list as null.
        items = self.read(path, query).get("items") or []
        if not isinstance(items, list):
            raise self._error(f"{path}: what answers is not a list", "look at the server in the kubeconfig")
        return items

    def ask(self, path: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> Reply:
        """Send a request as `Cluster` says. A 401 is tried again once, with new credentials of a plugin."""
        request = _Request("GET" if body is None else "POST", path, headers or {}, body)
        return self._try_twice(request)

    def send(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Send a request as `Cluster` says."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        return self._try_twice(_Request(method, path, headers, body, accept="application/json, */*"))

    def _try_twice(self, request: _Request) -> Reply:
        reply = self._send(request, self._credentials.get())
        if reply.code == 401 and _status(reply) is not None and self._credentials.is_renewable:
            # Only the API server's own 401: one of a pod behind its proxy says nothing about our credentials.
            self._credentials.forget()
            reply = self._send(request, self._credentials.get())
        if reply.code >= 400 and _status(reply) is not None:
            raise refusal_error(self.access, request.path.partition("?")[0], reply)
        return reply

    def _send(self, request: _Request, credential: Credential) -> Reply:
        connection = connect(self.access, credential, self._timeout)
        headers, body = request.headers, request.body
        if body is not None:
            headers = {**headers, "Content-Length": str(len(body))}
        try:
            connection.putrequest(request.method, self._prefix + request.path, skip_accept_encoding=True)
            for name, value in (*self._headers(credential, request.accept), *headers.items()):
                connection.putheader(name, value)
            connection.endheaders(body)
            reply = read_reply(connection.getresponse())
        except (OSError, HTTPException) as error:
            raise self._connection_error(error) from None
        finally:
            connection.close()
        # Only refusals are printed, and only they may quote a header.
        secrets = (credential.token, headers.get(TOKEN_HEADER, ""))
        return without_secrets(reply, secrets) if reply.code >= 400 else reply

    def upgrade(self, path: str, query: Mapping[str, str | list[str]], protocol: str) -> WebSocket:
        """Open a WebSocket. Accepts any type, because a kubelet answers 406 to a client that accepts JSON alone. Raises
        `ClusterError`."""
        credential = self._credentials.get()
        connection = connect(self.access, credential, self._timeout)
        target = f"{self._prefix}{path}?{urlencode(query, doseq=True)}"
        try:
            found = open_websocket(connection, target, self._headers(credential, accept="*/*"), protocol)
        except (OSError, HTTPException) as error:
            connection.close()
            raise self._connection_error(error) from None
        if isinstance(found, WebSocket):
            return found
        try:
            reply = without_secrets(read_reply(found), (credential.token,))
        except (OSError, HTTPException) as error:
            raise self._connection_error(error) from None
        finally:
            connection.close()
        raise refusal_error(self.access, path, reply)

    def _headers(self, credential: Credential, accept: str = "application/json") -> list[tuple[str, str]]:
        agent = f"kubectl-podslice/{running_version()}"
        return [("User-Agent", agent), ("Accept", accept), *self._credentials.headers(credential)]

    def _connection_error(self, error: Exception) -> ClusterError:
        if isinstance(error, HTTPException):
            remedy = "try again; http:// and https:// in the server are two things"
            return self._error(f"breaks the connection off: {error or type(error).__name__}", remedy)
        return unreachable_error(self.access, error)

    def _error(self, problem: str, remedy: str) -> ClusterError:
        return ClusterError(problem, source=server_text(self.access), remedy=remedy)


def list_events(cluster: Cluster, namespace: str, name: str, *, uid: str = "", most: int = 500) -> list[Any]:
    """Return the Events of a pod, `most` at most; with `uid` not those of another pod of this name. Raises
    `ClusterError`."""
    selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
    query = {"fieldSelector": f"{selector},involvedObject.uid={uid}" if uid else selector, "limit": str(most)}
    return cluster.items(f"/api/v1/namespaces/{namespace}/events", query)


def refusal_error(access: Access, path: str, reply: Reply) -> ClusterError:
    """Return the error for an answer that refuses, with a remedy."""
    status = _status(reply)
    text = str(status.get("message") or "") if status is not None else ""
    problem = " ".join(text.split()) or f"{path}: HTTP {reply.code}"
    remedy = ""
    if reply.code == 401:
        who = f"the credentials of user {access.user_name}" if access.user_name else "a request without credentials"
        problem = f"the API server does not accept {who}: {problem}"
        remedy = "a token or certificate may have expired: log in again, or give another --context"
    elif reply.code == 403:
        remedy = _ROLES
    elif status is not None and (reply.code == 429 or reply.code >= 500):
        remedy = "try again; kubectl get --raw '/readyz?verbose' says how the API server is"
    elif status is None:
        remedy = "is this an API server? look at the server in the kubeconfig"
    else:
        remedy = f"kubectl get --raw {path} asks the same"
    return ClusterError(problem, source=server_text(access), remedy=remedy, status=reply.code, answer=text)


def _status(reply: Reply) -> dict[str, Any] | None:
    """Return the v1 Status of an answer. None means that the answer is not the API server's own, but of a pod behind
    it."""
    if reply.kind != "application/json":
        return None
    try:
        found = reply.decode()
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None
