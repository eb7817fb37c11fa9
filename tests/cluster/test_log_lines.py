"""The service's log is JSON lines with the time, whatever the fields are."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from podslice.cluster.log_lines import LogLevel, LogLines


@pytest.mark.parametrize(("level", "written"), [("debug", 2), ("info", 2), ("warning", 1), ("error", 0)])
def test_levels(level: LogLevel, written: int) -> None:
    """Lines below the level are left out; each says when, what and how bad."""
    stream = io.StringIO()
    log = LogLines(level, stream=stream, now=lambda: datetime(2026, 11, 24, 5, 0, 0, 250_000, UTC))
    log.info("serving", extender=9098)
    log.warning("trouble", where="pods", what="line\nbreak é")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines == [
        {"extender": 9098, "event": "serving", "level": "info", "timestamp": "2026-11-24T05:00:00.250000Z"},
        {"where": "pods", "what": "line\nbreak é", "event": "trouble", "level": "warning",
         "timestamp": "2026-11-24T05:00:00.250000Z"},
    ][2 - written :]  # fmt: skip


def test_any_value_can_be_logged() -> None:
    """A value that is not JSON is written as Python writes it, and half a character does not lose the line."""
    stream = io.StringIO()
    log = LogLines(stream=stream)
    log.info("x", where=Path("/a"), what="\udc80")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["where"] == "PosixPath('/a')"
