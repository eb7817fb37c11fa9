"""Capture a machine as a snapshot.

A plain `tar` stores files of /proc as empty and pads those of /sys. Here discovery runs once over a recording file
system, and the archive holds the files that it read: small, complete, and free of anything else about the machine.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import NamedTuple

from podslice.host.discover import discover
from podslice.host.filesystem import DiskFileSystem, FileSystem
from podslice.host.pci import read_pci_functions
from podslice.values.errors import InputError


class RecordingFileSystem:
    """A file system that passes every call through, and remembers the texts read and the names listed."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.files: dict[str, str] = {}
        self.names: set[str] = set()

    @property
    def label(self) -> str:
        return self._fs.label

    def read(self, path: str) -> str:
        text = self._fs.read(path)
        self.files[path] = text
        return text

    def entries(self, path: str) -> list[str]:
        names = self._fs.entries(path)
        self.names.update(f"{path}/{name}" for name in names)
        return names


class RecordedMachine(NamedTuple):
    """The text of every file that discovery reads, and names that it only lists, such as the links of a NUMA node to
    its CPUs."""

    files: dict[str, str]
    folders: set[str]


def record_machine(fs: FileSystem) -> RecordedMachine:
    """Return what discovery reads of a machine. Raises `InputError` where there is nothing to capture."""
    recording = RecordingFileSystem(fs)
    read_pci_functions(recording, discover(recording))
    parents = {path[:place] for path in recording.files for place, char in enumerate(path) if char == "/"}
    return RecordedMachine(recording.files, recording.names - recording.files.keys() - parents)


def capture_machine(target: str | Path, fs: FileSystem | None = None) -> int:
    """Write a snapshot of the machine (this one by default) to `target`, a tar compressed as its name says; returns
    the number of files. Raises `InputError` where there is nothing to capture or the target cannot be written."""
    recorded = record_machine(DiskFileSystem("/") if fs is None else fs)
    compression = {".xz": "xz", ".gz": "gz", ".bz2": "bz2"}.get(Path(target).suffix, "")
    try:
        with tarfile.open(target, f"w:{compression}") as archive:  # type: ignore[call-overload]
            for path in sorted(recorded.folders):
                member = tarfile.TarInfo(path)
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            for path, text in sorted(recorded.files.items()):
                content = text.encode()
                member = tarfile.TarInfo(path)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(target)) from None
    return len(recorded.files)
