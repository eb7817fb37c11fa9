"""The address of the page. Apart from the page, which is only imported where it is served."""

from __future__ import annotations

import ssl
from typing import NamedTuple

TOKEN_OPTION = "--page-token-file"


class PageListening(NamedTuple):
    """Port 0 leaves the choice to the system. The token is read from its file for each request; without one only this
    machine may connect."""

    host: str = "127.0.0.1"
    port: int = 9101
    tls: ssl.SSLContext | None = None
    token_file: str = ""
