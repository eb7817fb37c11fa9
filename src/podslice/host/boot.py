"""What the kernel says of the boot it is in, and of the place it lies at."""

from __future__ import annotations

from typing import NamedTuple

from podslice.host.filesystem import FileSystem
from podslice.machine.drift import kernel_span

_BOOT_ID, _IOMEM = "proc/sys/kernel/random/boot_id", "proc/iomem"
_LONGEST = 64


def boot_id(fs: FileSystem) -> str:
    """The kernel's id of this boot, empty where it does not say."""
    try:
        return fs.read(_BOOT_ID).strip()[:_LONGEST]
    except OSError:
        return ""


def kernel_image(fs: FileSystem) -> int | None:
    """Bytes the kernel's image spans; None without the right to see addresses (CAP_SYS_ADMIN)."""
    try:
        return kernel_span(fs.read(_IOMEM))
    except OSError:
        return None


class Boot(NamedTuple):
    """This boot: its id, and the bytes the kernel's image spans, where they can be read."""

    id: str
    kernel_image: int | None = None


def read_boot(fs: FileSystem) -> Boot:
    """What the files below `fs` say."""
    return Boot(boot_id(fs), kernel_image(fs))
