"""A text that holds what several commands printed, as people paste it into a ticket: cut it into one part for each.

A part begins at the line with the prompt and the command, or at the first line of what a known program prints. Lines
of prose, comments and fences of Markdown around a part belong to none. A quoted mail has `> ` before each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from podslice.machine.listings.lstopo import is_lstopo
from podslice.machine.listings.nvidia_topo import is_nvidia_topo
from podslice.values.errors import InputError


class Part(NamedTuple):
    """What one command printed. `line`: where it begins in the text, from 1; `command`: as typed, or the program."""

    line: int
    command: str
    text: str


_QUOTED = re.compile(r"(?:> ?)+")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_KNOWN = (
    r"(?:lscpu|numactl +(?:-H|--hardware|-\w*H\w*)|lstopo(?:-no-graphics)?|hwloc-ls|cat +/proc/cpuinfo"
    r"|nvidia-smi +topo|kubectl +(?:describe|get) +(?:-\S+ +)*nodes?\b)"
)
_TYPED = re.compile(
    rf"(?:[^\n]{{0,200}}[$#>%~] *)?(?P<command>(?:sudo +)?(?:[A-Z_]{{2,20}}=\S{{1,50}} +)*(?:/\S{{1,100}}/)?{_KNOWN}"
    r"(?: [^\n:]{0,200})?)\s*\Z"
)
_OTHER_PROMPT = re.compile(
    r"(?:\[[^\]\n]{1,100}\][$#] ?|(?:\([^)\n]{1,50}\) *)?[\w.-]{1,64}@[^\s$#%>]{1,200}(?: ?[$#%>]) ?|\$ )"
)
"""A prompt before a command that says nothing of CPUs, or before none."""
_NO_OUTPUT = re.compile(r"(?i)not found|no such file|permission denied|cannot open")
_HEADERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("lscpu", re.compile(r"Architecture:\s|CPU op-mode\(s\):|CPU\(s\):\s+\d")),
    ("lscpu -e", re.compile(r"CPU\s.*\b(?:NODE|SOCKET|CORE)\b")),
    ("lscpu -p", re.compile(r"# The following is the parsable format|# CPU,")),
    ("numactl -H", re.compile(r"available: \d{1,6} nodes? \(")),
    ("/proc/cpuinfo", re.compile(r"processor\s*:\s*\d+\s*\Z")),
    ("kubectl describe node", re.compile(r"Name:\s+\S+\s*\Z")),
)
_OBJECT = re.compile(
    r"(?:apiVersion|kind|sockets): *\S+\s*\Z|(?:machineinfo|nodes|metadata|status|items):\s*\Z|---|[{<]"
)
_JSON_OF = re.compile(r"\{\s*\Z|\{\s*\"")
_WHOLE = "give the whole output as the program printed it, or leave that command out"


def split_ticket(text: str, source: str = "") -> list[Part]:
    """Return the parts of a text that several commands printed, or that has something around what one printed; none for
    every other text. Raises `InputError` for a command whose output is not what it prints."""
    lines = _unquote(text.splitlines())
    first = next((line for line in lines if line.strip() and not _is_comment(line)), "")
    if _OBJECT.match(first):
        return []
    parts = [_Section(line, command, tuple(body)) for line, command, body in _sections(lines)]
    found = [part for section in parts if (part := section.read()) is not None]
    if not found:
        return []
    for section in parts:
        if section.is_cut():
            where = f"{source}, line {section.line}" if source else f"line {section.line}"
            problem = f"{section.command!r} is not followed by what it prints"
            raise InputError(problem, source=where, remedy=_WHOLE)
    return found


def _unquote(lines: list[str]) -> list[str]:
    """Return the lines without the marks of a quoted mail, where most lines have one."""
    written = [line for line in lines if line.strip()]
    if 2 * sum(line.startswith(">") for line in written) <= len(written):
        return lines
    return [_QUOTED.sub("", line, count=1) if line.startswith(">") else line for line in lines]


def _is_comment(line: str) -> bool:
    return line.startswith("#") and not dict(_HEADERS)["lscpu -p"].match(line)


class _Section(NamedTuple):
    line: int
    command: str
    lines: tuple[str, ...]

    def read(self) -> Part | None:
        """Return the part from its first printed line on; None where nothing in it is of a known program."""
        for at, line in enumerate(self.lines):
            if _program(self.lines, at) or (self.command and _JSON_OF.match(line)) or self._is_object(line):
                number = self.line + at + (1 if self.command else 0)
                program = self.command or _program(self.lines, at)
                return Part(number, program, "\n".join(_to_end(self.lines[at:])) + "\n")
        return None

    def _is_object(self, line: str) -> bool:
        return "kubectl" in self.command and bool(_OBJECT.match(line))

    def is_cut(self) -> bool:
        """Whether a known command was typed, and what stands below is not what it prints; kubectl get prints tables
        too."""
        if "kubectl get" in self.command:
            return False
        printed = [line for line in self.lines if line.strip() and not line.startswith("#")]
        return bool(self.command and printed) and self.read() is None and not _NO_OUTPUT.search(printed[0])


def _to_end(lines: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a part; JSON ends with its bracket."""
    is_json = lines[0].startswith("{")
    for line in lines:
        yield line
        if is_json and line.rstrip() == "}":
            return


def _sections(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield where each section begins, the command typed there and its lines."""
    start, command, program, body = 1, "", "", list[str]()
    for at, line in enumerate(lines):
        if typed := _TYPED.match(line):
            yield start, command, body
            start, command, program, body = at + 1, " ".join(typed["command"].split()), "", []
            continue
        if _FENCE.match(line) or (_OTHER_PROMPT.match(line) and not _program(lines, at)):
            yield start, command, body
            start, command, program, body = at + 2, "", "", []
            continue
        header = "" if line[:1] in "{[" else _program(lines, at)
        if header and program and _is_next(program, header):
            yield start, command, body
            start, command, body = at + 1, "", []
        program = header or program
        body.append(line)
    yield start, command, body


def _is_next(program: str, header: str) -> bool:
    """Whether a header begins another part: a summary of lscpu has several such lines, and its table may follow."""
    if program == header:
        return header in ("numactl -H", "lscpu -e", "kubectl describe node")
    return (program, header) != ("lscpu", "lscpu -p")


def _program(lines: list[str] | tuple[str, ...], at: int) -> str:
    """Return the program of which a line is the first one, empty for any other line."""
    line = lines[at]
    for program, pattern in _HEADERS:
        if pattern.match(line):
            return program
    if line.startswith(("Machine", "System")) and is_lstopo(line + "\n"):
        return "lstopo"
    return "nvidia-smi topo -m" if "CPU Affinity" in line and is_nvidia_topo(line) else ""
