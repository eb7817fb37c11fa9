"""How far a run is: bars on a terminal, a line every ten seconds elsewhere, or JSON lines, all on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Self, TextIO

import click

from podslice.cli.output import is_quiet

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PROGRESS = click.option("--progress", "form_of_progress", type=click.Choice(["auto", "bar", "lines", "json", "none"]),
                        default="auto", show_default=True, help="How to tell how far it is.")  # fmt: skip
_EVERY = {"bar": 0.2, "lines": 10.0, "json": 1.0}
"""Seconds between two words, by form."""
_MOST_BARS = 16
_MOST_NAMED = 4
_LEAST_WORK = 0.001
"""Of a cell: with less done nobody can say how long the rest takes."""


class RunProgress:
    """Tells how many cells are done, how far those in work are, and how long the rest will take, if it goes on so. As a
    context it begins and ends.

    `work`: keys of what is simulated, where this is not what is counted: of twins one is, a configuration is many."""

    def __init__(
        self,
        total: int,
        form: str = "auto",
        *,
        work: Collection[str] | None = None,
        what: str = "cells",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        chosen = form if form != "auto" else ("bar" if self._stream.isatty() else "lines")
        self._form = "none" if is_quiet() else chosen
        self._clock = clock
        self._what = what
        self._total = total
        self._work = work
        self._works = total if work is None else len(work)
        self._shares: dict[str, float] = {}
        """Of what is in work."""
        self._given: dict[str, float] = {}
        """What was there already when it came: a checkpoint's."""
        self._finished: set[str] = set()
        self._done = 0
        self._last_key = ""
        self._begun = clock()
        self._told = float("-inf")
        self._bars: _Bars | None = None

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        """The first word."""
        if self._form == "bar":
            self._bars = _Bars(self._stream)
        self._tell()

    def share(self, key: str, share: float) -> None:
        """So much of a thing that is simulated is done, from 0 to 1."""
        if key in self._finished:
            return
        if share >= 1.0:
            self.finish(key)
            return
        self._given.setdefault(key, share)
        self._shares[key] = max(share, self._shares.get(key, 0.0))
        self.idle()

    def finish(self, key: str) -> None:
        """A thing that is simulated is done."""
        self._given.setdefault(key, 0.0)
        self._shares.pop(key, None)
        self._finished.add(key)

    def done(self, key: str) -> None:
        """A cell is done, or whatever else is counted."""
        if self._work is None or key in self._work:
            self.finish(key)
        self._done += 1
        self._last_key = key
        if self._form == "json" or self._done == self._total or self._is_due():
            self._tell()

    def note(self, text: str) -> None:
        """Something to know about the run."""
        if self._form == "json":
            self._write(json.dumps({"note": text}) + "\n")
        elif self._bars is not None:
            self._bars.note(text)
        elif self._form == "lines":
            self._write(f"podslice: {text}\n")

    def idle(self) -> None:
        """Time passes."""
        if self._is_due():
            self._tell()

    def end(self) -> None:
        """No more is told."""
        if self._bars is not None:
            self._bars.end()
            self._bars = None

    def _is_due(self) -> bool:
        return self._clock() - self._told >= _EVERY.get(self._form, float("inf"))

    def _tell(self) -> None:
        self._told = self._clock()
        left = self._left()
        counted = f"{self._done} of {self._total} {self._what}"
        if self._form == "json":
            shares = {key: round(share, 4) for key, share in self._shares.items()}
            told = {"done": self._done, "total": self._total, "cell": self._last_key, "secondsLeft": left,
                    "share": round(self._whole(), 4), "shares": shares}  # fmt: skip
            self._write(json.dumps(told) + "\n")
        elif self._form == "lines":
            self._write(f"podslice: {counted}{_left_text(left)}{self._named()}\n")
        elif self._bars is not None:
            self._bars.show(self._whole(), f"{counted}{_left_text(left)}", self._shares)

    def _named(self) -> str:
        """What is in work, the furthest first."""
        if not self._shares:
            return ""
        ordered = sorted(self._shares.items(), key=lambda one: (-one[1], one[0]))
        named = ", ".join(f"{key} {_percent(share)}" for key, share in ordered[:_MOST_NAMED])
        more = len(ordered) - _MOST_NAMED
        return f"; {named}" + (f" and {more} more" if more > 0 else "")

    def _whole(self) -> float:
        """How much of all is done."""
        return (len(self._finished) + sum(self._shares.values())) / self._works if self._works else 1.0

    def _left(self) -> float | None:
        """Seconds, if the rest goes as what was made in this run."""
        there = len(self._finished) + sum(self._shares.values())
        made = there - sum(self._given.values())
        if made < _LEAST_WORK:
            return None
        return round((self._clock() - self._begun) / made * max(self._works - there, 0.0), 1)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Bars:
    """A bar for all, and one for each cell in work."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._progress: Progress = Progress(
            BarColumn(24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
        )
        self._all = self._progress.add_task("", total=1.0)
        self._of: dict[str, TaskID] = {}
        self._progress.start()

    def show(self, whole: float, text: str, shares: dict[str, float]) -> None:
        """How far all is, and what is in work."""
        self._progress.update(self._all, completed=whole, description=text)
        shown = list(shares)[:_MOST_BARS]
        for key in [key for key in self._of if key not in shown]:
            self._progress.remove_task(self._of.pop(key))
        for key in shown:
            if key not in self._of:
                self._of[key] = self._progress.add_task(key, total=1.0)
            self._progress.update(self._of[key], completed=shares[key])
        self._progress.refresh()

    def note(self, text: str) -> None:
        """A line above them, which stays."""
        self._progress.console.print(f"podslice: {text}", markup=False, highlight=False)

    def end(self) -> None:
        """They are wiped."""
        self._progress.stop()


def _percent(share: float) -> str:
    return f"{int(100 * share)} %"


def _left_text(left: float | None) -> str:
    return "" if not left else f", about {span_text(left)} left"


def span_text(seconds: float) -> str:
    """A time for people: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
