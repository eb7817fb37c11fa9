"""Progress of cells while they run: workers report it through a pipe, now and then, and nothing depends on it.

A worker never waits for the reader: where the pipe is full, or closed, the report is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Protocol, runtime_checkable

EVERY = 0.5
"""Seconds between two reports of a cell, within one machine."""
_AT_ONCE = 1 << 16
Report = Callable[[str, float], None]
"""Called with the key of a cell and its share, from 0 to 1."""


class ProgressListener(Protocol):
    """Gets the progress of a run."""

    def note(self, text: str) -> None:
        """Show a line about the run."""

    def report(self, key: str, share: float) -> None:
        """Show that this share of a cell is done, from 0 to 1."""

    def tick(self) -> None:
        """Show that the run goes on, while nothing happens."""


class ProgressSource(Protocol):
    """A source of progress reports."""

    def read_new(self) -> Iterable[tuple[str, float]]:
        """Return the keys of cells and their shares reported since the last call."""


@runtime_checkable
class ReportsProgress(Protocol):
    """An executor whose workers report progress."""

    shares: ProgressSource

    def check_workers(self) -> str:
        """Return a line about the workers, "" for nothing new."""


class ProgressPipe:
    """A pipe: this process reads, workers get the `writer`."""

    def __init__(self) -> None:
        self._reader, self.writer = Pipe(duplex=False)
        # Neither end blocks: a reader polls between answers, and a worker drops what does not fit.
        os.set_blocking(self._reader.fileno(), False)
        os.set_blocking(self.writer.fileno(), False)
        self._rest = b""

    def read_new(self) -> Iterator[tuple[str, float]]:
        """Return the keys of cells and their shares reported since the last call."""
        while True:
            try:
                data = os.read(self._reader.fileno(), _AT_ONCE)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                share, _, key = line.decode().partition(" ")
                yield key, float(share)

    def close(self) -> None:
        """Close both ends; reports of workers are lost from now on."""
        self._reader.close()
        self.writer.close()


def _report_nothing(key: str, share: float) -> None:
    """Stand in until a report is set."""


class _Sink:
    """The way this process reports the progress of its cells, and how often."""

    def __init__(self) -> None:
        self.report: Report = _report_nothing
        self.every = EVERY


_SINK = _Sink()


def set_reporter(report: Report, *, every: float = EVERY) -> None:
    """Set how this process reports progress: each cell after so many seconds."""
    _SINK.report, _SINK.every = report, every


def report_through(writer: Connection) -> None:
    """Let this process report progress through a pipe."""

    def report(key: str, share: float) -> None:
        with suppress(OSError):
            # A line is shorter than PIPE_BUF, so that lines of several workers never mix.
            os.write(writer.fileno(), f"{share:.4f} {key}\n".encode())

    set_reporter(report)


class ProgressReporter:
    """Reports the progress of one cell: at once, then now and then. Without `report` the process' own way is used."""

    def __init__(self, key: str, report: Report | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = key
        self._report = report or _SINK.report
        self._clock = clock
        self._next = float("-inf")

    def __call__(self, share: float) -> None:
        """Report this share, if it is time."""
        now = self._clock()
        if now >= self._next:
            self._next = now + _SINK.every
            self._report(self._key, share)
