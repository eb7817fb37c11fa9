"""Reading files named by users: never more than a limit, whatever the name leads to.

A name can lead to a device, a pipe or a standard input that never ends. What is read is counted while it is read, and
text stops being text at its first NUL byte.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from podslice.values.errors import InputError

MAX_TEXT_BYTES = 48 << 20
"""Longest text that is read. The pods of a cluster of thousands are about 30 MiB."""
PathOrText = str | Path
"""What functions for programs take: the path of a file, or the text that would be in it."""
_CHUNK = 1 << 20
_read: BinaryIO | None = None
"""The standard input that was read already."""


def is_text(source: PathOrText) -> bool:
    """Whether `source` is a text rather than the path of a file: it has several lines, or begins as JSON does."""
    return isinstance(source, str) and ("\n" in source.strip() or source.lstrip()[:1] in ("{", "["))


def read_text(path: str) -> str:
    """Return the UTF-8 text of a file, or of standard input for `-`. Raises `InputError`."""
    data = read_bytes(path, MAX_TEXT_BYTES, text=True)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(_binary_problem(data, "is not UTF-8 text"), source=path) from None


def read_bytes(path: str, most: int, *, text: bool = False) -> bytes:
    """Return the content of a file, or of standard input for `-`, of at most `most` bytes. `text` ends at the first NUL
    byte.

    Raises `InputError`.
    """
    try:
        return read_limited(path, most, text=text)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=path) from None


def read_limited(path: str, most: int, *, text: bool = False) -> bytes:
    """Read as `read_bytes`, but raise `OSError` where the operating system refuses. Raises `InputError` too."""
    if path == "-":
        return read_stream(_standard_input(), path, most, text=text)
    with open(path, "rb") as file:
        # A large file is refused unread. Devices and pipes state no size; they are counted while they are read.
        status = os.fstat(file.fileno())
        # Pipes and devices have no size; they are bounded while they are read.
        if stat.S_ISREG(status.st_mode) and status.st_size > most:
            raise _too_large(path, most)
        return read_stream(file, path, most, text=text)


def read_stream(file: BinaryIO, path: str, most: int, *, text: bool = False) -> bytes:
    """Return the rest of an open file, bounded as in `read_bytes`. Raises `InputError` and `OSError`."""
    chunks: list[bytes] = []
    size = 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if text and b"\0" in chunk:
            raise InputError(_binary_problem((chunks or [chunk])[0]), source=path)
        if size > most:
            raise _too_large(path, most)
        chunks.append(chunk)
    return b"".join(chunks)


_FORMATS = {
    b"\x1f\x8b": "a gzip archive",
    b"\xfd7zXZ": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"PK\x03\x04": "a zip archive",
    b"\x7fELF": "a program",
}


def _binary_problem(data: bytes, otherwise: str = "is not text: it holds a NUL byte") -> str:
    for start, name in _FORMATS.items():
        if data.startswith(start):
            return f"is {name}, not text"
    return otherwise


def _standard_input() -> BinaryIO:
    """Return standard input, once. A second reader would find it empty and report an empty file."""
    global _read
    if _read is sys.stdin.buffer:
        raise InputError("is named twice, and can be read once", source="stdin", remedy="write one of them to a file")
    _read = sys.stdin.buffer
    return _read


def _too_large(path: str, most: int) -> InputError:
    size = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most} bytes"
    return InputError(f"is larger than {size}", source=path, remedy=f"at most {size} are read")
