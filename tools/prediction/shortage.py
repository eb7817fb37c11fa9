"""Resources that a machine lacks for one more kubelet: no difference between the kubelet and podslice."""

from __future__ import annotations

import ctypes
import os
import re

_INSTANCES = 8
"""Inotify instances that a kubelet may take at its start."""
_WORDS = re.compile(
    r"(?i)(?:inotify|fsnotify)[^\n]{0,200}?(?:too many open files|no space left on device)"
    r"|(?:pipe2|accept4|epoll_create1?|fork/exec [^\n:]{1,200}): too many open files"
    r"|fork/exec [^\n:]{1,200}: resource temporarily unavailable"
    r"|cannot allocate memory"
)
_REMEDY = "end other kubelets of this machine, or raise fs.inotify.max_user_instances"


class ShortageError(Exception):
    """Raised when the machine lacks a resource; the text names it and the remedy."""


def shortage_in(log: str) -> str:
    """Return the shortage in a kubelet's log, with the remedy; empty for none."""
    found = _WORDS.search(log)
    if found is None:
        return ""
    return f"{found[0].strip()} ({_REMEDY})" if "inotify" in found[0].lower() else found[0].strip()


def inotify_shortage() -> str:
    """Return why the kernel would refuse the inotify instances that a kubelet needs, which are limited for each user;
    empty where it would not."""
    libc = ctypes.CDLL(None, use_errno=True)
    taken: list[int] = []
    try:
        for _ in range(_INSTANCES):
            descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if descriptor < 0:
                words = os.strerror(ctypes.get_errno()).lower()
                return f"inotify_init: {words} after {len(taken)} of {_INSTANCES} instances ({_REMEDY})"
            taken.append(descriptor)
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return ""
