"""The few text forms sysfs and procfs use: numbers, CPU lists, CPU masks, `Key: 123 kB` lines.

Some collecting tools pad files with NUL bytes to the page size; those are dropped, the kernel never writes them.
"""

from __future__ import annotations

import re

from podslice.host.filesystem import FileSystem
from podslice.values.cpuset import Bits, CPUSetError, bits_of, iter_bits, parse_bits
from podslice.values.errors import PodsliceError
from podslice.values.golang import GoSyntaxError, atoi

_LONGEST_MASK = 1 << 16
_KB_LINE = r"^(?:Node\s+\d+\s+)?{key}:\s*(\d+) kB"


class MalformedError(PodsliceError, ValueError):
    """Raised for a file that does not hold what the kernel writes. The message names path and content."""


def read_text(fs: FileSystem, path: str) -> str:
    """Return the trimmed text of a file. Raises `OSError`."""
    return fs.read(path).strip("\0 \t\r\n\v\f")


def read_number(fs: FileSystem, path: str) -> int:
    """Return the decimal number in a file. Raises `OSError`, `MalformedError`."""
    text = read_text(fs, path)
    try:
        return atoi(text)
    except GoSyntaxError:
        raise MalformedError(f"{path}: {text[:40]!r} is not a number") from None


def read_optional_number(fs: FileSystem, path: str) -> int | None:
    """Return the decimal number in a file; None where it cannot be read."""
    try:
        return read_number(fs, path)
    except (OSError, MalformedError):
        return None


def read_optional_text(fs: FileSystem, path: str) -> str:
    """Return the trimmed text of a file; empty where it cannot be read."""
    try:
        return read_text(fs, path)
    except OSError:
        return ""


def parse_mask(text: str) -> Bits:
    """Parse a CPU mask (`00000000,0000ffff`). Raises `ValueError`."""
    if len(text) > _LONGEST_MASK:
        raise ValueError(f"a CPU mask of {len(text)} characters")
    words = text.split(",")
    return int("".join([words[0], *(word.rjust(8, "0") for word in words[1:])]), 16)


def parse_list(text: str) -> Bits:
    """Parse a CPU list; `(null)`, which collectors write for no CPUs, is the empty set. Raises `CPUSetError`."""
    return 0 if text == "(null)" else parse_bits(text)


def parse_boot_list(text: str, last: int) -> Bits:
    """Parse a CPU list of the kernel's command line: `all`, `N` for the last CPU (`last`), `1-9:2/4` for two of every
    four. Raises `CPUSetError`."""
    cpus = 0
    for item in text.replace("all", "0-N").replace("N", str(last)).split(","):
        span, _, stride = item.partition(":")
        members = parse_bits(span)
        used, _, group = stride.partition("/")
        if stride and (not used.isdecimal() or not group.isdecimal() or not 0 < int(used) <= int(group)):
            raise CPUSetError(f"{item[:40]!r} is not a CPU list")
        if stride:
            low = (members & -members).bit_length() - 1
            members = bits_of(cpu for cpu in iter_bits(members) if (cpu - low) % int(group) < int(used))
        cpus |= members
    return cpus


def read_cpus(fs: FileSystem, *paths: str) -> Bits | None:
    """Return the CPUs in the first of the paths that can be read: a mask where the name ends in `map`, `siblings` or
    `_cpus`, else a list. None where none can be read."""
    for path in paths:
        text = read_optional_text(fs, path)
        if not text:
            continue
        try:
            return parse_mask(text) if path.endswith(("map", "siblings", "_cpus")) else parse_list(text)
        except (CPUSetError, ValueError):
            continue
    return None


def kilobytes(text: str, key: str) -> int | None:
    """Return the bytes of a `Key: 123 kB` line of (a node's) meminfo; None without such a line."""
    match = re.search(_KB_LINE.format(key=re.escape(key)), text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None
