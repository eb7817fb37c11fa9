"""The checkpoint file of a cell while it runs: written every minute, and when the process is asked to stop.

The file is beside the cells of a run. A damaged one, or one of another scenario or release, is reported in a line and
the cell begins anew. A full disk costs the checkpoint, not the cell.
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
from typing import NoReturn

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
    """Whether this process is to stop.

    - `asked`: a signal has come; `running`: number of running cells that check it.
    - `is_worker`: the whole process ends, and a second signal changes nothing, as its sender waits, and kills in the
      end.
    """

    def __init__(self) -> None:
        self.asked = False
        self.running = 0
        self.is_worker = False

    def ask(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """Handle a signal: the first one waits until the running cell has written its checkpoint."""
        if not self.running or (self.asked and not self.is_worker):
            self.leave()
        self.asked = True

    def leave(self) -> NoReturn:
        """End what runs."""
        if self.is_worker:
            os._exit(1)
        raise KeyboardInterrupt


_STOPPING = _Stopping()


class CheckpointFile:
    """The checkpoint of one cell at a path. `identity`: of the scenario; a checkpoint of another one is not used."""

    def __init__(self, path: Path, identity: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._about = {"scenario": identity, "format": FORMAT, "podslice": running_version()}
        self._clock = clock
        self._last = clock()

    def load(self) -> tuple[bytes, str]:
        """Return the saved run, empty for none, and a line about a checkpoint that cannot be used."""
        try:
            head, _, body = read_limited(str(self._path), _LARGEST).partition(b"\n")
            # The first line says what the rest is, so that a checkpoint of another run is never unpacked.
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
    def while_running(self) -> Iterator[None]:
        """Count a running cell, which offers checkpoints, within the context."""
        _STOPPING.running += 1
        try:
            yield
        finally:
            _STOPPING.running -= 1

    def offer(self, take: Callable[[], bytes]) -> None:
        """Write a checkpoint if it is time, or if the process is to stop, and stop then."""
        if _STOPPING.asked or self._clock() - self._last >= EVERY:
            self._write(take())
            self._last = self._clock()
        if _STOPPING.asked:
            _STOPPING.leave()

    def _write(self, data: bytes) -> None:
        """Write the file atomically; a disk error costs the checkpoint only."""
        body = zlib.compress(data, _LEVEL)
        head = json.dumps({**self._about, "sha256": hashlib.sha256(body).hexdigest()}, sort_keys=True)
        with suppress(OSError):
            write_atomically(self._path, head.encode() + b"\n" + body)


def stop_worker_at(number: signal.Signals) -> None:
    """From now on let a signal make this process write its checkpoint and exit.

    The signal comes twice where another worker was faster: a broken pool of processes ends all others by itself.
    """
    _STOPPING.is_worker = True
    signal.signal(number, _STOPPING.ask)


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the context, let Ctrl-C write the checkpoint of the cell in this process; a second one interrupts at
    once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _STOPPING.ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _STOPPING.asked = False
