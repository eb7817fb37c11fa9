"""The helper process: it answers requests on standard input, which is a socket, until that closes.

`HelperProcess` of `helper_pool` starts it as `python -m podslice.fleet.workers.helper`.
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

from podslice.fleet.workers.frames import pack, receive
from podslice.fleet.workers.progress import set_reporter

_EVERY = 2.0
"""Seconds between two reports of a cell: from here each is a message through three processes."""


def unpack_files(data: bytes, into: Path) -> Path:
    """Write pickled files below `into`, and return the folder that their names are relative to.

    The pickle has how many folders up the names go, and pairs of name and contents. The folder is so far down that all
    files are inside `into`.
    """
    depth, pairs = pickle.loads(data)
    folder = into.joinpath(*["in"] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in pairs:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
    return folder


def _serve(asker: socket.socket) -> None:
    """Answer until the socket closes."""
    kept: tempfile.TemporaryDirectory[str] | None = None
    folder = ""
    while True:
        try:
            kind, data = receive(asker)
            if kind == "files":
                kept = tempfile.TemporaryDirectory(prefix="podslice-fleet-")  # the one before goes with its name
                folder = str(unpack_files(data, Path(kept.name)))
                continue
            work, argument = pickle.loads(data)
            if kept is not None:
                argument = argument._replace(folder=folder)
            answer: tuple[bytes, Any] = pickle.dumps(work(argument)), None
        except EOFError:
            return
        except Exception as error:
            answer = b"", error
        asker.sendall(pack(("answer", *answer)))


def _end_with_parent(asker: socket.socket) -> None:
    """End this process when the other end of the socket closes, also in the middle of work."""
    poll = select.poll()
    poll.register(asker, 0)
    # Registered for no event: it returns only when the other end hangs up.
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    # An orderly exit, which removes the temporary folder; the default action of the signal would not.
    sys.exit(1)


def main() -> None:
    """Serve standard input; output of the work goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    # A descriptor of its own: the work may read or close standard input.
    asker = socket.socket(fileno=os.dup(0))
    os.dup2(2, 1)

    def report(key: str, share: float) -> None:
        """Send the progress; drop it where the socket has no room for it, as three quarters of its buffer are used."""
        if select.select((), (asker,), (), 0)[1]:
            asker.sendall(pack(("share", key, share)))

    set_reporter(report, every=_EVERY)
    threading.Thread(target=_end_with_parent, args=(asker,), daemon=True).start()
    _serve(asker)


if __name__ == "__main__":
    main()
