"""Opening a captured machine: a directory or an archive that holds `sys/` and `proc/` as they were.

Archives are read into memory and nothing is unpacked, so names that climb out of the archive have no effect.
Only what discovery reads is kept, and the announced sizes are bounded before anything is decompressed further.
"""

from __future__ import annotations

import lzma
import posixpath
import re
import tarfile
import zlib
from pathlib import Path

from podslice.core.errors import InputError
from podslice.host.filesystem import MAX_FILE_BYTES, DiskFileSystem, FileSystem, MemoryFileSystem

MAX_ENTRIES = 2_000_000
MAX_TOTAL_BYTES = 1 << 30
_MAX_KEPT_BYTES = 256 << 20

_WANTED = re.compile(
    r"(?:^|.*/)((?:sys/devices/system/(?:cpu|node)/|sys/devices/cpu_|sys/kernel/mm/hugepages/|proc/).+"
    # A PCI function: its folder or link, and what tells a device and its NUMA node.
    r"|sys/(?:bus/pci/devices|devices/.+)/[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
    r"(?:/(?:class|vendor|device|numa_node|local_cpulist|local_cpus|sriov_numvfs|physfn(?:/class)?))?)$"
)
_UNUSED = re.compile(r"/(?:acpi_cppc|cpuidle|hotplug|power|thermal_throttle|vulnerabilities|memory\d+)(?:/|$)")
_NEEDED = "sys/devices/system"
_REMEDY = "a snapshot is a directory or tar archive with the folders sys/ and proc/ of a machine"


def open_snapshot(path: str | Path) -> FileSystem:
    """The captured machine at `path`. Raises `InputError` naming what is missing, damaged or absurd."""
    path = Path(path)
    if path.is_dir():
        if not (path / _NEEDED).is_dir():
            raise InputError(f"has no sys directory ({_NEEDED})", source=str(path), remedy=_REMEDY)
        return DiskFileSystem(path)
    try:
        with tarfile.open(path, "r:*") as archive:
            fs = _read_archive(archive, str(path))
    except FileNotFoundError:
        raise InputError("does not exist", source=str(path), remedy=_REMEDY) from None
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError) as error:
        problem = "" if isinstance(error, tarfile.ReadError) else f": {error}"  # tarfile lists every format it tried
        raise InputError(f"is no readable tar archive{problem}", source=str(path), remedy=_REMEDY) from error
    if not fs.entries(_NEEDED):
        raise InputError(f"has no sys directory ({_NEEDED})", source=str(path), remedy=_REMEDY)
    return fs


def _read_archive(archive: tarfile.TarFile, source: str) -> MemoryFileSystem:
    files: dict[str, str | bytes] = {}
    links: dict[str, str] = {}
    directories: list[str] = []
    total = kept = 0
    for count, member in enumerate(archive):
        total += member.size
        if count >= MAX_ENTRIES or total > MAX_TOTAL_BYTES:
            raise _too_large(source, f"more than {MAX_ENTRIES} entries or {MAX_TOTAL_BYTES >> 20} MiB")
        match = _WANTED.match(posixpath.normpath(member.name))
        if match is None or _UNUSED.search(match[1]):
            continue
        if member.issym():
            links[match[1]] = member.linkname
        elif member.isdir():
            directories.append(match[1])
        elif member.isfile():
            if member.size > MAX_FILE_BYTES:
                raise _too_large(source, f"{match[1]} has {member.size} bytes, more than {MAX_FILE_BYTES >> 20} MiB")
            kept += member.size
            if kept > _MAX_KEPT_BYTES:
                raise _too_large(source, f"more than {_MAX_KEPT_BYTES >> 20} MiB of files below sys/ and proc/")
            content = archive.extractfile(member)
            files[match[1]] = content.read() if content is not None else b""
    return MemoryFileSystem(files, links, directories=directories, label=source)


def _too_large(source: str, why: str) -> InputError:
    return InputError(f"absurd size: {why}", source=source, remedy=_REMEDY)
