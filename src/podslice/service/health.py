"""Health of a program as its probes and its status report it.

`/readyz` fails while any check does. `/healthz` fails only for what a restart mends: to restart an agent because the
API server or the runtime is away would not bring them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

_SLACK = 60.0
"""Seconds that a loop may be late: a node under load is slow, not broken."""


class Check(NamedTuple):
    """A named check; `problem` is empty while it passes. `restart_mends`: `/healthz` fails with it."""

    name: str
    problem: str
    restart_mends: bool = False


class Health(NamedTuple):
    """The answer to a probe."""

    good: bool
    text: str


def liveness(checks: Iterable[Check]) -> Health:
    """Return the answer of `/healthz`: a line for every check, good unless a restart would mend one."""
    checks = list(checks)
    text = "".join(f"{check.name}: {check.problem or 'ok'}\n" for check in checks)
    return Health(not any(check.problem and check.restart_mends for check in checks), text)


def readiness(checks: Iterable[Check]) -> Health:
    """Return the answer of `/readyz`: good where every check passes, else a line for each that does not."""
    problems = [f"{check.name}: {check.problem}\n" for check in checks if check.problem]
    return Health(not problems, "".join(problems) or "ok\n")


class Heartbeats:
    """Heartbeats of loops that should run at regular intervals."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._every: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def beat(self, name: str, every: float) -> None:
        """Note that the loop `name` runs. Its next beat should come within about `every` seconds."""
        self._every[name] = every
        self._last[name] = self._clock()

    def problem(self) -> str:
        """Return which loops are late by more than three intervals and a minute; empty where none is."""
        now = self._clock()
        late = {name: now - last for name, last in self._last.items() if now - last > 3 * self._every[name] + _SLACK}
        return "; ".join(f"{name} has not turned for {seconds:.0f} s" for name, seconds in late.items())
