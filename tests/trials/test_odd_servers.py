"""API servers that are none, or odd: the plugin says one line with what to do and ends with 2, and tells no secret."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.certificates import OPENSSL, make

from podslice.cluster.apiclient import HTTPClusterApi
from podslice.kubectl.reply import LARGEST_ANSWER
from podslice.service.answers import ApiError
from podslice.service.http import apiconnection
from tests.agent.test_apiserver import access
from tests.clock import until
from tests.kubectl.conftest import Plugin
from tests.kubectl.fakeapi import kubeconfig

TOKEN = "tell-nobody-eyJhbGciOi"
COMMANDS = (("top",), ("node", "n7"), ("pod", "default/web"), ("pending",), ("audit",))
Send = Callable[[bytes], None]
Answer = Callable[[str, Send], None]


class OddServer:
    """Hands every request's path and a way to send to `answer`, and hangs up afterwards. `heads` are the requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.heads: list[str] = []
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self.threads: list[threading.Thread] = []
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self.threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self.threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(65536)
                if not data:
                    return
                head += data
            self.heads.append(head.decode("latin-1"))
            path = head.split(b" ", 2)[1].decode("latin-1")
            self.answer(path, connection.sendall)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            while connection.recv(65536):
                pass

    def close(self) -> None:
        self.ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in (self._thread, *self.threads):
            thread.join()


@contextlib.contextmanager
def odd_server(answer: Answer) -> Iterator[OddServer]:
    server = OddServer(answer)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def plugin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plugin:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return Plugin(capsys, monkeypatch)


def one_line(plugin: Plugin, *arguments: str) -> str:
    """The one line of an error, which a person can read and act on."""
    answer = plugin(*arguments)
    assert (answer.returncode, answer.stdout) == (2, ""), answer
    (line,) = answer.stderr.splitlines()
    assert line.startswith("podslice: error: ")
    assert line.endswith(")"), "no remedy"
    assert line.isprintable()
    assert len(line) < 2500
    assert TOKEN not in line
    return line


def use(folder: Path, monkeypatch: pytest.MonkeyPatch, server: str, **facts: Any) -> None:
    user = facts.pop("user", {"token": TOKEN})
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(folder, server, user=user, **facts)))


def http(code: int, body: bytes | str = b"", *headers: str, kind: str = "application/json") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {code} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join((*lines, "", "")).encode() + data


def told(code: int, message: Any = "no", *headers: str, **more: Any) -> bytes:
    """A v1 Status."""
    return http(code, json.dumps({"kind": "Status", "status": "Failure", "message": message, **more}), *headers)


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + body + end


PODS = b'{"kind":"PodList","items":[]}'
ANSWERS: dict[str, bytes] = {
    "nothing": b"",
    "garbage": bytes(range(256)),
    "http 0.9": PODS,
    "html": http(200, "<html>log in</html>", kind="text/html"),
    "html as json": http(200, "<html>log in</html>"),
    "html error": http(500, "<html>oops</html>", kind="text/html"),
    "not utf-8": http(200, b'{"items":["\xff\xfe"]}'),
    "half a surrogate": http(200, b'{"items":"\\ud800"}'),
    "cut": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n" + PODS,
    "cut chunk": chunked(PODS)[:-20],
    "chunk of letters": chunked(end=b"xyz\r\n{}\r\n0\r\n\r\n"),
    "chunk of minus": chunked(end=b"-5\r\n{}\r\n0\r\n\r\n"),
    "cut head": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "long status line": b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n",
    "long header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    "status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "status 0": b"HTTP/1.1 000 OK\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
    "no content": b"HTTP/1.1 204 OK\r\n\r\n",
    "gzip": http(200, gzip.compress(PODS), "Content-Encoding: gzip"),
    "gzip bomb": http(200, gzip.compress(b"[" * (64 << 20)), "Content-Encoding: gzip"),
    "null": http(200, "null"),
    "a list": http(200, "[]"),
    "a number": http(200, "3"),
    "a text": http(200, '"x"'),
    "deep": http(200, "[" * 100_000),
    "items text": http(200, '{"items":"x"}'),
    "items number": http(200, '{"items":3}'),
    "items map": http(200, '{"items":{"a":1}}'),
    "null item": http(200, '{"items":[null]}'),
    "text item": http(200, '{"items":["x"]}'),
    "list item": http(200, '{"items":[[1]]}'),
    "empty item": http(200, '{"items":[{}]}'),
    "odd metadata": http(200, '{"items":[{"metadata":"x","spec":{"containers":[]}}]}'),
    "odd spec": http(200, '{"items":[{"metadata":{"name":"a","namespace":"b"},"spec":[]}]}'),
    "odd containers": http(200, '{"items":[{"metadata":{"name":"a","namespace":"b"},"spec":{"containers":[null]}}]}'),
    "odd names": http(200, '{"items":[{"metadata":{"name":5,"namespace":[]},"spec":{"nodeName":{"a":1},'
                           '"containers":[]}}]}'),
    "odd port": http(200, '{"items":[{"metadata":{"name":"a","namespace":"b"},"spec":{"nodeName":"n7","containers":'
                          '[{"ports":[{"name":"status","containerPort":"1/../.."},{"name":"page","containerPort":[]}]}'
                          ']},"status":{"phase":"Running"}}]}'),
    "odd status": http(200, '{"items":[{"metadata":{"name":"a","namespace":"b"},"spec":{"nodeName":"n7","containers":'
                            '[]},"status":{"phase":{},"containerStatuses":[3]}}]}'),
    "redirect": http(302, "", "Location: http://127.0.0.1:1/"),
    "redirect forever": http(301, "", "Location: /"),
    "permanent redirect": http(308, "", "Location: https://elsewhere.invalid/"),
    "401": told(401, "Unauthorized"),
    "401 html": http(401, "<html>", kind="text/html"),
    "401 echo": told(401, f"not accepted: Bearer {TOKEN}"),
    "403": told(403, "forbidden"),
    "404": told(404, "not found"),
    "409": told(409, "conflict"),
    "410": told(410, "too old resource version"),
    "429 soon": told(429, "slow down", "Retry-After: 1"),
    "429 never": told(429, "slow down", f"Retry-After: {'9' * 400}"),
    "429 negative": told(429, "slow down", "Retry-After: -1"),
    "429 a date": told(429, "slow down", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"),
    "500": told(500, "etcd"),
    "500 empty": http(500),
    "599": told(599, None),
    "long message": told(500, "x" * 3_000_000),
    "escapes": told(500, "\x1b[2J\x07\r\nfoo\u202ebar"),
    "message list": told(500, [{"a": 1}]),
    "echo in text": http(400, f"your request: Authorization: Bearer {TOKEN}", kind="text/plain"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_odd_answer(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever is answered, to any command: one line, exit code 2, and the token stays here."""
    with odd_server(lambda path, send: send(ANSWERS[name])) as server:
        use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}")
        for command in COMMANDS:
            one_line(plugin, *command)
            one_line(plugin, *command, "--via", "proxy")
        assert server.heads


def drip(send: Send, ended: threading.Event, head: bytes, piece: bytes, wait: float = 0.01) -> None:
    """The head, and then more and more until the client is gone."""
    send(head)
    while not ended.is_set():
        send(piece)
        ended.wait(wait)


ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "body byte by byte": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "head byte by byte": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "status byte by byte": (b"HTTP/1.1 200 ", b"x"),
    "coming": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "trailers": (chunked(PODS, end=b"0\r\n"), b"X: y\r\n"),
    "chunks": (chunked(PODS, end=b""), b"1\r\n \r\n"),
    "silence": (b"", b""),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_end(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One that comes for ever, a little at a time, ends with the time that one request may take."""
    with odd_server(lambda path, send: drip(send, server.ended, *ENDLESS[name])) as server:
        use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}")
        line = one_line(plugin, "top", "--request-timeout", "200ms")
        assert "does not answer (is there a way to it (VPN, firewall)? --request-timeout waits longer)" in line


@pytest.mark.slow
def test_a_huge_answer_takes_a_bounded_place(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read up to the bound and no further."""
    sent = [0]

    def answer(path: str, send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while not server.ended.is_set():
            send(b" " * (1 << 20))
            sent[0] += 1 << 20

    with odd_server(answer) as server:
        use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert f"larger than {LARGEST_ANSWER >> 20} MiB" in one_line(plugin, "top")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * LARGEST_ANSWER >> 10
    assert sent[0] < 2 * LARGEST_ANSWER


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_does_not_get_the_token(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Another host is neither asked nor told who asks."""
    with odd_server(lambda path, send: send(http(200, PODS))) as elsewhere:
        place = f"Location: http://127.0.0.1:{elsewhere.port}/"
        with odd_server(lambda path, send: send(http(code, "", place))) as server:
            use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}")
            assert f"HTTP {code} (is this an API server?" in one_line(plugin, "top")
            assert f"Authorization: Bearer {TOKEN}" in server.heads[0]
    assert elsewhere.heads == []


def agents(port: int = 9096) -> bytes:
    one = {
        "metadata": {"name": "a", "namespace": "podslice"},
        "spec": {"nodeName": "n7", "containers": [{"ports": [{"name": "status", "containerPort": port}]}]},
        "status": {"phase": "Running"},
    }
    return http(200, json.dumps({"items": [one]}))


def accepted(head: str) -> bytes:
    """The key of an upgrade, answered."""
    import base64
    import hashlib

    key = head.lower().split("sec-websocket-key:")[1].split("\r\n")[0].strip()
    key = head[head.lower().index(key) :][: len(key)]
    found = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    return b"Sec-WebSocket-Accept: " + base64.b64encode(found) + b"\r\n"


UPGRADES: dict[str, tuple[bytes, bytes, bytes]] = {
    "closing": (b"Connection: close\r\n", b"", b""),
    "nothing": (b"", b"", b""),
    "a huge frame": (b"", b"\x82\x7f" + b"\xff" * 8, b""),
    "cut frame": (b"", b"\x82\x7e\x10", b""),
    "error channel": (b"", b"\x82\x06\x01ab\x1b[2", b""),
    "pings for ever": (b"", b"", b"\x89\x00"),
    "empty pieces for ever": (b"", b"", b"\x02\x00"),
    "another protocol": (b"Sec-WebSocket-Protocol: other\r\n", b"", b""),
    "no http": (b"", b"\x82\x0d\x00\x00\x00garbage\r\n\r\n", b""),
}


@pytest.mark.parametrize("name", UPGRADES)
def test_an_odd_upgrade(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever comes in place of a port-forward is one line about that agent."""
    headers, frames, piece = UPGRADES[name]

    def answer(path: str, send: Send) -> None:
        if "portforward" not in path:
            return send(agents())
        upgrade = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n" + accepted(server.heads[-1])
        send(upgrade + (headers or b"Connection: Upgrade\r\n") + b"\r\n" + frames)
        return drip(send, server.ended, b"", piece) if piece else None

    with odd_server(answer) as server:
        use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}")
        one_line(plugin, "node", "n7", "--request-timeout", "500ms")
        assert any("portforward" in head for head in server.heads)


@pytest.mark.parametrize("secret", [
    {"data": {"token": "a\nb"}}, {"data": {"token": "YQpiCg=="}}, {"data": {"token": "/w=="}}, {"data": []}, {},
    {"data": {"token": None}}, {"data": {"token": 5}}, {"data": {"token": "é"}}, {"data": {"token": ""}},
])  # fmt: skip
def test_an_odd_secret(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: Any) -> None:
    """A Secret that holds no token, or one that no header can hold."""
    listed = json.loads(agents().partition(b"\r\n\r\n")[2])
    listed["items"][0]["spec"]["volumes"] = [{"name": "status-token", "secret": {"secretName": "s"}}]

    def answer(path: str, send: Send) -> None:
        send(http(200, json.dumps(secret if "/secrets/" in path else listed)))

    with odd_server(answer) as server:
        use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}")
        assert "Secret podslice/s holds no token" in one_line(plugin, "node", "n7")


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")
@pytest.mark.process
def test_tls(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate of nobody known: nothing is asked, so nothing is told."""
    context = make(tmp_path / "certs", name="DNS:kubernetes").server()
    got: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError), listener, context.wrap_socket(listener.accept()[0], server_side=True) as tls:
            got.append(tls.recv(65536))

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    use(tmp_path, monkeypatch, f"https://127.0.0.1:{listener.getsockname()[1]}")
    assert "the certificate is not trusted" in one_line(plugin, "top")
    thread.join()
    assert got == []


def test_a_list_that_comes_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's list ends with an error that it can try again after; so does the text of a refusal."""
    monkeypatch.setattr(apiconnection, "LONGEST_SECONDS", 0.1)
    monkeypatch.setattr(apiconnection, "REQUEST_SECONDS", 0.1)
    for code, said in (("200", "takes more than 0 s"), ("500", "500 X: oops")):
        head = f"HTTP/1.1 {code} X\r\nContent-Length: 100000\r\n\r\noops".encode()
        with odd_server(lambda path, send, head=head: drip(send, server.ended, head, b" ")) as server:

            async def main() -> None:
                api = HTTPClusterApi(access(server.port))
                try:
                    async with asyncio.timeout(60):
                        await api.page("/api/v1/pods", "", "")
                finally:
                    await api.close()

            with pytest.raises(ApiError, match=said):
                asyncio.run(main())


def test_words_after_an_answer_belong_to_no_other() -> None:
    """A server that goes on after its answer cannot make up the next one, and takes no place here."""
    sent = [0]

    def answer(path: str, send: Send) -> None:
        send(http(200, b'{"real": 1}'))
        if len(server.heads) == 1:
            while sent[0] < 64 << 20:
                send(http(200, b'{"made": "up"}') * 100)
                sent[0] += 1 << 14

    async def main() -> None:
        connection = apiconnection.ApiConnection(access(server.port), path="test")
        try:
            assert await connection.ask("/x") == b'{"real": 1}'
            await until(lambda: not server.threads[0].is_alive())
            assert await connection.ask("/y") == b'{"real": 1}'
        finally:
            await connection.close()

    with odd_server(answer) as server:
        asyncio.run(main())
        assert sent[0] < 64 << 20
