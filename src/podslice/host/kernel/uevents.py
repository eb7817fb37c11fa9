"""Receive the kernel's uevents about CPUs, memory and NUMA nodes that come or go, on a netlink socket."""

from __future__ import annotations

import socket

_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
_SUBSYSTEMS = frozenset({"cpu", "memory", "node"})
_LONGEST = 1 << 16


def open_uevents() -> socket.socket | None:
    """Open a non-blocking socket for uevents; None where the kernel offers none. In a network namespace other than the
    host's it opens as well, but the kernel never sends anything to it."""
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
    """Whether a uevent is about a CPU, memory or a NUMA node."""
    fields = dict(part.split(b"=", 1) for part in message.split(b"\0") if b"=" in part)
    return fields.get(b"SUBSYSTEM", b"").decode("ascii", "replace") in _SUBSYSTEMS


def drain_uevents(listener: socket.socket) -> bool:
    """Read all pending uevents; return whether one of them concerns the machine, or some were lost."""
    found = False
    while True:
        try:
            message, (sender, _) = listener.recvfrom(_LONGEST)
        except BlockingIOError:
            return found
        except OSError:
            # ENOBUFS: the kernel dropped events because the socket's buffer was full.
            return True
        # Only the kernel sends with port id 0; other processes can send to the socket too.
        found |= sender == 0 and concerns_machine(message)
