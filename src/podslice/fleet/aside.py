"""Work in processes of their own beside the process that waits for it: what a worker of a Dask cluster does.

There a task runs in a thread next to an event loop and to a profiler that looks at the stacks of all threads a hundred
times a second, and they all share one interpreter lock: a cell takes a quarter longer. So the thread only waits, and
each thread has a process for its work. It is a plain one, because workers that a nanny started may have no children of
`multiprocessing`. Nothing is imported here that a worker would need for waiting only.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from types import FrameType
from typing import IO, Any

_IDLE: list[Helper] = []
"""Helpers of this process that have nothing to do."""


class Helper:
    """A process that works for one thread at a time. It ends with the process that made it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "podslice.fleet.aside"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, question: bytes) -> tuple[bytes, BaseException | None]:
        """The pickled answer, or what was raised. Raises `BrokenExecutor` where the process is gone."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(question, process.stdin)
            process.stdin.flush()
            answer, error = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            process.kill()
            raise BrokenExecutor(f"a process of a worker ended with {self.close()}") from None
        return answer, error

    def close(self) -> int:
        """Nobody asks any more; how the process ended."""
        process = self._process
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(OSError):
                pipe.close()
        return process.wait()


def aside(question: bytes) -> bytes:
    """The pickled answer to a pickled (function, argument), worked out in another process. Raises what the function
    raises, and `BrokenExecutor` where that process is lost."""
    try:
        helper = _IDLE.pop()
    except IndexError:
        helper = Helper()
    answer, error = helper.ask(question)
    _IDLE.append(helper)
    if error is not None:
        raise error
    return answer


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until nobody asks any more."""
    while True:
        try:
            work, argument = pickle.loads(pickle.load(questions))
            answer: tuple[bytes, Any] = pickle.dumps(work(argument)), None
        except EOFError:
            return
        except Exception as error:
            answer = b"", error
        pickle.dump(answer, answers)
        answers.flush()


def _end_with(pipe: int) -> None:
    """Whoever asks may be gone while an answer is worked out: then nobody wants it."""
    poll = select.poll()
    poll.register(pipe, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(1)


def main() -> None:
    """Answer what comes on standard input; what work prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(0,), daemon=True).start()
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
