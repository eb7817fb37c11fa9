"""Handling of Ctrl-C and SIGTERM while the command starts, works, and ends.

Importing everything takes long enough to be interrupted, and a KeyboardInterrupt in the middle of an import, or of an
extension module's first call, is a traceback or worse. Commands run with `interruptible`, which raises it, so that they
can put the terminal in order.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 130


def _leave(*_: object) -> None:
    os._exit(INTERRUPTED)  # not sys.exit: an exception inside an import leaves half a module behind


def leave_at_once() -> None:
    """Make Ctrl-C end the process at once, as long as there is nothing to clean up."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt inside the block."""
    with _handling(signal.default_int_handler):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM, and SIGHUP when a terminal is closed, act like Ctrl-C inside the block. In the main thread only;
    elsewhere nothing changes. Under nohup SIGHUP stays ignored."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)

    with _handling(interrupt, signal.SIGTERM):
        # Windows has no SIGHUP.
        if not hasattr(signal, "SIGHUP") or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            yield
            return
        with _handling(interrupt, signal.SIGHUP):
            yield


@contextmanager
def uninterruptible_import() -> Iterator[None]:
    """Make Ctrl-C end the process at once inside the block, around an import."""
    with _handling(_leave):
        yield


@contextmanager
def _handling(handler: Any, number: signal.Signals = signal.SIGINT) -> Iterator[None]:
    # Python lets only the main thread set handlers of signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
