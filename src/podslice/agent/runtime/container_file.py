"""Environment variables and the resource file that tell a container which resources it has.

Each container has a folder of its own, mounted read-only at `/run/podslice`; a file replaced in it is visible inside
the container. Environment variables show the values at creation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from podslice.agent.records import (
    CPUS_ENV,
    EXCLUSIVE_ENV,
    FILE_ENV,
    ISOLATION_ENV,
    MEMS_ENV,
    SHARED_ENV,
    SIBLINGS_ENV,
    ContainerRecord,
    Pinning,
)
from podslice.agent.runtime.exposure import ContainerResources, describe_pinning
from podslice.agent.runtime.translate import variables_of
from podslice.config.policy import MixedCPUs
from podslice.host.state.statefile import open_replacement
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import Bits, format_bits, iter_bits

MOUNT_POINT = "/run/podslice"
FILE_NAME = "resources.json"
_MARKER = ".podslice"
_TEMPORARY = f".{FILE_NAME}.new"


class _Generation(msgspec.Struct, frozen=True):
    generation: int = 0


class _FileVariables(msgspec.Struct, frozen=True):
    """The fields of a resource file from which a restarted agent restores the container's variables."""

    cpus: str = ""
    isolation: str = ""
    exclusive_cpus: str = msgspec.field(default="", name="exclusiveCPUs")


class _WrittenFile(NamedTuple):
    """Content of a resource file, None where unknown, and how often it changed."""

    facts: ContainerResources | None
    generation: int


class ContainerFiles:
    """The folder with one sub-folder per container. With `folder` None nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._content: dict[str, _WrittenFile] = {}

    def write(self, record: ContainerRecord, facts: ContainerResources) -> None:
        """Write a container's file if its content changed. A container created without us, and without own resources,
        gets none. Raises `OSError`."""
        if self._folder is None or (record.stranger and facts == describe_pinning(Pinning())):
            return
        known = self._content.get(record.id) or self._found(record.id)
        if known.facts == facts:
            self._content[record.id] = known
            return
        written = _WrittenFile(facts, known.generation + 1)
        content = msgspec.json.encode({"generation": written.generation, **msgspec.to_builtins(facts)}) + b"\n"
        folder = self._folder / record.id
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        # The marker comes before the file: whatever a kill leaves behind is recognized as ours and removed later.
        (folder / _MARKER).touch(mode=0o644)
        with open_replacement(folder / FILE_NAME, mode=0o600) as beside:
            beside.write_bytes(content)
            beside.chmod(0o644)
        self._content[record.id] = written

    def _found(self, container_id: str) -> _WrittenFile:
        """Return what an earlier process wrote, as far as it can be read."""
        try:
            data = self._read(container_id)
            known = msgspec.json.decode(data, type=_Generation)
            return _WrittenFile(msgspec.json.decode(data, type=ContainerResources), known.generation)
        except (OSError, RecursionError, msgspec.MsgspecError):
            return _WrittenFile(None, 0)

    def _read(self, container_id: str) -> bytes:
        """Return the bytes of a container's file. Raises `OSError`."""
        if self._folder is None:
            raise FileNotFoundError(FILE_NAME)
        return (self._folder / container_id / FILE_NAME).read_bytes()

    def environment(self, message: nri.Container) -> Mapping[str, str]:
        """Return the variables for what the container's file says; empty where it has no file.

        Where no files are written the container's own environment is used.
        """
        if self._folder is None:
            return variables_of(message)
        try:
            data = msgspec.json.decode(self._read(message.id), type=_FileVariables)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return {}
        return {CPUS_ENV: data.cpus, ISOLATION_ENV: data.isolation, EXCLUSIVE_ENV: data.exclusive_cpus}

    def remove(self, container_id: str) -> None:
        """Remove a container's file and folder."""
        self._content.pop(container_id, None)
        # Ids come from the runtime and name folders here: none may lead out of ours.
        if self._folder is not None and "/" not in container_id and container_id not in ("", ".", ".."):
            _remove(self._folder / container_id)

    def keep_only(self, container_ids: set[str]) -> None:
        """Remove folders of containers that no longer exist: only those with our marker, and in them only our files."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.name not in container_ids:
                    _remove(path)

    def adjust(
        self,
        record: ContainerRecord,
        placement: Pinning,
        adjust: nri.ContainerAdjustment,
        rules: MixedCPUs | None = None,
    ) -> None:
        """Add environment and mount to a container that is being created; `rules` are those for mixed CPUs."""
        variables = {
            CPUS_ENV: placement.cpu_list,
            MEMS_ENV: placement.mem_list,
            ISOLATION_ENV: placement.isolation,
        }
        if placement.isolation == "mixed":
            variables |= mixed_variables(placement, () if rules is None else rules.environment)
        if placement.siblings:
            variables[SIBLINGS_ENV] = format_bits(placement.siblings)
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
        # The runtime lets these win over variables of the same name in image or specification.
        adjust.env.extend(nri.KeyValue(key=key, value=value) for key, value in variables.items())


def mixed_variables(placement: Pinning, others: Iterable[str]) -> dict[str, str]:
    """Return the variables of a container with exclusive and shared CPUs, with those of the products in `others`."""
    own, shared = format_bits(placement.exclusive), format_bits(placement.shared)
    found = {EXCLUSIVE_ENV: own, SHARED_ENV: shared}
    known = {
        "openshift": {"OPENSHIFT_ISOLATED_CPUS": own, "OPENSHIFT_SHARED_CPUS": shared},
        "cpu-pooler": {"EXCLUSIVE_CPUS": _listed(placement.exclusive), "SHARED_CPUS": _listed(placement.shared)},
        "downward": {"ASSIGNED_CPUSET": own, "ASSIGNED_MEMSET": placement.mem_list},
    }
    for product in others:
        found |= known[product]
    return found


def _listed(cpus: Bits) -> str:
    return ",".join(map(str, iter_bits(cpus)))


def _remove(folder: Path) -> None:
    """Remove a container's folder, unless it is not ours or holds other files. The marker is removed last."""
    if folder.is_symlink() or not (folder / _MARKER).is_file():
        return
    with contextlib.suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {FILE_NAME, _TEMPORARY, _MARKER}:
            for name in (FILE_NAME, _TEMPORARY, _MARKER):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
