"""Addresses of listeners as settings and options name them."""

from __future__ import annotations

import re

from podslice.values.errors import InputError

_ADDRESS = re.compile(r"(?P<host>[0-9a-zA-Z.:\[\]-]*):(?P<port>\d{1,5})\Z")


def parse_address(text: str, field: str, example: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT, None for nothing. Raises `InputError`."""
    if not text:
        return None
    match = _ADDRESS.match(text)
    if match is None or int(match["port"]) > 65535:
        raise InputError(f"{text!r} is not an address", path=field, remedy=f"write {example}")
    return match["host"].strip("[]") or "127.0.0.1", int(match["port"])
