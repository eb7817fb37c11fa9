"""Progress of a run: bars on a terminal, a line every ten seconds elsewhere, or JSON lines, all on standard error."""

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
                        default="auto", show_default=True, help="How to show progress.")  # fmt: skip
_EVERY = {"bar": 0.2, "lines": 10.0, "json": 1.0}
"""Seconds between two reports, by form."""
_MOST_BARS = 16
_MOST_NAMED = 4
_LEAST_WORK = 0.001
"""Share of a cell below which the remaining time is not estimated."""


class RunProgress:
    """Shows how many cells are done, the shares of those at work, and the remaining time at the present speed. As a
    context it begins and ends.

    `work`: keys of what is simulated, where that is not what is counted: of equivalent cells one is simulated, and a
    configuration is many cells.
    """

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
        """Shares of the simulations at work."""
        self._initial: dict[str, float] = {}
        """Shares at the first report: what a checkpoint has already."""
        self._finished: set[str] = set()
        self._done = 0
        self._last_key = ""
        self._begun = clock()
        self._last_report = float("-inf")
        self._bars: _Bars | None = None

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        """Show the first report."""
        if self._form == "bar":
            self._bars = _Bars(self._stream)
        self._report()

    def report(self, key: str, share: float) -> None:
        """Set the share of a simulation that is done, from 0 to 1."""
        if key in self._finished:
            return
        if share >= 1.0:
            self.finish(key)
            return
        self._initial.setdefault(key, share)
        # A cell that begins anew on another worker does not go backwards.
        self._shares[key] = max(share, self._shares.get(key, 0.0))
        self.tick()

    def finish(self, key: str) -> None:
        """Mark a simulation as done."""
        self._initial.setdefault(key, 0.0)
        self._shares.pop(key, None)
        self._finished.add(key)

    def count(self, key: str) -> None:
        """Count a cell, or whatever else is counted, as done."""
        if self._work is None or key in self._work:
            self.finish(key)
        self._done += 1
        self._last_key = key
        if self._form == "json" or self._done == self._total or self._is_due():
            self._report()

    def note(self, text: str) -> None:
        """Show a line about the run."""
        if self._form == "json":
            self._write(json.dumps({"note": text}) + "\n")
        elif self._bars is not None:
            self._bars.note(text)
        elif self._form == "lines":
            self._write(f"podslice: {text}\n")

    def tick(self) -> None:
        """Show a report if it is time."""
        if self._is_due():
            self._report()

    def end(self) -> None:
        """Remove the bars."""
        if self._bars is not None:
            self._bars.end()
            self._bars = None

    def _is_due(self) -> bool:
        return self._clock() - self._last_report >= _EVERY.get(self._form, float("inf"))

    def _report(self) -> None:
        self._last_report = self._clock()
        left = self._seconds_left()
        counted = f"{self._done} of {self._total} {self._what}"
        if self._form == "json":
            shares = {key: round(share, 4) for key, share in self._shares.items()}
            facts = {"done": self._done, "total": self._total, "cell": self._last_key, "secondsLeft": left,
                    "share": round(self._share_done(), 4), "shares": shares}  # fmt: skip
            self._write(json.dumps(facts) + "\n")
        elif self._form == "lines":
            self._write(f"podslice: {counted}{_time_left_text(left)}{self._work_text()}\n")
        elif self._bars is not None:
            self._bars.show(self._share_done(), f"{counted}{_time_left_text(left)}", self._shares)

    def _work_text(self) -> str:
        """Return the simulations at work, the furthest first."""
        if not self._shares:
            return ""
        ordered = sorted(self._shares.items(), key=lambda one: (-one[1], one[0]))
        named = ", ".join(f"{key} {_percent(share)}" for key, share in ordered[:_MOST_NAMED])
        more = len(ordered) - _MOST_NAMED
        return f"; {named}" + (f" and {more} more" if more > 0 else "")

    def _share_done(self) -> float:
        """Return the share of all work that is done."""
        return (len(self._finished) + sum(self._shares.values())) / self._works if self._works else 1.0

    def _seconds_left(self) -> float | None:
        """Return the remaining seconds at the speed of this run, None where too little is done."""
        reached = len(self._finished) + sum(self._shares.values())
        # What a checkpoint had already took no time in this run.
        made = reached - sum(self._initial.values())
        if made < _LEAST_WORK:
            return None
        return round((self._clock() - self._begun) / made * max(self._works - reached, 0.0), 1)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Bars:
    """One bar for the whole run, and one for each cell at work."""

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
        """Update all bars."""
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
        """Print a line above the bars, which stays."""
        self._progress.console.print(f"podslice: {text}", markup=False, highlight=False)

    def end(self) -> None:
        """Remove the bars."""
        self._progress.stop()


def _percent(share: float) -> str:
    return f"{int(100 * share)} %"


def _time_left_text(left: float | None) -> str:
    return "" if not left else f", about {span_text(left)} left"


def span_text(seconds: float) -> str:
    """Return a time for people: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
