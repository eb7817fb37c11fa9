"""Runs code in a process of its own with little memory and processor time, so that a bomb ends it and not the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CPU_SECONDS = 5
"""A command needs about half a second of its own on a slow machine; a bomb that works needs minutes."""
GROWTH = 64 << 20
_COMMAND = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
from podslice.cli.main import main
from podslice.cli.main import COMMANDS
import importlib, podslice.api.manifests.manifest, podslice.host.machine_files
importlib.import_module(COMMANDS[{command!r}].module)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {growth}, used + {growth}))
sys.argv = ["podslice", {command!r}, *sys.argv[1:]]
main()
"""


class Outcome(NamedTuple):
    code: int
    err: str


def podslice(command: str, *arguments: str | Path, stdin: object = subprocess.DEVNULL, growth: int = GROWTH) -> Outcome:
    """Run a command that may use `growth` bytes more than it has after its imports."""
    program = _COMMAND.format(command=command, growth=growth, seconds=CPU_SECONDS)
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=stdin,  # type: ignore[arg-type]
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(result.returncode, result.stderr)


def refused(outcome: Outcome) -> str:
    """The one line of a refusal; fails for everything else."""
    assert outcome.code == 2, outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith("podslice: error: ")
    return line
