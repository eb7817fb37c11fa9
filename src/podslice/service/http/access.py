"""Addresses of our servers, and checks of the requests that they answer.

Without a token only requests from the same machine are answered. A page of another site can make a browser ask a
loopback address under a name of its own (DNS rebinding), so the `Host` of such a request must name this machine.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import re
import socket

from podslice.values.errors import InputError

SHORTEST_TOKEN = 16
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""A machine without IPv6 has `localhost` as an IPv6 address all the same."""
_ADDRESS = re.compile(r"(?P<host>[0-9a-zA-Z.:\[\]-]*):(?P<port>\d{1,5})\Z")
_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{0,5})?")


def parse_address(text: str, field: str, example: str) -> tuple[str, int] | None:
    """Return host and port of HOST:PORT, None for an empty text. Raises `InputError`.

    `field` names the setting or option in the message, `example` is an address that would be right.
    """
    if not text:
        return None
    match = _ADDRESS.match(text)
    if match is None or int(match["port"]) > 65535:
        raise InputError(f"{text!r} is not an address", path=field, remedy=f"write {example}")
    return match["host"].strip("[]") or "127.0.0.1", int(match["port"])


def check_free(host: str, port: int) -> None:
    """Raise `OSError` where a listener could not be opened at this address; port 0 is always free. Of a name with
    several addresses one must be of this machine."""
    missing: OSError | None = None
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, number, _, address in found:
        try:
            with socket.socket(family, kind, number) as trial:
                # As a listener does: connections of one that has just ended do not keep the port.
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
                trial.listen(1)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            found, missing = [one for one in found if one[4] != address], error
    if missing is not None and not found:
        raise missing


def listening_error(error: OSError, host: str, port: int, option: str, more: str = "") -> InputError:
    """Return the error of a listener that names its option and its address."""
    # The text of asyncio repeats the address; numbers below 0 are of the resolver.
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    return InputError(
        f"{host}:{port} cannot be listened on: {reason}", path=option, remedy=f"free it or choose another{more}"
    )


def is_loopback(address: str) -> bool:
    """Whether this is `localhost` or an address of the loopback network."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_local_host(host: str) -> bool:
    """Whether the header `Host` names this machine, and not a site."""
    return _LOOPBACK.fullmatch(host.lower()) is not None


def is_token(given: str, token: str) -> bool:
    """Whether `given` is the token. Every wrong one takes the same time, so that it cannot be found out by parts."""
    return hmac.compare_digest(given.encode(), token.encode())
