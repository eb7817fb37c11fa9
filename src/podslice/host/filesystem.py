"""File systems from which machines are read, below a root.

Every reader of a machine takes a `FileSystem`, so the same code reads this machine (`DiskFileSystem("/")`), a captured
tree on disk, a captured archive held in memory, and a dictionary in a test (`MemoryFileSystem`).
Paths are relative to the root and have no leading slash (`sys/devices/system/cpu/online`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

MAX_FILE_BYTES = 32 << 20
"""Largest file read. `/proc/cpuinfo` of 8192 CPUs is about 12 MiB; everything else in sysfs is smaller than a page."""

_MAX_LINKS = 16


class FileSystem(Protocol):
    """The interface of readers: text of a file, names in a directory, and a label for messages."""

    @property
    def label(self) -> str: ...

    def read(self, path: str) -> str:
        """Return the whole text. Raises `FileNotFoundError`, or another `OSError` when it exists but cannot be read."""
        ...

    def entries(self, path: str) -> list[str]:
        """Return the names in a directory in byte order; empty when there is no such directory."""
        ...


class DiskFileSystem:
    """The files below `root` on disk; nothing is cached."""

    def __init__(self, root: str | Path = "/") -> None:
        self.root = Path(root)
        self._prefix = os.path.join(str(root), "")

    @property
    def label(self) -> str:
        return str(self.root)

    def read(self, path: str) -> str:
        with open(self._prefix + path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return _text(content)

    def entries(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._prefix + path), key=os.fsencode)
        except (FileNotFoundError, NotADirectoryError):
            return []


class MemoryFileSystem:
    """Files given as a mapping of path to content, with symbolic links (path to target) and empty directories."""

    def __init__(
        self,
        files: Mapping[str, str | bytes],
        links: Mapping[str, str] | None = None,
        *,
        directories: Iterable[str] = (),
        label: str = "memory",
    ) -> None:
        self._files = files
        self._links = links or {}
        self._label = label
        self._directories: dict[str, set[str]] = {"": set()}
        for path in (*self._files, *self._links, *directories):
            self._register(path)
        for path in directories:
            self._directories.setdefault(path, set())

    @property
    def label(self) -> str:
        return self._label

    def _register(self, path: str) -> None:
        while path:
            parent, _, name = path.rpartition("/")
            names = self._directories.setdefault(parent, set())
            if name in names:
                return
            names.add(name)
            path = parent

    def read(self, path: str) -> str:
        # Most paths have no link in them; following one costs a look-up per part.
        content = self._files.get(path)
        if content is None:
            content = self._files.get(self._resolve(path))
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return content if isinstance(content, str) else _text(content)

    def entries(self, path: str) -> list[str]:
        names = self._directories.get(path)
        if names is None:
            names = self._directories.get(self._resolve(path), set())
        return sorted(names, key=os.fsencode)

    def _resolve(self, path: str) -> str:
        """Follow symbolic links; links that leave the root are cut off at it. Raises `OSError` for a loop."""
        pending = path.split("/")[::-1]
        done: list[str] = []
        followed = 0
        while pending:
            part = pending.pop()
            if part == "..":
                del done[-1:]
            elif part not in ("", "."):
                target = self._links.get("/".join([*done, part]))
                if target is None:
                    done.append(part)
                    continue
                followed += 1
                if followed > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    done.clear()
                pending.extend(target.split("/")[::-1])
        return "/".join(done)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
