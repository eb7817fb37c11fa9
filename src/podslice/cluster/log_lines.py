"""The service's log: JSON lines on stderr in the form of the agent's, without the megabytes of a logging library."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, Protocol, TextIO, TypeAlias

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


def _now() -> datetime:
    return datetime.now(UTC)


class Log(Protocol):
    """Where parts of the service write what happened: an event and its fields."""

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...


class NoLog:
    """A log that keeps nothing."""

    def info(self, event: str, **fields: object) -> None:
        """Write nothing."""

    def warning(self, event: str, **fields: object) -> None:
        """Write nothing."""


class LogLines:
    """A log that prints lines of `level` and above. `now` returns the time of a line."""

    def __init__(
        self,
        level: LogLevel = "info",
        *,
        stream: TextIO | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._least = _LEVELS.index(level)
        self._stream = stream or sys.stderr
        self._now = now

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def _write(self, level: LogLevel, event: str, fields: dict[str, object]) -> None:
        if _LEVELS.index(level) < self._least:
            return
        time = self._now().isoformat().replace("+00:00", "Z")
        line = {**fields, "event": event, "level": level, "timestamp": time}
        # One write for a line: several threads log.
        self._stream.write(json.dumps(line, default=repr) + "\n")
        self._stream.flush()
