"""The page beside the service: sockets in threads of its own, queries on the service's event loop."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable

from podslice.cluster.page.app import AT_ONCE, ClusterPage, on_loop
from podslice.cluster.page.listening import TOKEN_OPTION, PageListening
from podslice.cluster.page.queries import ClusterQueries
from podslice.cluster.placements import Placements
from podslice.service.http.access import check_free, listening_error
from podslice.service.http.page_server import PageServer
from podslice.service.supervise import Supervisor
from podslice.service.tokens import read_access_token


class PageHost:
    """Serves the page until `close`. `failed` is called with loops that ended."""

    def __init__(self, placing: Placements, *, failed: Callable[[str, str], None]) -> None:
        self.queries = ClusterQueries(placing, secrets.token_hex(4))
        self._loops = Supervisor(failed)
        self._server: PageServer | None = None
        self._thread: threading.Thread | None = None
        self.url = ""

    def start(self, listening: PageListening) -> None:
        """Start to listen. Raises `InputError` where that fails."""
        file = listening.token_file
        page = ClusterPage(
            self.queries,
            on_loop(asyncio.get_running_loop()),
            token=lambda: read_access_token(file, TOKEN_OPTION) if file else "",
            secure=listening.tls is not None,
        )
        try:
            check_free(listening.host, listening.port)
        except OSError as error:
            raise listening_error(error, listening.host, listening.port, "--page-address") from None
        self._server = PageServer(listening.host, listening.port, page, tls=listening.tls, at_once=AT_ONCE)
        self.url = self._server.url
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="page", daemon=True
        )
        self._thread.start()
        self._loops.start("fragmentation", self.queries.run)

    async def close(self) -> None:
        """Stop listening, and wait for the thread."""
        await self._loops.stop()
        if self._server is not None and self._thread is not None:
            await asyncio.to_thread(self._server.shutdown)
            await asyncio.to_thread(self._thread.join)
            self._server.server_close()
