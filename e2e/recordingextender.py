"""A scheduler extender that writes down what kube-scheduler asks, and answers what a test says.

It shares no code with `podslice cluster`, so that what it sees is a fact about kube-scheduler and not about us.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Json = dict[str, Any]


class Call(NamedTuple):
    """One request; `verb` is the last part of its path."""

    path: str
    verb: str
    headers: dict[str, str]
    body: Json

    @property
    def pod(self) -> str:
        """The name of the pod it is about."""
        if self.verb == "bind":
            return str(self.body.get("PodName"))
        return str(self.body["Pod"]["metadata"]["name"])


class Reply(NamedTuple):
    """The answer: a document, or raw bytes."""

    body: Any
    status: int = 200


Answerer = Callable[[Call], Reply]


class RecordingExtender:
    """Listens on a free port of the loopback. `answers` has what is said about a pod by its name, else `everything`
    says it."""

    def __init__(self, everything: Answerer) -> None:
        self.calls: list[Call] = []
        self.answers: dict[str, Answerer] = {}
        self._everything = everything
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                call = Call(self.path, self.path.rsplit("/", 1)[1], dict(self.headers.items()), json.loads(raw))
                reply = recorder._reply(call)
                body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                with contextlib.suppress(OSError):
                    self.send_response(reply.status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Calls are kept, not printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def _reply(self, call: Call) -> Reply:
        self.calls.append(call)
        return self.answers.get(call.pod, self._everything)(call)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def of(self, pod: str, verb: str = "") -> list[Call]:
        """The calls about a pod, of one verb or of all."""
        return [call for call in self.calls if call.pod == pod and verb in ("", call.verb)]

    def __enter__(self) -> RecordingExtender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
