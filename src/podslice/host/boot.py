"""The id of the running boot, and the size of the kernel's image."""

from __future__ import annotations

from typing import NamedTuple

from podslice.host.filesystem import FileSystem
from podslice.machine.drift import kernel_span

_BOOT_ID, _IOMEM = "proc/sys/kernel/random/boot_id", "proc/iomem"
# A boot id is a UUID of 36 characters; the file of a captured machine may hold anything.
_LONGEST = 64


def boot_id(fs: FileSystem) -> str:
    """Return the kernel's id of this boot; empty where it cannot be read."""
    try:
        return fs.read(_BOOT_ID).strip()[:_LONGEST]
    except OSError:
        return ""


def kernel_image(fs: FileSystem) -> int | None:
    """Return the bytes that the kernel's image spans; None without the right to see addresses (CAP_SYS_ADMIN)."""
    try:
        return kernel_span(fs.read(_IOMEM))
    except OSError:
        return None


class Boot(NamedTuple):
    """The running boot: its id, and the bytes that the kernel's image spans (None: cannot be read)."""

    id: str
    kernel_image: int | None = None


def read_boot(fs: FileSystem) -> Boot:
    """Read the boot from the files of procfs below `fs`."""
    return Boot(boot_id(fs), kernel_image(fs))
