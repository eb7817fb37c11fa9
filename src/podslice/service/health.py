"""Is the agent well? What its probes and its status say, in words.

`/readyz` is bad while anything is; `/healthz` only while something is bad that a restart helps with: starting an agent
again because the API server or the runtime is away would help nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

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
