"""Telling a container what it has: environment variables, and a file that stays current.

The file is in a folder of its own per container, mounted read-only at `/run/podslice`, so that replacing it is seen
inside. Environment variables are what was true at creation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from podslice.agent.records import CPUS_ENV, FILE_ENV, ISOLATION_ENV, MEMS_ENV, ContainerRecord, Pinning
from podslice.agent.translate import variables_of
from podslice.core.values.cpuset import Bits, format_bits
from podslice.wire.proto import nri_pb2 as nri

MOUNT_POINT = "/run/podslice"
FILE_NAME = "resources.json"
_MARKER = ".podslice"
_TEMPORARY = f".{FILE_NAME}.new"


class ContainerFiles:
    """The folder with one sub-folder per container; None for `folder` writes nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._content: dict[str, bytes] = {}

    def write(self, record: ContainerRecord, placement: Pinning, upcoming: Bits = 0) -> None:
        """Bring a container's file up to date; one that is left alone gets none. `upcoming` are the CPUs it is to be
        left with soon. Raises `OSError`."""
        if self._folder is None or (record.stranger and placement == Pinning()):
            return
        data = {"cpus": placement.cpu_list, "memoryNodes": placement.mem_list, "isolation": placement.isolation}
        data |= {"next": format_bits(upcoming)} if upcoming else {}
        content = msgspec.json.encode(data) + b"\n"
        if self._content.get(record.id) == content:
            return
        folder = self._folder / record.id
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        (folder / _MARKER).touch(mode=0o644)
        temporary = folder / _TEMPORARY
        temporary.write_bytes(content)
        temporary.chmod(0o644)
        temporary.rename(folder / FILE_NAME)
        self._content[record.id] = content

    def told(self, message: nri.Container) -> Mapping[str, str]:
        """What a container was told last, as variables; empty for one without a file. Where no files are written its
        environment must do."""
        if self._folder is None:
            return variables_of(message)
        try:
            data = msgspec.json.decode((self._folder / message.id / FILE_NAME).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError, RecursionError):
            return {}
        return {CPUS_ENV: data.get("cpus", ""), ISOLATION_ENV: data.get("isolation", "")}

    def remove(self, container_id: str) -> None:
        self._content.pop(container_id, None)
        if self._folder is not None and "/" not in container_id and container_id not in ("", ".", ".."):
            _remove(self._folder / container_id)

    def keep_only(self, container_ids: set[str]) -> None:
        """Remove what earlier runs left behind: folders with our marker, and in them only our files."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.name not in container_ids:
                    _remove(path)

    def adjust(self, record: ContainerRecord, placement: Pinning, adjust: nri.ContainerAdjustment) -> None:
        """Environment and mount of a container about to be created."""
        variables = {
            CPUS_ENV: placement.cpu_list,
            MEMS_ENV: placement.mem_list,
            ISOLATION_ENV: placement.isolation,
        }
        if self._folder is not None:
            variables[FILE_ENV] = f"{MOUNT_POINT}/{FILE_NAME}"
            adjust.mounts.append(
                nri.Mount(
                    destination=MOUNT_POINT,
                    type="bind",
                    source=str(self._folder / record.id),
                    options=["rbind", "ro", "nosuid", "nodev", "noexec"],
                )
            )
        adjust.env.extend(nri.KeyValue(key=key, value=value) for key, value in variables.items())


def _remove(folder: Path) -> None:
    """A container's folder; one that is not ours, or holds more than ours, stays. The marker goes last."""
    if folder.is_symlink() or not (folder / _MARKER).is_file():
        return
    with contextlib.suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {FILE_NAME, _TEMPORARY, _MARKER}:
            for name in (FILE_NAME, _TEMPORARY, _MARKER):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
