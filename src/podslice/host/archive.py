"""Read tar archives of unknown origin from front to back, within bounds.

The standard library trusts an archive in three ways that a few hundred kilobytes can abuse: it unpacks as much as
there is, it reads extended headers whole, and it remembers every member. Here the unpacked bytes, the size of headers
and the number of members are counted while the archive is read.
"""

from __future__ import annotations

import bz2
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from podslice.values.errors import PodsliceError

MAX_ENTRIES = 40_000
"""Members of an archive. A capture of 768 CPUs has 17 000."""
MAX_TOTAL_BYTES = 256 << 20
"""Unpacked bytes of an archive. A capture of 768 CPUs has 16 MiB."""
_MAX_HEADER_BYTES = 64 << 10
_XZ_MEMORY = 72 << 20
"""Memory that `xz -9` needs to unpack, in bytes."""
_INPUT = 64 << 10
_EXTENDED = frozenset(
    (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
)


class AbsurdArchiveError(PodsliceError):
    """Raised for an archive that is larger than any captured machine; the message says which bound it breaks."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflate:
    """A gzip decompressor with the interface of those of `lzma` and `bz2`."""

    def __init__(self) -> None:
        self._object = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._object.decompress(self._object.unconsumed_tail + data, max_length)


def _decompressor(start: bytes) -> _Decompressor | None:
    """Return a decompressor for content with this start; None for content that is not compressed."""
    if start.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    if start.startswith(b"\x1f\x8b"):
        return _Inflate()
    return bz2.BZ2Decompressor() if start.startswith(b"BZh") else None


class _Unpacked:
    """The unpacked bytes of a file, from front to back; raises `AbsurdArchiveError` after `MAX_TOTAL_BYTES`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._packed = file.read(_INPUT)
        self._decompressor = _decompressor(self._packed)
        self._total = 0

    def read(self, size: int) -> bytes:
        chunks: list[bytes] = []
        wanted = size
        while wanted > 0 and (chunk := self._read_some(wanted)):
            chunks.append(chunk)
            wanted -= len(chunk)
        self._total += size - wanted
        if self._total > MAX_TOTAL_BYTES:
            raise AbsurdArchiveError(f"more than {MAX_TOTAL_BYTES >> 20} MiB unpacked")
        return b"".join(chunks)

    def _read_some(self, size: int) -> bytes:
        if self._decompressor is None:
            chunk, self._packed = self._packed[:size], self._packed[size:]
            return chunk or self._file.read(size)
        while True:
            if self._decompressor.eof:
                # A compressed file may be several streams in a row, with zeros as padding between and after them.
                self._packed = (self._decompressor.unused_data + self._packed).lstrip(b"\0") or self._file.read(_INPUT)
                following = _decompressor(self._packed)
                if following is None:
                    return b""
                self._decompressor = following
            chunk = self._decompressor.decompress(self._packed, size)
            self._packed = b""
            if chunk:
                return chunk
            if not self._decompressor.eof:
                self._packed = self._file.read(_INPUT)
                if not self._packed:
                    raise EOFError("the compressed data ends early")


class _Member(tarfile.TarInfo):
    """Refuses headers that announce absurd sizes before anything of that size is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        # The size field may hold a negative number, in the binary form that GNU tar uses for large files.
        if member.size < 0:
            raise tarfile.ReadError("a member of negative size")
        if member.type in _EXTENDED and member.size > _MAX_HEADER_BYTES:
            raise AbsurdArchiveError(f"an extended header of {member.size} bytes")
        return member


def _open(content: _Unpacked) -> tarfile.TarFile:
    opened: tarfile.TarFile = tarfile.open(fileobj=content, mode="r|", tarinfo=_Member)  # type: ignore[call-overload]  # noqa: SIM115
    return opened


def read_members(path: Path) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield the members of an archive in order. Each must be read before the next one is taken.

    Raises `AbsurdArchiveError`, and what the standard library raises for damaged archives.
    """
    with path.open("rb", buffering=0) as file, _open(_Unpacked(file)) as archive:
        for _ in range(MAX_ENTRIES):
            member = archive.next()
            if member is None:
                return
            yield member, archive
            # The list grows by every member, also when the archive is only streamed.
            archive.members.clear()  # type: ignore[attr-defined]
    raise AbsurdArchiveError(f"more than {MAX_ENTRIES} entries")
