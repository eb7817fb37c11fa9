"""`python -m release.recording`: record `podslice why` in a terminal, as docs/why.cast (asciinema) and docs/why.svg.

The commands run for real, in a pseudo-terminal. The times of keys and pauses are written down below, so that two
recordings are equal. With `--check` nothing is written. Exit codes: 0 written or as stored, 1 different.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from release.archives import ROOT
from release.terminal_svg import Event, to_svg

CAST, PICTURE = ROOT / "docs" / "why.cast", ROOT / "docs" / "why.svg"
WIDTH, HEIGHT = 104, 36
FOLDER = ROOT / "examples" / "why"
_PROMPT = "\x1b[1;32m$\x1b[0m "
_KEY, _ENTER = 0.035, 0.4
"""Seconds for a key, and between the last one and the answer."""
_FIRST_LINES, _FIRST_LINE, _LINE = 6, 1.0, 0.3
"""Seconds for each of the first lines of an answer, and for the others, so that a reader can follow."""
NODE = "--from machine.yaml --config kubelet.yaml --state state"


class Step(NamedTuple):
    """A line that is typed, and how many seconds its answer stays."""

    typed: str
    pause: float


STEPS = (
    Step("# The kubelet of node7 refused shop/big. These files say what the node is and what runs there.", 1.0),
    Step(f'node="{NODE}"', 1.0),
    Step("podslice why shop/big --pods pods.yaml $node", 6.0),
    Step("# The first proposal: 6 CPUs instead of 8. Will the node take that?", 1.0),
    Step("podslice admit smaller.yaml --pods pods.yaml $node", 4.0),
)


def record() -> Iterator[Event]:
    """Yield what the terminal shows, in order, with the second it shows it in."""
    now = 0.5
    for step in STEPS:
        yield Event(now, _PROMPT)
        for key in step.typed:
            now += _KEY
            yield Event(now, key)
        now += _ENTER
        yield Event(now, "\r\n")
        if step.typed.startswith("podslice "):
            for number, line in enumerate(run(step.typed).splitlines(keepends=True)):
                yield Event(now, line)
                now += _FIRST_LINE if number < _FIRST_LINES else _LINE
        now += step.pause


def run(line: str) -> str:
    """Run a line of the shell in a terminal, and return what it prints there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment |= {"TERM": "xterm-256color", "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    tool = f'node="{NODE}"; podslice() {{ {shlex.quote(sys.executable)} -m podslice "$@"; }}; {line}'
    process = subprocess.Popen(
        ["sh", "-c", tool], cwd=FOLDER, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    found = b""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the last process has closed the terminal
            break
        if not data:
            break
        found += data
    os.close(ours)
    process.wait()
    return found.decode()


def to_cast(events: list[Event]) -> str:
    """Return events as the text of an asciinema file (version 2)."""
    header = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "podslice why"}
    lines = [header, *([round(one.at, 3), "o", one.text] for one in events)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Record podslice why.")
    parser.add_argument("--check", action="store_true")
    events = list(record())
    made: dict[Path, str] = {CAST: to_cast(events), PICTURE: to_svg(events, WIDTH, HEIGHT, title="podslice why")}
    if parser.parse_args().check:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(text) >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
