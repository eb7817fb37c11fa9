"""Where the page is served. The page itself is only there where somebody wants it."""

from __future__ import annotations

import ssl
from typing import NamedTuple

TOKEN_OPTION = "--page-token-file"


class PageListening(NamedTuple):
    """Port 0 leaves it to the system. Without a token, which is read from the file each time, only this machine may
    ask."""

    host: str = "127.0.0.1"
    port: int = 9101
    tls: ssl.SSLContext | None = None
    token_file: str = ""
