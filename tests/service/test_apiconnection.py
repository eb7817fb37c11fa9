"""The connection to an API server: kept open from call to call."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lightkube.config.kubeconfig import KubeConfig

from podslice.service.http.apiconnection import ApiConnection


def test_connections_are_kept() -> None:
    """Calls one after the other use one connection: their answers are read to the end, though nobody needs them."""
    clients: set[tuple[str, int]] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PATCH(self) -> None:
            clients.add(self.client_address)
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"kind":"Pod","more":"' + b"x" * 300_000 + b'"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    config = KubeConfig.from_dict(
        {
            "clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
        }
    ).get()  # fmt: skip

    async def main() -> None:
        connection = ApiConnection(config, path="test")
        for _ in range(5):
            await connection.send("PATCH", "/x", b"{}")
        await connection.close()

    asyncio.run(main())
    server.shutdown()
    server.server_close()
    thread.join()
    assert len(clients) == 1
