"""Open a captured machine: a directory or an archive that holds its `sys/` and `proc/`.

Archives are read into memory and nothing is unpacked, so names that climb out of the archive have no effect.
Only what discovery reads is kept, and everything is bounded while it is read.
"""

from __future__ import annotations

import lzma
import posixpath
import re
import tarfile
import zlib
from pathlib import Path

from podslice.host.archive import AbsurdArchiveError, read_members
from podslice.host.filesystem import MAX_FILE_BYTES, DiskFileSystem, FileSystem, MemoryFileSystem
from podslice.values.errors import InputError

_MAX_KEPT_BYTES = 48 << 20

_WANTED = re.compile(
    r"(?:^|.*/)((?:sys/devices/system/(?:cpu|node)/|sys/devices/cpu_|sys/kernel/mm/hugepages/|proc/).+"
    # A PCI function: its folder or link, and the files that identify the device and its NUMA node.
    r"|sys/(?:bus/pci/devices|devices/.+)/[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
    r"(?:/(?:class|vendor|device|numa_node|local_cpulist|local_cpus|sriov_numvfs|physfn(?:/class)?|net/[^/]+))?)$"
)
# Below the folders that are kept, the bulk of a capture, which discovery does not read.
_UNUSED = re.compile(r"/(?:acpi_cppc|cpuidle|hotplug|power|thermal_throttle|vulnerabilities|memory\d+)(?:/|$)")
_NEEDED = "sys/devices/system"
_REMEDY = "a snapshot is a directory or tar archive with the folders sys/ and proc/ of a machine"


def name_in_snapshot(name: str) -> str:
    """Return the path below `sys/` or `proc/` of an archive's member that discovery reads; empty for others."""
    match = _WANTED.match(posixpath.normpath(name))
    return "" if match is None or _UNUSED.search(match[1]) else match[1]


def open_snapshot(path: str | Path) -> FileSystem:
    """Open the captured machine at `path`. Raises `InputError` for one that is missing, incomplete, damaged or too
    large."""
    path = Path(path)
    if path.is_dir():
        if not (path / _NEEDED).is_dir():
            raise InputError(f"has no sys directory ({_NEEDED})", source=str(path), remedy=_REMEDY)
        return DiskFileSystem(path)
    try:
        fs = _read_archive(path)
    except FileNotFoundError:
        raise InputError("does not exist", source=str(path), remedy=_REMEDY) from None
    except AbsurdArchiveError as error:
        raise InputError(f"absurd size: {error}", source=str(path), remedy=_REMEDY) from None
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, MemoryError) as error:
        problem = "" if isinstance(error, tarfile.ReadError) else f": {error}"
        raise InputError(f"is not a readable tar archive{problem}", source=str(path), remedy=_REMEDY) from error
    if not fs.entries(_NEEDED):
        raise InputError(f"has no sys directory ({_NEEDED})", source=str(path), remedy=_REMEDY)
    return fs


def _read_archive(path: Path) -> MemoryFileSystem:
    files: dict[str, str | bytes] = {}
    links: dict[str, str] = {}
    directories: list[str] = []
    kept = 0
    for member, archive in read_members(path):
        name = name_in_snapshot(member.name)
        if not name:
            continue
        if member.issym():
            links[name] = member.linkname
        elif member.isdir():
            directories.append(name)
        elif member.isfile():
            # Checked before the content is read.
            if member.size > MAX_FILE_BYTES:
                raise AbsurdArchiveError(f"{name} has {member.size} bytes, more than {MAX_FILE_BYTES >> 20} MiB")
            kept += member.size
            if kept > _MAX_KEPT_BYTES:
                raise AbsurdArchiveError(f"more than {_MAX_KEPT_BYTES >> 20} MiB of files below sys/ and proc/")
            content = archive.extractfile(member)
            files[name] = content.read() if content is not None else b""
    return MemoryFileSystem(files, links, directories=directories, label=str(path))
