"""The socket side of the local page: the standard library's HTTP server, loopback unless a token guards it."""

from __future__ import annotations

import ipaddress
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from podslice.core.errors import InputError
from podslice.web.app import LARGEST_BODY, App, Request, Response

_SHORTEST_TOKEN = 16
_SECURITY = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def check_binding(address: str, token: str) -> None:
    """Refuse to listen where others can connect, unless they need a token. Raises `InputError`."""
    if token and len(token) < _SHORTEST_TOKEN:
        raise InputError(f"{len(token)} characters are too few", path="--token", remedy="use 16 or more, all random")
    if not token and not is_loopback(address):
        raise InputError(
            f"{address} is not a loopback address, anybody who reaches it could read this node",
            path="--address",
            remedy="leave it out, or give --token as well",
        )


def is_loopback(address: str) -> bool:
    """True for `localhost` and addresses of the loopback network."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Server(ThreadingHTTPServer):
    """Serves an `App`. Answers are made one at a time, because they share a node."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, port: int, app: App) -> None:
        self.app = app
        self.lock = threading.Lock()
        if ":" in address:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((address, port), _Handler)
        except OSError as error:
            raise InputError(f"cannot listen: {error.strerror}", path=f"{address}:{port}") from None

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        shown = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "podslice"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            self.close_connection = True
            self._send(Response(411 if not length.isdecimal() else 413))
            return
        self._answer(self.rfile.read(int(length)))

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.lock:
            response = self.server.app.respond(Request(self.command, path, query, headers, body))
        self._send(response)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in (*_SECURITY, *response.headers):
            self.send_header(name, value)
        if response.status != 304:
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged; a page that looks every second would fill the terminal."""
