"""Ctrl-C at any moment ends the command with exit code 130 and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PODS = str(Path(__file__).parents[2] / "examples" / "pods.yaml")
AFTER_ENTRY = """
import atexit, builtins, os, runpy, signal, sys
moment, real, count = sys.argv.pop(1), builtins.__import__, 0

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def counted(*arguments, **named):
    global count
    if "podslice.entry" in sys.modules and hasattr(sys.modules["podslice.entry"], "main"):
        count += 1
        if str(count) == moment:
            interrupt()
    return real(*arguments, **named)

if moment == "end":
    atexit.register(interrupt)
builtins.__import__ = counted
runpy.run_module("podslice", run_name="__main__", alter_sys=True)
"""


def interrupted(moment: str) -> subprocess.CompletedProcess[str]:
    """Run `podslice admit` and interrupt it at its n-th import statement after the entry module, or at its end."""
    return subprocess.run(
        [sys.executable, "-c", AFTER_ENTRY, moment, "admit", PODS, "--machine", "xeon-6338-2s"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("moment", ["1", "2", "10", "50", "150", "300", "500", "700", "900", "end"])
def test_interrupts(moment: str) -> None:
    """While modules are imported, while the command works and while the interpreter ends."""
    result = interrupted(moment)
    assert (result.returncode, "Traceback" in result.stderr) == (130, False)


def test_without_interrupt() -> None:
    """The same command ends by itself when nobody interrupts it."""
    assert interrupted("never").returncode == 0
