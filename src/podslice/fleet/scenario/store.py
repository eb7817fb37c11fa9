"""A run on disk: every cell is written whole or not at all, and is verified when it is read.

A directory has the resolved scenario, its id, and two files for each cell: the outcome, and then, written last, a page
with its checksum. A process that is killed at any moment leaves whole cells; a resumed run makes the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from podslice.fleet.scenario.codec import CellOutcome, DamagedError, decode
from podslice.host.state.statefile import RealFiles, remove_temporaries, write_atomically
from podslice.reading.files import read_limited
from podslice.values.errors import InputError

CHECKPOINT = ".ckpt"
"""Suffix of the checkpoint of a cell that is not done."""
SCENARIO, IDENTITY, CELLS, TABLES, INPUTS = "scenario.yaml", "id.json", "cells", "tables", "inputs"
_LARGEST_PAGE = 16 << 20
_LARGEST_OUTCOME = 4 << 30


class RunStore:
    """The directory of one run. Raises `InputError` for what cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / CELLS

    def begin(self, identity: dict[str, Any], scenario: str, *, resume: bool) -> None:
        """Make the directory, or find it with a run of the same scenario, which only `resume` allows."""
        known = self.read_identity()
        if known is not None and not resume:
            remedy = "--resume goes on with it; --out names another"
            raise InputError("there is a run already", source=str(self.folder), remedy=remedy)
        if known is not None and known.get("id") != identity["id"]:
            problem = "is a run of another scenario, or of other files"
            raise InputError(problem, source=str(self.folder), remedy="name another --out")
        if known is None and self.folder.exists() and not self._is_unused():
            raise InputError("is not empty and no run", source=str(self.folder), remedy="name another --out")
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=str(self.folder)) from None
        remove_temporaries(self.folder, "*")
        remove_temporaries(self.cells, "*")
        # The identity comes before everything else: a folder without one is unused, or no run.
        self.write(IDENTITY, _json(identity))
        self.write(SCENARIO, scenario.encode())

    def _is_unused(self) -> bool:
        """Whether the directory is empty, or has no more than a run that was killed before it had an identity."""
        names = {path.name for path in self.folder.iterdir()}
        return names <= {CELLS, f".{IDENTITY}.new"} and not (self.cells.is_dir() and any(self.cells.iterdir()))

    def read_identity(self) -> dict[str, Any] | None:
        """Return the identity of the run; None where there is no run."""
        path = self.folder / IDENTITY
        try:
            found = json.loads(read_limited(str(path), _LARGEST_PAGE))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be read: {error}", source=str(path)) from None
        if not isinstance(found, dict):
            raise InputError("is not an identity of a run", source=str(path))
        return found

    def require_identity(self) -> dict[str, Any]:
        """Return the identity of a run that must exist."""
        found = self.read_identity()
        if found is None:
            remedy = "podslice fleet run FILE --out DIR makes one"
            raise InputError("holds no run", source=str(self.folder), remedy=remedy)
        return found

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Reports and tables are for others to read too.
            write_atomically(path, data, RealFiles(mode=0o666))
        except OSError as error:
            remedy = "what is there stays; run again with --resume"
            raise InputError(f"cannot be written: {error.strerror}", source=str(path), remedy=remedy) from None

    def write_cell(self, key: str, data: bytes, page: dict[str, Any]) -> None:
        """Write a cell: its outcome, then its page."""
        self.write(f"{CELLS}/{key}.bin", data)
        checksum = hashlib.sha256(data).hexdigest()
        # The page comes last: a cell without a page, or with another checksum, is made again.
        self.write(f"{CELLS}/{key}.json", _json({**page, "sha256": checksum, "bytes": len(data)}))

    def drop_checkpoint(self, key: str) -> None:
        """Remove the checkpoint of a cell that is done."""
        with suppress(OSError):
            (self.cells / f"{key}{CHECKPOINT}").unlink(missing_ok=True)

    def find_problem(self, key: str, identity: str) -> str | None:
        """Return why a cell must be made again; None where it is whole, "" where it was never finished."""
        try:
            page = json.loads(read_limited(str(self.cells / f"{key}.json"), _LARGEST_PAGE))
            data = read_limited(str(self.cells / f"{key}.bin"), _LARGEST_OUTCOME)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            return f"cannot be read: {error}"
        if not isinstance(page, dict) or page.get("scenario") != identity:
            return "is of another scenario"
        return None if page.get("sha256") == hashlib.sha256(data).hexdigest() else "does not have its checksum"

    def read_page(self, key: str) -> dict[str, Any]:
        """Return the page of a cell."""
        path = self.cells / f"{key}.json"
        try:
            found = json.loads(read_limited(str(path), _LARGEST_PAGE))
        except (OSError, ValueError) as error:
            remedy = "run again with --resume"
            raise InputError(f"cannot be read: {error}", source=str(path), remedy=remedy) from None
        assert isinstance(found, dict)
        return found

    def read_outcome(self, key: str) -> CellOutcome:
        """Return the outcome of a cell."""
        path = self.cells / f"{key}.bin"
        try:
            data = read_limited(str(path), _LARGEST_OUTCOME)
            checksum = self.read_page(key).get("sha256")
            if checksum != hashlib.sha256(data).hexdigest():
                raise DamagedError("does not have its checksum")
            return decode(data)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
        except DamagedError as error:
            raise InputError(str(error), source=str(path), remedy="run again with --resume") from None

    def list_keys(self) -> Iterator[str]:
        """Yield the keys of saved cells in the order of the scenario."""
        saved = {path.stem for path in self.cells.glob("*.json")}
        return (key for key in self.require_identity()["cells"] if key in saved)


def _json(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
