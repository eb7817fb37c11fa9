"""The service's log: JSON lines on standard error, as the agent's, without the megabytes that a library for all kinds
of logs takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO, TypeAlias

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


def _now() -> datetime:
    return datetime.now(UTC)


class LogLines:
    """Lines of that level and above. `now` is the time of a line."""

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

    def info(self, event: str, **told: object) -> None:
        self._write("info", event, told)

    def warning(self, event: str, **told: object) -> None:
        self._write("warning", event, told)

    def _write(self, level: LogLevel, event: str, told: dict[str, object]) -> None:
        if _LEVELS.index(level) < self._least:
            return
        time = self._now().isoformat().replace("+00:00", "Z")
        line = {**told, "event": event, "level": level, "timestamp": time}
        print(json.dumps(line, default=repr), file=self._stream, flush=True)
