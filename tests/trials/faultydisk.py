"""A disk that fails: the n-th write operation below a folder, and those after it, raise what a full disk raises, or one
that is read-only.

    with FaultyDisk(folder, ENOSPC, at=3) as disk: ...   # operations 3, 4, 5 ... fail
    disk.operations                                      # what was tried, `write .cpu_manager_state.new` and so on

Whoever writes goes through `os` or through files opened by `open` and `pathlib`. Both are replaced for the time of the
block. Other folders are left alone.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENOSPC, EROFS, EACCES = errno.ENOSPC, errno.EROFS, errno.EACCES
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NEVER = 1 << 60
_FREEING = ("unlink", "remove", "rmdir")


class FaultyDisk:
    """Counts the write operations below `root`; those from `at` on fail with `error`, `count` of them. With `short` a
    write that fails has put half of its data there. A full disk lets files be removed, a read-only one does not."""

    def __init__(
        self, root: Path, error: int = ENOSPC, *, at: int = _NEVER, count: int = _NEVER, short: bool = False
    ) -> None:
        self.root = os.path.realpath(root)
        self.error, self.at, self.count, self.short = error, at, count, short
        self.operations: list[str] = []
        self.failed: list[str] = []
        self._known: dict[int, str] = {}
        self._replaced: list[tuple[Any, str, Any]] = []
        self._half: set[int] = set()

    def __enter__(self) -> FaultyDisk:
        for name in ("unlink", "remove", "rmdir", "mkdir", "utime", "chmod"):
            self._replace(os, name, self._by_path(name, getattr(os, name)))
        for name in ("replace", "rename"):
            self._replace(os, name, self._by_path(name, getattr(os, name), second=True))
        for name, new in (("open", self._open), ("write", self._write), ("fsync", self._fsync), ("close", self._close)):
            self._replace(os, name, new(getattr(os, name)))
        opened = self._opened(io.open)
        self._replace(io, "open", opened)
        self._replace(builtins, "open", opened)
        return self

    def __exit__(self, *_: object) -> None:
        for where, name, old in reversed(self._replaced):
            setattr(where, name, old)
        self._replaced.clear()

    def heal(self) -> None:
        """From now on all works."""
        self.at = _NEVER

    def _replace(self, where: Any, name: str, new: Any) -> None:
        self._replaced.append((where, name, getattr(where, name)))
        setattr(where, name, new)

    def _below(self, path: Any) -> bool:
        if isinstance(path, int):
            return path in self._known
        text = os.path.abspath(os.fsdecode(path))
        return text == self.root or text.startswith(self.root + "/")

    def _fails(self, what: str, path: Any) -> bool:
        number = len(self.operations)
        name = self._known.get(path, "") if isinstance(path, int) else os.path.basename(os.fsdecode(path))
        self.operations.append(f"{what} {name}")
        fails = self.at <= number < self.at + self.count and not (self.error == ENOSPC and what in _FREEING)
        if fails:
            self.failed.append(self.operations[-1])
        return fails

    def _step(self, what: str, path: Any) -> None:
        if self._fails(what, path):
            raise OSError(self.error, os.strerror(self.error), None if isinstance(path, int) else os.fsdecode(path))

    def _by_path(self, what: str, real: Callable[..., Any], *, second: bool = False) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if self._below(arguments[0] if second else path):
                self._step(what, arguments[0] if second else path)
            return real(path, *arguments, **options)

        return call

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if not (flags & _WRITING and self._below(path)):
                return real(path, flags, *arguments, **options)
            self._step("open", path)
            descriptor = real(path, flags, *arguments, **options)
            self._known[descriptor] = os.path.basename(os.fsdecode(path))
            return descriptor

        return call

    def _write(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(descriptor: int, data: Any) -> int:
            if descriptor not in self._known or not self._fails("write", descriptor):
                return real(descriptor, data)
            if self.short and descriptor not in self._half and len(data) > 1:
                self._half.add(descriptor)
                return real(descriptor, memoryview(data)[: len(data) // 2])
            raise OSError(self.error, os.strerror(self.error))

        return call

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            if descriptor in self._known:
                self._step("fsync", descriptor)

        return call

    def _close(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            self._known.pop(descriptor, None)
            self._half.discard(descriptor)
            real(descriptor)

        return call

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
            if not (set(mode) & set("wax+") and self._below(file)):
                return real(file, mode, buffering, *arguments, **options)
            if not isinstance(file, int):
                self._step("open", file)
            raw = _File(self, file, mode.replace("b", "").replace("t", ""))
            if "b" in mode:
                return raw if buffering == 0 else io.BufferedWriter(raw)
            names = ("encoding", "errors", "newline")
            given = {**dict(zip(names, arguments, strict=False)), **{k: v for k, v in options.items() if k in names}}
            return io.TextIOWrapper(io.BufferedWriter(raw), **given)

        return call


class _File(io.FileIO):
    """A file whose writes count."""

    def __init__(self, disk: FaultyDisk, file: Any, mode: str) -> None:
        super().__init__(file, mode)
        self._disk = disk
        self._short = False
        if not isinstance(file, int):
            disk._known[self.fileno()] = os.path.basename(os.fsdecode(file))

    def write(self, data: Any) -> int:
        if not self._disk._fails("write", self.fileno()):
            return super().write(data) or 0
        if self._disk.short and not self._short and len(data) > 1:
            self._short = True
            return super().write(memoryview(data)[: len(data) // 2]) or 0
        raise OSError(self._disk.error, os.strerror(self._disk.error))

    def close(self) -> None:
        if not self.closed:
            self._disk._known.pop(self.fileno(), None)
        super().close()
