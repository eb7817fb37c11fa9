"""How far a run is: a bar on a terminal, a line every ten seconds elsewhere, or JSON lines, all on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TextIO

_EVERY = 10.0
_BAR_EVERY = 0.2
_WIDTH = 24
_CLEAR = "\r\x1b[K"


class RunProgress:
    """Tells how many cells are done and how long the rest will take, if they take as long as those."""

    def __init__(
        self,
        total: int,
        form: str,
        *,
        what: str = "cells",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._form = form if form != "auto" else ("bar" if self._stream.isatty() else "lines")
        self._clock = clock
        self._what = what
        self._total = total
        self._done = 0
        self._last_key = ""
        self._begun = clock()
        self._told = float("-inf")

    def begin(self) -> None:
        """The first word."""
        self._tell()

    def done(self, key: str) -> None:
        """A cell is done."""
        self._done += 1
        self._last_key = key
        if self._form == "json" or self._done == self._total or self._is_due():
            self._tell()

    def idle(self) -> None:
        """Time passes."""
        if self._form != "json" and self._is_due():
            self._tell()

    def end(self) -> None:
        """No more is told."""
        if self._form == "bar":
            self._write(_CLEAR)

    def _is_due(self) -> bool:
        return self._clock() - self._told >= (_BAR_EVERY if self._form == "bar" else _EVERY)

    def _tell(self) -> None:
        self._told = self._clock()
        left = self._left()
        if self._form == "json":
            told = {"done": self._done, "total": self._total, "cell": self._last_key, "secondsLeft": left}
            self._write(json.dumps(told) + "\n")
        elif self._form == "lines":
            self._write(f"podslice: {self._done} of {self._total} {self._what}{_left_text(left)}\n")
        elif self._form == "bar":
            filled = _WIDTH * self._done // max(self._total, 1)
            bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}]"
            self._write(f"{_CLEAR}{bar} {self._done} of {self._total} {self._what}{_left_text(left)}")

    def _left(self) -> float | None:
        if not self._done:
            return None
        return round((self._clock() - self._begun) / self._done * (self._total - self._done), 1)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _left_text(left: float | None) -> str:
    return "" if not left else f", about {span_text(left)} left"


def span_text(seconds: float) -> str:
    """A time for people: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
