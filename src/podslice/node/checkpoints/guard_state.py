"""`podslice_guard_state`: what files of the kernel said before the agent's guards changed them (docs/guards.md).

    {"version":1,"bootId":"6f0a…","files":[{"path":"proc/irq/131/smp_affinity_list","form":"list","before":"0-7",
     "written":["0-3"],"guard":"irq"}]}

Paths are below the root of all files and lead to `proc`, `sys` or a cgroup's set of CPUs: whoever reads the file writes
to them. A kubelet does not know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from podslice.node.checkpoints.guard_files import SavedFile
from podslice.values.go.gojson import CheckpointError

VERSION = 1
_KERNEL = re.compile(r"(proc|sys)(/[^/\0]+)+/?")
_CGROUP = re.compile(r"([^/\0]+/)+cpuset\.cpus(\.exclusive|\.partition)?")


class GuardContent(msgspec.Struct, frozen=True, rename="camel"):
    """Old values, of the boot that they are from."""

    version: int
    boot_id: str
    files: tuple[SavedFile, ...]


def decode(data: bytes) -> GuardContent:
    """Raises `CheckpointError` for what is no such file."""
    try:
        content = msgspec.json.decode(data, type=GuardContent)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(str(error)) from None
    if content.version != VERSION:
        raise CheckpointError(f"version {content.version} is not known")
    return content


def load(data: bytes, cgroups: str | None = None) -> GuardContent:
    """One to write by, with cgroups as in `problem_of`. Raises `CheckpointError` for paths that are not the kernel's,
    too."""
    content = decode(data)
    for one in content.files:
        if problem := problem_of(one, cgroups):
            raise CheckpointError(f"{one.path}: {problem}")
    return content


def encode(boot_id: str, files: Iterable[SavedFile]) -> bytes:
    """With the files in the order of their paths."""
    return msgspec.json.encode(GuardContent(VERSION, boot_id, tuple(sorted(files, key=lambda one: one.path))))


def problem_of(one: SavedFile, cgroups: str | None = None) -> str:
    """What is wrong with an entry; empty where nothing is. `cgroups` is where they are, below the root of all files;
    where that is not known, a cgroup's file is told by its name."""
    if ".." in one.path.split("/"):
        return "is no file of the kernel"
    if not _KERNEL.fullmatch(one.path):
        if not _CGROUP.fullmatch(one.path):
            return "is no file of the kernel"
        if cgroups is not None and not one.path.startswith(f"{cgroups}/"):
            return f"is not below /{cgroups}, where cgroups are"
    return "" if one.written else "does not say what was written"
