"""`podslice_guard_state`: texts of kernel files from before the agent's guards changed them (docs/isolation.md).

    {"version":1,"bootId":"6f0a…","files":[{"path":"proc/irq/131/smp_affinity_list","form":"list","before":"0-7",
     "written":["0-3"],"guard":"irq"}]}

Paths are below the root of all files and lead to `proc`, `sys` or a cgroup's set of CPUs. They are checked, because a
reader of the file writes to them. A kubelet does not know the file.
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
    """Old texts, and the boot that they are from."""

    version: int
    boot_id: str
    files: tuple[SavedFile, ...]


def decode(data: bytes) -> GuardContent:
    """Read a file. Raises `CheckpointError` for any other content."""
    try:
        content = msgspec.json.decode(data, type=GuardContent)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(str(error)) from None
    if content.version != VERSION:
        raise CheckpointError(f"version {content.version} is not known")
    return content


def load(data: bytes, cgroups: str | None = None) -> GuardContent:
    """Read a file whose paths are to be written, with `cgroups` as in `problem_of`. Raises `CheckpointError` also for
    paths that are not the kernel's."""
    content = decode(data)
    for one in content.files:
        if problem := problem_of(one, cgroups):
            raise CheckpointError(f"{one.path}: {problem}")
    return content


def encode(boot_id: str, files: Iterable[SavedFile]) -> bytes:
    """Return the file, its entries in the order of their paths."""
    return msgspec.json.encode(GuardContent(VERSION, boot_id, tuple(sorted(files, key=lambda one: one.path))))


def problem_of(one: SavedFile, cgroups: str | None = None) -> str:
    """Return what is wrong with an entry; empty where nothing is. `cgroups` is their folder below the root of all
    files; where it is not known, a cgroup's file is recognised by its name."""
    if ".." in one.path.split("/"):
        return "is not a file of the kernel"
    if not _KERNEL.fullmatch(one.path):
        if not _CGROUP.fullmatch(one.path):
            return "is not a file of the kernel"
        if cgroups is not None and not one.path.startswith(f"{cgroups}/"):
            return f"is not below /{cgroups}, where cgroups are"
    return "" if one.written else "does not say what was written"
