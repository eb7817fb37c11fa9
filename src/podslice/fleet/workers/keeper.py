"""Checkpoints of a cell while it runs: every minute, and when somebody wants it to stop.

A checkpoint is a file beside the cells of a run. What is damaged, or of another scenario or release, is passed over
with a line, and the cell begins anew. A disk that is full costs the checkpoint, not the cell.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from podslice.fleet.engine.checkpoint import FORMAT
from podslice.fleet.scenario.codec import MOST_UNPACKED
from podslice.host.state.statefile import write_atomically
from podslice.reading.files import read_limited
from podslice.reading.unpacking import unpack
from podslice.values.errors import InputError
from podslice.version import running_version

EVERY = 60.0
"""Seconds between checkpoints."""
_LARGEST = 4 << 30
_LEVEL = 1


class _Stopping:
    """Whether this process is to stop. `asked`: somebody wants it; `running`: cells that run and look whether it is so;
    `leave`: ends what runs; `patient`: a second word changes nothing, as who says it waits, and kills in the end."""

    def __init__(self) -> None:
        self.asked = False
        self.running = 0
        self.patient = False
        self.leave: Callable[[], None] = _interrupt

    def ask(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """A signal: the first one waits for the cell that runs to keep itself."""
        if not self.running or (self.asked and not self.patient):
            self.leave()
        self.asked = True


def _interrupt() -> None:
    raise KeyboardInterrupt


_STOPPING = _Stopping()


class CellKeeper:
    """Keeps the checkpoint of one cell at a path; `identity`: of the scenario, which it must be of to be used."""

    def __init__(self, path: Path, identity: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._about = {"scenario": identity, "format": FORMAT, "podslice": running_version()}
        self._clock = clock
        self._last = clock()

    def begun(self) -> tuple[bytes, str]:
        """What there is to go on from, empty for nothing; and a line about a checkpoint that cannot be used."""
        try:
            head, _, body = read_limited(str(self._path), _LARGEST).partition(b"\n")
            about = json.loads(head)
            digest = about.pop("sha256")
            if about != self._about:
                return b"", "is of another scenario or release"
            if hashlib.sha256(body).hexdigest() != digest:
                return b"", "does not have its checksum"
            return unpack(body, MOST_UNPACKED), ""
        except FileNotFoundError:
            return b"", ""
        except (OSError, InputError, ValueError, AttributeError, LookupError, TypeError) as error:
            return b"", f"cannot be read: {error}"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A cell runs that is offered."""
        _STOPPING.running += 1
        try:
            yield
        finally:
            _STOPPING.running -= 1

    def offer(self, take: Callable[[], bytes]) -> None:
        """Keep the run as it is, if it is time, or if it is to stop, which it does then."""
        if _STOPPING.asked or self._clock() - self._last >= EVERY:
            self._keep(take())
            self._last = self._clock()
        if _STOPPING.asked:
            _STOPPING.leave()

    def _keep(self, data: bytes) -> None:
        body = zlib.compress(data, _LEVEL)
        head = json.dumps({**self._about, "sha256": hashlib.sha256(body).hexdigest()}, sort_keys=True)
        with suppress(OSError):
            write_atomically(self._path, head.encode() + b"\n" + body)


def stop_worker_at(number: signal.Signals) -> None:
    """From now on a signal makes this process keep its cell and end. It comes twice where another worker was faster:
    then a pool of processes ends all others by itself."""
    _STOPPING.patient = True
    _STOPPING.leave = lambda: os._exit(1)
    signal.signal(number, _STOPPING.ask)


@contextmanager
def stoppable() -> Iterator[None]:
    """While this runs Ctrl-C lets the cell that runs in this process keep itself; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _STOPPING.ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _STOPPING.asked = False
