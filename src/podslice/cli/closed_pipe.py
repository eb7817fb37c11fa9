"""Output into a pipe whose reader leaves early, as `| head` does.

That is not a failure: the rest of the output is dropped, and the exit code stays the answer of the command. Without
this, click ends the command with code 1, which would mean that the answer is no.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STREAMS = ("stdout", "stderr")


class _Pipe(io.FileIO):
    """The end of a pipe that we write to; what comes after its reader has gone is dropped."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.unread = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self.unread = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


@contextmanager
def tolerate_closed_pipes() -> Iterator[None]:
    """Replace standard output and error, where they are pipes, by streams that outlive their reader."""
    before = {name: getattr(sys, name) for name in _STREAMS}
    for name, stream in before.items():
        if _is_pipe(stream):
            stream.flush()
            setattr(sys, name, _tolerant(stream))
    try:
        yield
    finally:
        for name, stream in before.items():
            if (now := getattr(sys, name)) is not stream:
                now.flush()
                now.detach()
                setattr(sys, name, stream)


def is_unread() -> bool:
    """Whether the reader of standard output has gone: a command that would go on until interrupted ends then."""
    return getattr(getattr(getattr(sys.stdout, "buffer", None), "raw", None), "unread", False)


def _is_pipe(stream: TextIO | None) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode if stream is not None else 0
    except (OSError, ValueError):  # closed, or a stream in memory
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _tolerant(stream: TextIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream.fileno())),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream is sys.stderr,
    )
