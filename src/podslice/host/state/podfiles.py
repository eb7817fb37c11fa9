"""Store the specifications of admitted pods, one file each, beside the state files.

After a restart a pod must have exactly the specification with which it was admitted, even if its source has another
by then. A file is written before the pod's decision is acted on and removed with the pod.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.host.state.statefile import remove_temporaries, write_atomically
from podslice.values.errors import InputError

_FOLDER = "pods"
_LARGEST = 4 << 20


class PodFiles:
    """Files `pods/<uid>.json` below the state directory, in the order in which the pods were admitted."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / _FOLDER

    def load(self) -> tuple[dict[str, Pod], list[str]]:
        """Remove half-written files of a killed process, and read the pods. Raises `OSError`."""
        remove_temporaries(self._folder, "*.json")
        return self.read()

    def read(self) -> tuple[dict[str, Pod], list[str]]:
        """Return pods by UID, in order of admission, and a line about every file that cannot be read. Raises
        `OSError`."""
        pods: dict[str, Pod] = {}
        problems = []
        paths = sorted(self._folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        for path in paths:
            try:
                if path.stat().st_size > _LARGEST:
                    raise InputError("is too large")
                pod = pod_from_dict(msgspec.json.decode(path.read_bytes()))
                pods[pod.metadata.uid] = pod
            except (msgspec.DecodeError, RecursionError, InputError) as error:
                problems.append(f"{path}: cannot be read: {error}")
        return pods, problems

    def keep(self, pod: Pod) -> None:
        """Write the file of a pod. Raises `OSError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._path(pod.metadata.uid), msgspec.json.encode(pod, enc_hook=str))

    def replace(self, pod: Pod) -> None:
        """Write a pod whose granted resources changed; its place in the order of admission stays. Raises `OSError`."""
        path = self._path(pod.metadata.uid)
        # The order of admission is that of the times of modification.
        admitted = path.stat().st_mtime_ns
        self.keep(pod)
        os.utime(path, ns=(admitted, admitted))

    def drop(self, uid: str) -> None:
        """Forget a pod; a file that cannot be removed is dropped at the next start."""
        with contextlib.suppress(OSError):
            self._path(uid).unlink(missing_ok=True)

    def _path(self, uid: str) -> Path:
        # A slash in a UID would name a file in another folder.
        return self._folder / f"{uid.replace('/', '~')}.json"
