"""The kernel's announcements that a CPU, memory or a NUMA node came or went (uevents on a netlink socket)."""

from __future__ import annotations

import socket

_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
_SUBSYSTEMS = frozenset({"cpu", "memory", "node"})
_LONGEST = 1 << 16


def open_uevents() -> socket.socket | None:
    """A socket that hears them, without blocking; None where there is none: not the host's network namespace does not
    show, it is just never told anything."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        listener = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _KOBJECT_UEVENT)
    except OSError:
        return None
    try:
        listener.setblocking(False)
        listener.bind((0, _KERNEL_GROUP))
    except OSError:
        listener.close()
        return None
    return listener


def concerns_machine(message: bytes) -> bool:
    """True for an event about a CPU, memory or a NUMA node."""
    fields = dict(part.split(b"=", 1) for part in message.split(b"\0") if b"=" in part)
    return fields.get(b"SUBSYSTEM", b"").decode("ascii", "replace") in _SUBSYSTEMS


def heard(listener: socket.socket) -> bool:
    """Read everything that is there; True if some of it concerns the machine, or was lost."""
    found = False
    while True:
        try:
            message, (sender, _) = listener.recvfrom(_LONGEST)
        except BlockingIOError:
            return found
        except OSError:
            return True
        found |= sender == 0 and concerns_machine(message)
