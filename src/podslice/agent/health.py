"""Is the agent well? What its probes and its status say, in words.

`/readyz` is bad while anything is; `/healthz` only while something is bad that a restart helps with: starting an agent
again because the API server or the runtime is away would help nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from podslice.agent.rejected import REJECTED_FILE
from podslice.statefiles.names import CPU_STATE_FILE, DEVICE_DIRECTORY, MEMORY_STATE_FILE

_SLACK = 60.0
"""Seconds a loop may be late: a node under load is slow, not broken."""


class Check(NamedTuple):
    """One thing that must be well; `problem` is empty while it is."""

    name: str
    problem: str
    restart_mends: bool = False


class Health(NamedTuple):
    """What a probe answers."""

    good: bool
    text: str


def alive(checks: Iterable[Check]) -> Health:
    """Every check with a line; good unless a restart would help."""
    checks = list(checks)
    text = "".join(f"{check.name}: {check.problem or 'ok'}\n" for check in checks)
    return Health(not any(check.problem and check.restart_mends for check in checks), text)


def ready(checks: Iterable[Check]) -> Health:
    """Good when pods are served as configured; else what is missing, a line each."""
    problems = [f"{check.name}: {check.problem}\n" for check in checks if check.problem]
    return Health(not problems, "".join(problems) or "ok\n")


class Turning:
    """Signs of life of loops that should turn every so often."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._every: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def turned(self, name: str, every: float) -> None:
        """The loop `name` is at work, and should say so again within about `every` seconds."""
        self._every[name] = every
        self._last[name] = self._clock()

    def problem(self) -> str:
        """The loops that have not turned for far too long."""
        now = self._clock()
        late = {name: now - last for name, last in self._last.items() if now - last > 3 * self._every[name] + _SLACK}
        return "; ".join(f"{name} has not turned for {seconds:.0f} s" for name, seconds in late.items())


def state_problem(directory: Path) -> str:
    """Why nothing can be written there, empty when it can or the directory has yet to be made."""
    try:
        if not directory.exists():
            return ""
        if not os.access(directory, os.W_OK | os.X_OK):
            return f"{directory} cannot be written"
        return "" if os.statvfs(directory).f_bavail else f"{directory} has no space left"
    except OSError as error:
        return f"{directory} cannot be used: {error.strerror}"


_OURS = (CPU_STATE_FILE, MEMORY_STATE_FILE, DEVICE_DIRECTORY, REJECTED_FILE, "pods")


def make_private(directory: Path) -> str:
    """The state directory is its owner's alone: made so, and corrected where an older version or the kubelet made it
    open. Returns why it is left as it is, for one that is not ours or holds what others may need. Raises `OSError`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if not found.st_mode & 0o077:
        return ""
    if found.st_uid != os.geteuid():
        return f"{directory} is open to others and belongs to user {found.st_uid}"
    others = sorted(one.name for one in directory.iterdir() if not _ours(one.name))
    if others:
        return f"{directory} is open to others and holds what is not the agent's: {', '.join(others[:3])}"
    directory.chmod(0o700)
    return ""


def _ours(name: str) -> bool:
    return name.endswith(".lock") or name.lstrip(".").startswith(_OURS)
