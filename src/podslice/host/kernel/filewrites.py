"""Which files somebody has written to, as the kernel tells it (inotify).

The kernel tells of a cgroup's file too when a program writes it, whoever that is and whichever mount it uses.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

LOST = -1
"""In place of a file: the kernel could not keep up, so any may have been written."""
_MODIFIED = 0x2
_EVENT = struct.Struct("iIII")
_LARGEST_READ = 64 << 10


class FileWrites:
    """Follows files, each under a number that is its own as long as it exists. Raises `OSError` where the kernel gives
    no such thing."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """Readable when there is something to `read`."""
        return self._descriptor

    def follow(self, path: Path) -> int:
        """The number of the file. Raises `OSError`, also when there are too many."""
        return _checked(self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), _MODIFIED))

    def forget(self, number: int) -> None:
        """One that no longer exists is forgotten already."""
        self._libc.inotify_rm_watch(self._descriptor, number)

    def read(self) -> set[int]:
        """The numbers of the files that were written since the last call."""
        found: set[int] = set()
        try:
            while data := os.read(self._descriptor, _LARGEST_READ):
                found |= _numbers(data)
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        os.close(self._descriptor)


def _numbers(data: bytes) -> set[int]:
    found, position = set(), 0
    while position < len(data):
        number, mask, _, length = _EVENT.unpack_from(data, position)
        if number == LOST or mask & _MODIFIED:
            found.add(number)
        position += _EVENT.size + length
    return found


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
