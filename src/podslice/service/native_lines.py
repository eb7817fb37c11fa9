"""Lines of libraries in a program's own log: what C libraries, gRPC above all, write to standard error, and records of
Python's `logging`.

    with NativeLines() as native:                 # descriptor 2 is a pipe now
        log = LogLines(stream=native.stream)      # the standard error from before
        native.follow(write)                      # `write` gets each line, in a thread

What Python itself writes, such as the last words of a crash, goes to the standard error from before.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, Self, TextIO, TypeAlias

from podslice.service.pacing import LineLimit

_GRPC = re.compile(r"(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (?P<source>[\w.]+:\d+)\] (?P<text>.*)", re.DOTALL)
Level: TypeAlias = Literal["info", "warning", "error"]
_LEVELS: dict[str, Level] = {"I": "info", "W": "warning", "E": "error", "F": "error"}
_SET_PIPE_SIZE, _PIPE_BYTES = 1031, 1 << 20
_LONGEST = 8 << 10
_MOST_PLACES = 256
_HANDSHAKE = "andshake failed"


class NativeLine(NamedTuple):
    """A line of a library. `source`: the file and line of gRPC's sources that wrote it, or the name of a Python logger;
    empty for others."""

    level: Level
    source: str
    text: str

    @property
    def is_handshake(self) -> bool:
        """Whether a TLS handshake failed."""
        return bool(self.source) and _HANDSHAKE in self.text


def read_line(line: str) -> NativeLine:
    """Take a line apart."""
    match = _GRPC.match(line)
    if match is None:
        return NativeLine("warning", "", line)
    return NativeLine(_LEVELS[match["level"]], match["source"], match["text"])


class LevelLog(Protocol):
    """A log with a method for each level; lines have an event and fields."""

    def info(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class LibraryLog:
    """Writes lines of libraries into the log, within a limit for each place that writes them: anyone who reaches a port
    can cause handshakes that fail. `connection` names gRPC's in these lines; `count` gets `handshake` for each."""

    def __init__(
        self,
        log: LevelLog,
        connection: str,
        *,
        count: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._connection, self._count, self._clock = log, connection, count, clock
        self._limits: dict[str, LineLimit] = {}

    def write(self, line: NativeLine) -> None:
        """Write a line of a library."""
        if line.is_handshake:
            self.write_handshake(self._connection, line.text)
        else:
            self._write(line.level, line.source, "library", source=line.source, what=line.text)

    def write_handshake(self, connection: str, cause: str) -> None:
        """Write that a handshake failed."""
        self._count("handshake")
        self._write("warning", connection, "handshake failed", connection=connection, what=cause)

    def _write(self, level: Level, place: str, event: str, **fields: object) -> None:
        if len(self._limits) >= _MOST_PLACES:
            self._limits.clear()
        left_out = self._limits.setdefault(place, LineLimit()).add(self._clock())
        if left_out is not None:
            more = {"leftOut": left_out} if left_out else {}
            getattr(self._log, level)(event, **fields, **more)


class NativeLines:
    """Takes the place of standard error while the context is open. `stream`: the standard error from before."""

    def __init__(self) -> None:
        _open_standard_error()
        self._before, self._thread = os.dup(2), threading.Thread()
        self._python: TextIO | None = sys.stderr
        self._handler: logging.Handler | None = None
        self.stream: TextIO = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")

    def __enter__(self) -> Self:
        self._reader, writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, _SET_PIPE_SIZE, _PIPE_BYTES)
        # A full pipe loses lines rather than to stop a thread that may hold the interpreter lock, which the reader
        # needs.
        os.set_blocking(writer, False)
        if self._python is not None:
            self._python.flush()
        os.dup2(writer, 2)
        os.close(writer)
        # A C library that aborts writes its last words into a pipe without a reader.
        self._tells_crashes = not faulthandler.is_enabled()
        if self._tells_crashes:
            faulthandler.enable(self.stream)
        # A test may have put a stream of its own there.
        if self._python is None or _descriptor(self._python) == 2:
            sys.stderr = self.stream
        return self

    def follow(self, write: Callable[[NativeLine], None]) -> None:
        """Call `write` with each line until the context closes, those that came before included."""
        self._handler = _Records(write)
        logging.getLogger().addHandler(self._handler)
        self._thread = threading.Thread(target=_read, args=(self._reader, write), name="native lines", daemon=True)
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        sys.stderr = self._python
        if self._tells_crashes:
            faulthandler.disable()
        os.dup2(self._before, 2)  # the last writer of the pipe is gone: the thread reads what is left, and ends
        os.close(self._before)
        if self._handler is None:
            os.close(self._reader)
        else:
            logging.getLogger().removeHandler(self._handler)
            self._thread.join(5)
        self.stream.close()


class _Records(logging.Handler):
    """Passes on the records of Python's loggers."""

    def __init__(self, write: Callable[[NativeLine], None]) -> None:
        super().__init__(logging.WARNING)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "warning" if record.levelno < logging.ERROR else "error"
        self._write(NativeLine(level, record.name, self.format(record)))


def _open_standard_error() -> None:
    """Open descriptor 2 where the program was started with it closed: else the next file gets that number."""
    try:
        os.fstat(2)
    except OSError:
        number = os.open(os.devnull, os.O_WRONLY)
        if number != 2:
            os.dup2(number, 2)
            os.close(number)


def _descriptor(stream: TextIO) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return -1


def _read(descriptor: int, write: Callable[[NativeLine], None]) -> None:
    rest = b""
    with open(descriptor, "rb", buffering=0) as pipe:
        while piece := pipe.read(_LONGEST):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            for line in lines:
                _pass(line, write)
    _pass(rest, write)


def _pass(line: bytes, write: Callable[[NativeLine], None]) -> None:
    if line.strip():
        write(read_line(line.decode("utf-8", "replace")))
