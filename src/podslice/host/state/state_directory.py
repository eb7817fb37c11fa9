"""Read a directory of state files: a node's own, or a copy."""

from __future__ import annotations

from pathlib import Path

from podslice.host.state.statefile import read_state
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE, MANAGER_STATE_FILES, POLICY_STATE_FILE, place_of
from podslice.values.errors import InputError


def read_state_directory(directory: Path) -> dict[str, bytes]:
    """Return the kubelet's state files in a directory, by name. Raises `InputError` when there are none."""
    if directory.is_file():
        raise InputError("is a file", source=str(directory), remedy="give the folder of the state files")
    found = {}
    for name in MANAGER_STATE_FILES:
        # The device file is in a folder of its own on a node; copies often have all files in one.
        places = (directory / place_of(name), directory / name)
        data = next((data for place in places if (data := read_state(place)) is not None), None)
        if data is not None:
            found[name] = data
    for name in (ALLOCATED_STATE_FILE, POLICY_STATE_FILE):
        beside = read_state(directory / name)
        # Only beside the managers' files: alone these two describe no node.
        if found and beside is not None:
            found[name] = beside
    if not found and not directory.exists():
        raise InputError("does not exist", source=str(directory))
    if not found:
        raise InputError(
            "holds no state file", source=str(directory), remedy=f"expected {', '.join(MANAGER_STATE_FILES)}"
        )
    return found
