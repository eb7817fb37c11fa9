"""The HTTP server of the local page, on the standard library's. It listens on loopback addresses unless it has a
token."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from podslice.service.http.access import SHORTEST_TOKEN, is_loopback
from podslice.service.http.connections import ConnectionTable, is_reserved
from podslice.service.http.guard import LARGEST_BODY, Request, Response
from podslice.values.errors import InputError

_LENGTH = re.compile(r"[0-9]+")
_MOST_CONNECTIONS, _MOST_OF_PEER = 64, 32
_CONNECTION_SECONDS = 60.0
"""Seconds that a connection may last, however slowly the client sends or reads."""
_PATIENCE_SECONDS = 20.0
"""Seconds that a request waits for the one before it."""
_SECURITY = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def check_binding(address: str, token: str) -> None:
    """Check that others can only connect where a token is required. Raises `InputError`."""
    if token and len(token) < SHORTEST_TOKEN:
        raise InputError(f"{len(token)} characters are too few", path="--token", remedy="use 16 or more, all random")
    if not token and not is_loopback(address):
        raise InputError(
            f"{address} is not a loopback address, anyone who reaches it could read this node",
            path="--address",
            remedy="leave it out, or give --token as well",
        )


class PageApp(Protocol):
    """The application: functions from request to response."""

    def refusal_of(self, request: Request) -> Response | None:
        """Return the refusal of a request whose body is not even read, None for a permitted one."""

    def respond(self, request: Request) -> Response:
        """Answer a request. Never raises for anything that a client sends."""


class PageServer(ThreadingHTTPServer):
    """Serves a `PageApp`, over TLS where it has a context. Connections are limited in number and time.

    `at_once`: how many requests the app can answer at the same time.
    """

    daemon_threads = True
    block_on_close = False
    connection_seconds = _CONNECTION_SECONDS
    patience_seconds = _PATIENCE_SECONDS

    def __init__(
        self, address: str, port: int, app: PageApp, *, tls: ssl.SSLContext | None = None, at_once: int = 1
    ) -> None:
        self.app = app
        self.turns = threading.BoundedSemaphore(at_once)
        self._connections: dict[socket.socket, float] = {}
        self._table: ConnectionTable[socket.socket] = ConnectionTable(_MOST_CONNECTIONS, _MOST_OF_PEER)
        self._lock = threading.Lock()
        if ":" in address:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((address, port), Handler)
        except OSError as error:
            raise InputError(f"cannot listen: {error.strerror}", path=f"{address}:{port}") from None
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            # The handshake happens in the thread of the connection: a silent client must not stop the accept loop.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, unless there are too many."""
        if is_reserved(request.fileno()):
            self.shutdown_request(request)
            return
        with self._lock:
            leaving = self._table.add(request, str(client_address[0]))
        for one in leaving:
            self._hang_up(one)
        self._connections[request] = time.monotonic() + self.connection_seconds
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection and close it."""
        self._connections.pop(request, None)
        with self._lock:
            self._table.remove(request)
        super().shutdown_request(request)

    def prove(self, request: socket.socket) -> None:
        """Note that the connection has sent a request that it may send."""
        with self._lock:
            self._table.prove(request)

    def _hang_up(self, connection: socket.socket) -> None:
        # shutdown, not close: the connection's thread wakes up and closes the descriptor, so no other file gets its
        # number while that thread still uses it.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def service_actions(self) -> None:
        """Close connections that last too long. The server's loop calls this between connections."""
        now = time.monotonic()
        for connection, end in list(self._connections.items()):
            if now > end:
                self._hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over errors of clients that hang up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The address for a browser."""
        host, port = self.server_address[:2]
        shown = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"{self._scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}/"


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "podslice"
    sys_version = ""
    timeout = 30

    def setup(self) -> None:
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            # By itself it would happen with the first read, where its errors are not distinguished.
            self.connection.do_handshake()

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        """Answer a POST. The body of a request that is not permitted is not read."""
        refusal = self.server.app.refusal_of(self._request(b"")) or self._length_refused()
        if refusal is not None:
            # The body is still to come, so the connection cannot be used for another request.
            self.close_connection = True
            self._send(refusal)
            return
        wanted = int(self.headers["Content-Length"])
        body = self.rfile.read(wanted)
        if len(body) == wanted:
            self._answer(body)
        else:
            self.close_connection = True

    def _length_refused(self) -> Response | None:
        length = self.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(length):
            return Response(411)
        return Response(413) if len(length) > len(str(LARGEST_BODY)) or int(length) > LARGEST_BODY else None

    def _request(self, body: bytes) -> Request:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(self.command, path, query, headers, body)

    def _answer(self, body: bytes) -> None:
        if self.server.app.refusal_of(self._request(b"")) is None:
            self.server.prove(self.connection)
        if not self.server.turns.acquire(timeout=self.server.patience_seconds):
            self.close_connection = True
            self._send(Response(503, b"busy with another request\n"))
            return
        try:
            response = self.server.app.respond(self._request(body))
        finally:
            self.server.turns.release()
        self._send(response)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in (*_SECURITY, *response.headers):
            self.send_header(name, value)
        # A 304 has no body, and a length would be that of the full response (RFC 9110, 8.6).
        if response.status != 304:
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a page that refreshes every second would fill the terminal."""
