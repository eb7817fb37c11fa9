"""Lines of libraries in the program's own log."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from podslice.service.native_lines import LibraryLog, NativeLine, read_line
from podslice.service.pacing import LOG_SECONDS, MOST_LINES

HANDSHAKE = "I1126 05:00:00.123456   23683 ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: x"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (HANDSHAKE, ("info", "ssl_transport_security.cc:2563", "Handshake failed with error SSL_ERROR_SSL: x")),
        ("E1126 05:00:00.1 2 add_port.cc:83] Failed: [::1]:1", ("error", "add_port.cc:83", "Failed: [::1]:1")),
        ("W1126 05:00:00.1 2 a.cc:8] x] y", ("warning", "a.cc:8", "x] y")),
        ("F1126 05:00:00.1 2 a.cc:8] ", ("error", "a.cc:8", "")),
        ("malloc(): corrupted top size", ("warning", "", "malloc(): corrupted top size")),
        ("Handshake failed", ("warning", "", "Handshake failed")),
    ],
)
def test_lines_are_taken_apart(line: str, expected: tuple[str, str, str]) -> None:
    """gRPC's lines have level, place and text; any other is a warning as it is."""
    assert read_line(line) == expected
    assert read_line(line).is_handshake == (line == HANDSHAKE)


class LevelLines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(("error", event, fields))


def test_floods_are_counted() -> None:
    """Of one place only some lines a minute are written, and how many were left out; handshakes are counted all."""
    log, counted, now = LevelLines(), list[str](), [0.0]
    library = LibraryLog(log, "here", count=counted.append, clock=lambda: now[0])
    for _ in range(3 * MOST_LINES):
        library.write(read_line(HANDSHAKE))
    library.write(NativeLine("error", "a.cc:8", "else"))
    assert counted == ["handshake"] * 3 * MOST_LINES
    assert len(log.lines) == MOST_LINES + 1
    text = "Handshake failed with error SSL_ERROR_SSL: x"
    assert log.lines[0] == ("warning", "handshake failed", {"connection": "here", "what": text})
    assert log.lines[-1] == ("error", "library", {"source": "a.cc:8", "what": "else"})
    now[0] += LOG_SECONDS
    library.write(read_line(HANDSHAKE))
    assert log.lines[-1][2]["leftOut"] == 2 * MOST_LINES


PROGRAM = """
import logging, os, sys
from podslice.cluster.log_lines import LogLines
from podslice.service.native_lines import LibraryLog, NativeLines
with NativeLines() as native:
    os.write(2, b"early\\n")
    log = LogLines(stream=native.stream)
    native.follow(LibraryLog(log, "here", count=lambda kind: None).write)
    os.write(2, b"E1126 05:00:00.1 2 add_port.cc:83] Failed\\nhalf ")
    os.write(2, b"a line\\n" + b"x" * 20000 + b"\\nno end")
    logging.getLogger("asyncio").error("Task exception %s", "was never retrieved")
    log.info("own")
    print("python's own", file=sys.stderr)
os.write(2, b"after\\n")
raise SystemExit("the end")
"""


@pytest.mark.process
def test_a_crash() -> None:
    """A process that aborts leaves the calls that it was in, though nobody reads its lines any more."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace('log.info("own")', "os.abort()")], capture_output=True, text=True
    )
    assert ran.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in ran.stderr


@pytest.mark.process
def test_without_standard_error() -> None:
    """A program that was started with standard error closed runs all the same."""
    closed = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, PROGRAM]
    ran = subprocess.run(closed, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, "")


@pytest.mark.process
def test_a_process() -> None:
    """What C and Python's loggers write while the log is there becomes its lines, also what came before and the last
    half line; what Python writes itself, and what comes later, is as ever."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, "")
    found = list[dict[str, Any]]()
    plain = list[str]()
    for line in ran.stderr.splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
        else:
            plain.append(line)
    assert plain == ["python's own", "after", "the end"]
    whats = [(one["level"], one.get("what", "")[:20]) for one in found if one["event"] == "library"]
    assert ("error", "Task exception was n") in whats
    assert [one for one in whats if one[0] == "warning" or one[1] == "Failed"] == [
        ("warning", "early"), ("error", "Failed"), ("warning", "half a line"), ("warning", "x" * 20),
        ("warning", "x" * 20), ("warning", "no end"),
    ]  # fmt: skip
    assert [one["event"] for one in found if one["event"] != "library"] == ["own"]
