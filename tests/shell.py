"""The command line, in this process or in one of its own: the same words, streams and exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from podslice.entry import main

ROOT = Path(__file__).parents[1]


class Answer(NamedTuple):
    """The result of a command, with the fields of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def podslice_process(*words: object, stdin: str = "", **environment: str) -> Answer:
    """Run `podslice` as a process, for tests of the process itself or beside an event loop of this one."""
    done = subprocess.run(
        [sys.executable, "-m", "podslice", *map(str, words)],
        input=stdin, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)


def podslice(*words: object, stdin: str = "", **environment: str) -> Answer:
    """Run `podslice` in this process, which saves the half second that a process takes. Its streams are no terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    before, code = Path.cwd(), 0
    os.chdir(ROOT)
    try:
        argv = ["podslice", *map(str, words)]
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.multiple(sys, argv=argv, stdin=given, stdout=out, stderr=err),
        ):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        os.chdir(before)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]  # it is a BytesIO
    return Answer(code, *texts)
