"""A process that works for another one: it answers what comes on standard input, which is a socket, until it closes.

`python -m podslice.fleet.workers.helper` is what `Helper` of `podslice.fleet.workers.aside` starts.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from podslice.fleet.workers.frames import packed, received
from podslice.fleet.workers.shares import tell_with

_EVERY = 2.0
"""Seconds between two words about a cell: from here each is a message of three processes."""


def unpacked(data: bytes, into: Path) -> Path:
    """Write files, which are pickled: how many folders their names go up, and pairs of name and contents. The folder
    that the names are from, so far down that all files are in the one that is given."""
    depth, pairs = pickle.loads(data)
    folder = into.joinpath(*["in"] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in pairs:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
    return folder


def _serve(asker: socket.socket) -> None:
    """Answer until nobody asks any more."""
    kept: tempfile.TemporaryDirectory[str] | None = None
    folder = ""
    while True:
        try:
            kind, data = received(asker)
            if kind == "files":
                kept = tempfile.TemporaryDirectory(prefix="podslice-fleet-")  # the one before goes with its name
                folder = str(unpacked(data, Path(kept.name)))
                continue
            work, argument = pickle.loads(data)
            if kept is not None:
                argument = argument._replace(folder=folder)
            answer: tuple[bytes, Any] = pickle.dumps(work(argument)), None
        except EOFError:
            return
        except Exception as error:
            answer = b"", error
        asker.sendall(packed(("answer", *answer)))


def _end_with(asker: socket.socket) -> None:
    """Whoever asks may be gone while an answer is worked out: then nobody wants it."""
    poll = select.poll()
    poll.register(asker, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(1)


def main() -> None:
    """Answer what comes on standard input; what work prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    asker = socket.socket(fileno=os.dup(0))
    os.dup2(2, 1)

    def tell(key: str, share: float) -> None:
        """Where there is no room for it, as three quarters of the buffer are taken, it is lost."""
        if select.select((), (asker,), (), 0)[1]:
            asker.sendall(packed(("share", key, share)))

    tell_with(tell, every=_EVERY)
    threading.Thread(target=_end_with, args=(asker,), daemon=True).start()
    _serve(asker)


if __name__ == "__main__":
    main()
