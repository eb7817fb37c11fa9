"""A read-only view of /sys and /proc under some root: this machine, a directory, or a tar of another machine.

Discovery only needs to list directories and read small text files, so that is the whole contract; `MemoryRoot` is
both the tar back end and the fake for tests.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from podslice.core.errors import InputError

_LARGEST_FILE = 4 << 20
_LARGEST_ARCHIVE = 512 << 20
_MOST_MEMBERS = 500_000


class Root(Protocol):
    """Paths are relative to the root and use `/`: `sys/devices/system/cpu/online`."""

    name: str

    def read(self, path: str) -> str | None:
        """Text of a file, without NUL bytes; None if it does not exist or cannot be read."""

    def list(self, path: str) -> list[str]:
        """Names in a directory in byte order; empty if it does not exist."""


class DirectoryRoot:
    """A directory that has `sys` and `proc` below it; `/` is this machine."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def read(self, path: str) -> str | None:
        try:
            with (self._path / path).open("rb") as file:
                return file.read(_LARGEST_FILE).replace(b"\0", b"").decode("utf-8", errors="replace")
        except OSError:
            return None

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path / path))
        except OSError:
            return []


class MemoryRoot:
    """Files in memory: `files` maps paths to texts, `links` maps paths to link targets."""

    def __init__(self, files: Mapping[str, str], links: Mapping[str, str] | None = None, name: str = "memory") -> None:
        self.name = name
        self._files = dict(files)
        self._links = dict(links or {})
        self._entries: dict[str, set[str]] = {}
        for path in (*self._files, *self._links):
            self._register(path)

    def add_directory(self, path: str) -> None:
        """Make an empty directory known."""
        self._register(posixpath.join(path, "."))

    def _register(self, path: str) -> None:
        while path:
            path, _, name = path.rpartition("/")
            names = self._entries.setdefault(path, set())
            if name in names:
                return
            if name != ".":
                names.add(name)

    def _resolve(self, path: str) -> str:
        """Follow links, at most 40 of them; a loop resolves to a path that does not exist."""
        for _ in range(40):
            done = ""
            for part in path.split("/"):
                done = f"{done}/{part}" if done else part
                target = self._links.get(done)
                if target is not None:
                    rest = path[len(done) :].lstrip("/")
                    base = "" if target.startswith("/") else posixpath.dirname(done)
                    path = posixpath.normpath(posixpath.join(base, target.lstrip("/"), rest)).removeprefix("../")
                    break
            else:
                return path
        return "\0"

    def read(self, path: str) -> str | None:
        text = self._files.get(path)
        return text if text is not None else self._files.get(self._resolve(path))

    def list(self, path: str) -> list[str]:
        return sorted(self._entries.get(self._resolve(path.rstrip("/")), ()))


def open_root(path: Path) -> Root:
    """A snapshot: a directory, or a tar (also compressed) with `sys` and `proc` in it. Raises `InputError`."""
    if path.is_dir():
        if not (path / "sys").is_dir():
            raise InputError("has no sys directory", source=str(path), remedy="give the folder that holds sys and proc")
        return DirectoryRoot(path)
    try:
        return _open_tar(path)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(
            f"is not a readable snapshot: {error}", source=str(path), remedy="give a directory or a tar"
        ) from error


def _open_tar(path: Path) -> MemoryRoot:
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    directories: list[str] = []
    total = 0
    with tarfile.open(path) as archive:
        for count, member in enumerate(archive):
            name = _inner_path(member.name)
            total += member.size
            if total > _LARGEST_ARCHIVE or count > _MOST_MEMBERS:
                raise InputError("is larger than any snapshot of one machine", source=str(path))
            if not name:
                continue
            if member.isfile() and member.size <= _LARGEST_FILE:
                content = archive.extractfile(member)
                if content is not None:
                    files[name] = content.read().replace(b"\0", b"").decode("utf-8", errors="replace")
            elif member.issym():
                links[name] = member.linkname
            elif member.isdir():
                directories.append(name)
    if not any(name.startswith("sys/") for name in (*files, *directories)):
        raise InputError("has no sys directory", source=str(path), remedy="pack the folders sys and proc")
    root = MemoryRoot(files, links, str(path))
    for directory in directories:
        root.add_directory(directory)
    return root


def _inner_path(name: str) -> str:
    """The path from `sys` or `proc` on, whatever folder the snapshot was packed in; empty for anything else."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        return ""
    for index, part in enumerate(parts):
        if part in ("sys", "proc"):
            return "/".join(parts[index:])
    return ""
