"""The server against hostile clients: none can end the page or hold it up for others."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from podslice.serve.app import App, ShownNode
from podslice.service.http.guard import LARGEST_BODY, Request
from podslice.service.http.page_server import PageServer
from tests.serve.test_app import LOCAL, POD, post, small_node

TOKEN = "0123456789abcdef"


@pytest.fixture
def server() -> Iterator[PageServer]:
    node = small_node()
    with PageServer("127.0.0.1", 0, App(lambda: ShownNode(node), lambda: "fixed")) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: PageServer, raw: bytes) -> int:
    """Return the status of the answer to these bytes; 0 when the server closes the connection without one."""
    with socket.create_connection(server.server_address[:2], timeout=60) as client:
        client.sendall(raw)
        line = client.makefile("rb").readline()
    return int(line.split()[1]) if line else 0


def alive(server: PageServer) -> bool:
    return ask(server, b"GET /node HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200


@pytest.mark.parametrize(
    ("length", "status"),
    [(b"9" * 5000, 413), (b"9" * 8, 413), (b"-5", 411), (b"+5", 411), ("٣".encode(), 411), (b"", 411), (b"1_0", 411)],
)
def test_lengths(server: PageServer, length: bytes, status: int) -> None:
    """A length that is not a number, or too large, is refused before the body is read."""
    head = b"POST /explain HTTP/1.1\r\nHost: localhost\r\nX-Podslice: 1\r\nContent-Length: "
    assert ask(server, head + length + b"\r\n\r\n") == status
    assert alive(server)


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 40_000 + b"1" + b"}" * 40_000, b"a: " + b"9" * 5000, b"- " * 50_000],
)
def test_bombs(server: PageServer, body: bytes) -> None:
    """A body that is not a pod, however deep, is an answer; the server lives."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request("POST", "/explain", body, {"X-Podslice": "1"})
    assert connection.getresponse().status == 422
    connection.close()
    assert alive(server)


def test_strangers_send_no_body() -> None:
    """A request without the right to an answer is refused before its body is read: without token, own header, right
    host, path or method."""
    node = small_node()
    with PageServer("127.0.0.1", 0, App(lambda: ShownNode(node), lambda: "fixed", token=TOKEN)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        head = b"Host: localhost\r\nX-Podslice: 1\r\nContent-Length: 100\r\n\r\n"
        assert ask(server, b"POST /explain HTTP/1.1\r\n" + head) == 401
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        (b"POST /explain", b"Host: evil.example\r\nX-Podslice: 1\r\n", 403),
        (b"POST /explain", b"Host: localhost\r\n", 403),
        (b"POST /nowhere", b"Host: localhost\r\nX-Podslice: 1\r\n", 404),
        (b"POST /node", b"Host: localhost\r\nX-Podslice: 1\r\n", 405),
    ],
)
def test_refused_before_the_body(server: PageServer, line: bytes, headers: bytes, status: int) -> None:
    """A refusal does not wait for the body that it will not read."""
    assert ask(server, line + b" HTTP/1.1\r\n" + headers + b"Content-Length: 100\r\n\r\n") == status


@pytest.mark.parametrize(
    "host",
    ["localhost:1@evil.com", "localhost@evil.com", "evil.com:localhost", "localhost:", "127.0.0.1:99999", "[::1]:80"],
)
def test_hosts(host: str) -> None:
    """Only a loopback name with a port, and nothing behind it, is this page."""
    node = small_node()
    app = App(lambda: ShownNode(node), lambda: "fixed")
    expected = 403 if "evil" in host else 200
    assert app.respond(Request("GET", "/", headers={"host": host})).status == expected


def test_slow_senders_are_hung_up_on() -> None:
    """A connection lasts a limited time, whatever it sends meanwhile."""
    node = small_node()
    with PageServer("127.0.0.1", 0, App(lambda: ShownNode(node), lambda: "fixed")) as server:
        server.connection_seconds = -1.0
        with socket.create_connection(server.server_address[:2], timeout=60) as client:
            client.sendall(b"POST /explain HTTP/1.1\r\nHost: localhost\r\nX-Podslice: 1\r\nContent-Length: 9\r\n\r\nab")
            server.handle_request()
            server.service_actions()
            assert client.recv(1) == b""


def test_a_busy_page_says_so() -> None:
    """While one request takes long, another gets 503 after a while instead of waiting for ever."""
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> ShownNode:
        entered.set()
        go_on.wait()
        return ShownNode(small_node())

    with PageServer("127.0.0.1", 0, App(slow, lambda: "fixed")) as server:
        server.patience_seconds = 0.0
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        with socket.create_connection(server.server_address[:2], timeout=60) as first:
            first.sendall(b"GET /node HTTP/1.1\r\nHost: localhost\r\n\r\n")
            entered.wait()
            assert ask(server, b"GET /node HTTP/1.1\r\nHost: localhost\r\n\r\n") == 503
            go_on.set()
            assert first.recv(12) == b"HTTP/1.1 200"
        server.shutdown()
        thread.join()


def test_pods_and_containers_are_counted() -> None:
    """A page answers for a limited number of containers and bytes."""
    node = small_node()
    app = App(lambda: ShownNode(node), lambda: "fixed")
    many = "".join(f"  - {{name: c{i}, image: x}}\n" for i in range(201))
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n{many}"
    status, text = post(app, pod)
    assert (status, "201 containers at once" in text) == (422, True)
    assert post(app, "#" * LARGEST_BODY + POD)[0] == 413
    assert app.respond(Request("POST", "/explain", headers=LOCAL)).status == 403
