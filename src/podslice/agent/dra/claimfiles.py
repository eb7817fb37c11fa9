"""Claims that were prepared, one file each beside the state files.

A claim says how many CPUs, the state files which; that a claim has some at all is known from here, without the API
server and over restarts of everybody. A file is there before the state names the claim's CPUs, and goes after they are
free.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from podslice.dra.prepared import PreparedClaim
from podslice.host.state.statefile import RealFiles, remove_file, remove_temporaries, write_atomically

_FOLDER = "claims"
_LARGEST = 1 << 20
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]{0,62}\Z")


def is_uid(text: str) -> bool:
    """True for what may be a part of a file's name."""
    return _UID.match(text) is not None


class ClaimFiles:
    """Files `claims/<uid>.json` below the state directory, in the order in which the claims were prepared."""

    def __init__(self, directory: Path, files: RealFiles | None = None) -> None:
        self._folder = directory / _FOLDER
        self._files = files or RealFiles()
        self._settled = True

    def load(self) -> tuple[dict[str, PreparedClaim], list[str]]:
        """Claims by UID, oldest first, and a line about every file that makes no sense; what a killed process left half
        written goes. Raises `OSError`."""
        remove_temporaries(self._folder, "*.json")
        return self.read()

    def read(self) -> tuple[dict[str, PreparedClaim], list[str]]:
        """The same, and nothing is touched. Raises `OSError`."""
        claims: dict[str, PreparedClaim] = {}
        problems = []
        paths = sorted(self._folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        for path in paths:
            try:
                if path.stat().st_size > _LARGEST:
                    raise ValueError("is too large")
                claim = msgspec.json.decode(path.read_bytes(), type=PreparedClaim)
                if claim.uid != path.stem or not is_uid(claim.uid):
                    raise ValueError(f"is about claim {claim.uid[:80]}")
                claims[claim.uid] = claim
            except (ValueError, RecursionError) as error:
                problems.append(f"{path}: cannot be read: {error}")
        return claims, problems

    def keep(self, claim: PreparedClaim) -> None:
        """There after a kill from now on, after the machine was down once it is `settled`. Raises `OSError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settled = False
        write_atomically(self._path(claim.uid), msgspec.json.encode(claim), self._files, settled=False)

    def settle(self) -> None:
        """Everything kept is on the disk. Where the state was written in between, the file system has nothing left to
        do. Raises `OSError`."""
        if not self._settled:
            self._files.sync_directory(self._folder)
            self._settled = True

    def drop(self, uid: str) -> None:
        """Raises `OSError`."""
        remove_file(self._path(uid), self._files)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}.json"
