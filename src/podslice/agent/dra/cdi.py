"""CDI files, by which a container gets the names of its claims (cluster-integration A.9).

A file for each claim, a device for each device of its allocation. The runtime adds a variable to the environment of a
container that has the device; the CPUs themselves are set by the agent when the container is created.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from podslice.agent.records import ClaimedDevice, Pinning
from podslice.dra.prepared import PreparedClaim
from podslice.host.state.statefile import RealFiles, remove_file, remove_temporaries, write_atomically

KIND = "podslice.io/claim"
VARIABLE = "PODSLICE_CLAIM_"
_PREFIX, _SUFFIX = "podslice.io-claim_", ".json"
_VERSION = "0.5.0"
_NAME = re.compile(rf"{VARIABLE}([0-9A-Za-z_]{{1,63}})_([0-9]{{1,2}})\Z")


def device_id(uid: str, index: int) -> str:
    """Return the CDI name of a claim's device, which the kubelet passes to the runtime."""
    return f"{KIND}={uid}-{index}"


def variable(uid: str, index: int) -> str:
    """Return the environment variable of a claim's device."""
    return f"{VARIABLE}{short(uid)}_{index}"


def short(uid: str) -> str:
    """Return a UID as names of variables spell it."""
    return re.sub(r"[^0-9A-Za-z]", "_", uid)


def read_claimed_devices(environment: Iterable[str]) -> Iterator[ClaimedDevice]:
    """Yield the devices that a container's environment names. The pod's author can write it, too."""
    for pair in environment:
        match = _NAME.match(pair.partition("=")[0])
        if match is not None:
            yield ClaimedDevice(match[1], int(match[2]))


class CDIFiles:
    """The files of our kind in a folder. A start makes them anew from the claims' records, so none is synced to the
    disk."""

    def __init__(self, folder: Path, files: RealFiles | None = None) -> None:
        self._folder = folder
        self._files = files or RealFiles(mode=0o644, durable=False)

    def write(self, claim: PreparedClaim, held: Iterable[Pinning]) -> None:
        """Write the file of a claim. `held`: CPUs and NUMA nodes of its devices. Raises `OSError`."""
        content = msgspec.json.encode(_content(claim, held)) + b"\n"
        path = self._path(claim.uid)
        # A start writes the files of all claims, most of which are right already.
        with contextlib.suppress(OSError):
            if path.read_bytes() == content:
                return
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomically(path, content, self._files)

    def remove(self, uid: str) -> None:
        """Remove a claim's file, if there is one. Raises `OSError`."""
        remove_file(self._path(uid), self._files)

    def list_uids(self) -> set[str]:
        """Return the UIDs of claims with a file, and remove files that a killed process left half written."""
        remove_temporaries(self._folder, f"{_PREFIX}*{_SUFFIX}")
        found = self._folder.glob(f"{_PREFIX}*{_SUFFIX}")
        return {path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for path in found}

    def _path(self, uid: str) -> Path:
        return self._folder / f"{_PREFIX}{uid}{_SUFFIX}"


def _content(claim: PreparedClaim, held: Iterable[Pinning]) -> dict[str, object]:
    devices = [
        {
            "name": f"{claim.uid}-{index}",
            # Only the variable's name is read back; its value is for people and programs in the container.
            "containerEdits": {"env": [f"{variable(claim.uid, index)}=cpus={one.cpu_list};mems={one.mem_list}"]},
        }
        for index, one in enumerate(held)
    ]
    return {"cdiVersion": _VERSION, "kind": KIND, "devices": devices}
