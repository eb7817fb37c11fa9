"""Detect writes to files through inotify.

The kernel reports writes to a cgroup's files too, by any program and through any mount.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

LOST = -1
"""In place of a file's number: the kernel's queue overflowed, so any file may have been written."""
_MODIFIED = 0x2
_EVENT = struct.Struct("iIII")
_LARGEST_READ = 64 << 10


class FileWrites:
    """Watches files; each has a number of its own as long as it exists. Raises `OSError` where the kernel offers no
    inotify instance."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _check(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are events to `read`."""
        return self._descriptor

    def follow(self, path: Path) -> int:
        """Watch a file and return its number. Raises `OSError`, also when too many are watched."""
        return _check(self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), _MODIFIED))

    def forget(self, number: int) -> None:
        """Stop watching a file. Does nothing for one that no longer exists: the kernel removed its watch."""
        self._libc.inotify_rm_watch(self._descriptor, number)

    def read(self) -> set[int]:
        """Return the numbers of the files that were written since the last call, `LOST` among them after an
        overflow."""
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
        # Other events are IN_IGNORED: the kernel dropped the watch of a file that is gone.
        if number == LOST or mask & _MODIFIED:
            found.add(number)
        position += _EVENT.size + length
    return found


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
