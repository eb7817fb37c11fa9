"""CDI files: how a container is told which claim it has (cluster-integration A.9).

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
    """What the kubelet hands to the runtime for one device of a claim."""
    return f"{KIND}={uid}-{index}"


def variable(uid: str, index: int) -> str:
    """The variable of one device of a claim."""
    return f"{VARIABLE}{short(uid)}_{index}"


def short(uid: str) -> str:
    """A UID as it is in names of variables."""
    return re.sub(r"[^0-9A-Za-z]", "_", uid)


def claimed_in(environment: Iterable[str]) -> Iterator[ClaimedDevice]:
    """The devices that a container's environment names, which its author can write too."""
    for pair in environment:
        match = _NAME.match(pair.partition("=")[0])
        if match is not None:
            yield ClaimedDevice(match[1], int(match[2]))


class CDIFiles:
    """The files of our kind in a folder. A start makes them anew of the claims' records, so none waits for the disk."""

    def __init__(self, folder: Path, files: RealFiles | None = None) -> None:
        self._folder = folder
        self._files = files or RealFiles(mode=0o644, durable=False)

    def write(self, claim: PreparedClaim, held: Iterable[Pinning]) -> None:
        """The file of a claim whose devices have these CPUs and NUMA nodes; one that is as it should be is left alone.
        Raises `OSError`."""
        content = msgspec.json.encode(_content(claim, held)) + b"\n"
        path = self._path(claim.uid)
        with contextlib.suppress(OSError):
            if path.read_bytes() == content:
                return
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomically(path, content, self._files)

    def remove(self, uid: str) -> None:
        """Raises `OSError`."""
        remove_file(self._path(uid), self._files)

    def listed(self) -> set[str]:
        """UIDs of the claims that have a file; what a killed process left half written goes."""
        remove_temporaries(self._folder, f"{_PREFIX}*{_SUFFIX}")
        found = self._folder.glob(f"{_PREFIX}*{_SUFFIX}")
        return {path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for path in found}

    def _path(self, uid: str) -> Path:
        return self._folder / f"{_PREFIX}{uid}{_SUFFIX}"


def _content(claim: PreparedClaim, held: Iterable[Pinning]) -> dict[str, object]:
    devices = [
        {
            "name": f"{claim.uid}-{index}",
            "containerEdits": {"env": [f"{variable(claim.uid, index)}=cpus={one.cpu_list};mems={one.mem_list}"]},
        }
        for index, one in enumerate(held)
    ]
    return {"cdiVersion": _VERSION, "kind": KIND, "devices": devices}
