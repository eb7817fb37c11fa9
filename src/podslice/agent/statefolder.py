"""Checks of the state directory: whether it is writable, and private to its owner."""

from __future__ import annotations

import os
from pathlib import Path

from podslice.agent.api_server.rejected import REJECTED_FILE
from podslice.node.checkpoints.names import CPU_STATE_FILE, DEVICE_DIRECTORY, MEMORY_STATE_FILE


def state_problem(directory: Path) -> str:
    """Return why nothing can be written to the directory; empty when it can, or does not exist yet."""
    try:
        if not directory.exists():
            return ""
        if not os.access(directory, os.W_OK | os.X_OK):
            return f"{directory} cannot be written"
        return "" if os.statvfs(directory).f_bavail else f"{directory} has no space left"
    except OSError as error:
        return f"{directory} cannot be used: {error.strerror}"


_OURS = (CPU_STATE_FILE, MEMORY_STATE_FILE, DEVICE_DIRECTORY, REJECTED_FILE, "pods")


def make_private(directory: Path) -> str:
    """Make the state directory, readable by its owner only; also where an older version or the kubelet made it open.

    Return why it is left open: it is not ours, or holds what others may need. Raises `OSError`.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if not found.st_mode & 0o077:
        return ""
    # Only a directory with nothing but our files is closed: others may read what is not ours.
    if found.st_uid != os.geteuid():
        return f"{directory} is open to others and belongs to user {found.st_uid}"
    others = sorted(one.name for one in directory.iterdir() if not _ours(one.name))
    if others:
        return f"{directory} is open to others and holds what is not the agent's: {', '.join(others[:3])}"
    directory.chmod(0o700)
    return ""


def _ours(name: str) -> bool:
    return name.endswith(".lock") or name.lstrip(".").startswith(_OURS)
