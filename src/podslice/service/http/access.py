"""Who may ask a server of this program: everybody on the same machine, or whoever knows the token.

A page of another site can make a browser ask a loopback address under a name of its own (DNS rebinding), so without a
token the name that was asked for must be the machine's.
"""

from __future__ import annotations

import hmac
import ipaddress
import re

SHORTEST_TOKEN = 16
_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{0,5})?")


def is_loopback(address: str) -> bool:
    """True for `localhost` and addresses of the loopback network."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def asks_localhost(host: str) -> bool:
    """Whether the header `Host` names this machine and no site."""
    return _LOOPBACK.fullmatch(host.lower()) is not None


def knows(given: str, token: str) -> bool:
    """Whether somebody gave the token; takes as long for every wrong one."""
    return hmac.compare_digest(given.encode(), token.encode())
