"""A log that a test reads."""

from __future__ import annotations


class RecordedLog:
    """The lines of a log, each as its event and fields."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    def of(self, event: str) -> list[dict[str, object]]:
        """Return the fields of all lines of this event."""
        return [fields for name, fields in self.lines if name == event]
