"""Files of prepared claims, one each beside the state files.

A claim holds the number of its CPUs, the state files which they are. These files make the prepared claims known without
the API server and over all restarts. A file is written before the state names the claim's CPUs, and removed after they
are free.
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
    """Whether a text has the form of a UID, and so may be part of a file's name."""
    return _UID.match(text) is not None


class ClaimFiles:
    """Files `claims/<uid>.json` below the state directory, in the order in which the claims were prepared."""

    def __init__(self, directory: Path, files: RealFiles | None = None) -> None:
        self._folder = directory / _FOLDER
        self._files = files or RealFiles()
        self._settled = True

    def load(self) -> tuple[dict[str, PreparedClaim], list[str]]:
        """Read the claims as `read` does, and remove files that a killed process left half written. Raises
        `OSError`."""
        remove_temporaries(self._folder, "*.json")
        return self.read()

    def read(self) -> tuple[dict[str, PreparedClaim], list[str]]:
        """Return the claims by UID, oldest first, and a line about every file that cannot be read. Raises `OSError`."""
        claims: dict[str, PreparedClaim] = {}
        problems = []
        # By time, which is the order of preparing: a start restores the claims in it.
        paths = sorted(self._folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        for path in paths:
            try:
                # Only this agent writes these files; a damaged one must not exhaust its memory.
                if path.stat().st_size > _LARGEST:
                    raise ValueError("is too large")
                claim = msgspec.json.decode(path.read_bytes(), type=PreparedClaim)
                # A file that was copied would make a second holder of the same CPUs.
                if claim.uid != path.stem or not is_uid(claim.uid):
                    raise ValueError(f"is about claim {claim.uid[:80]}")
                claims[claim.uid] = claim
            except (ValueError, RecursionError) as error:
                problems.append(f"{path}: cannot be read: {error}")
        return claims, problems

    def keep(self, claim: PreparedClaim) -> None:
        """Write a claim. It survives a kill of the agent from now on, and a power failure after `settle`. Raises
        `OSError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settled = False
        write_atomically(self._path(claim.uid), msgspec.json.encode(claim), self._files, settled=False)

    def settle(self) -> None:
        """Sync everything kept to the disk; where the state was written in between, little is left to sync. Raises
        `OSError`."""
        if not self._settled:
            self._files.sync_directory(self._folder)
            self._settled = True

    def drop(self, uid: str) -> None:
        """Remove a claim's file, if there is one. Raises `OSError`."""
        remove_file(self._path(uid), self._files)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}.json"
