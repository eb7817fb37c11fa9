"""The input files of a scenario: paths and digests.

Paths are relative to the scenario file. Files that do not exist there but are shipped with podslice
(`assumptions/openb.yaml`) are taken from the package.
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from podslice.values.errors import InputError

_CHUNK = 1 << 20


class Inputs:
    """Resolves the paths of one scenario and collects the files it names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.named: dict[str, Path] = {}

    def path(self, name: str, *, where: str) -> Path:
        """Return the path of a file. Raises `InputError` with the field `where` that names it."""
        found = self.folder / name
        if not found.exists() and not Path(name).is_absolute():
            packaged = Path(str(files("podslice.fleet") / "data")) / name
            # Only files of the package itself, not of its neighbours.
            if ".." not in Path(name).parts and packaged.is_file():
                found = packaged
        if not found.exists():
            remedy = f"paths are relative to {self.folder}"
            raise InputError(f"there is no {name}", path=where, remedy=remedy)
        self.named[name] = found
        return found

    def directory(self, name: str, *, where: str) -> Path:
        """Return the path of a folder, all files of which become inputs. Raises `InputError`."""
        found = self.folder / name
        if not found.is_dir():
            raise InputError(f"there is no folder {name}", path=where, remedy=f"paths are relative to {self.folder}")
        self.named |= {f"{name}/{one.relative_to(found)}": one for one in sorted(found.rglob("*")) if one.is_file()}
        return found

    def paths(self, pattern: str, *, where: str) -> list[Path]:
        """Return the files that a pattern matches, sorted. Raises `InputError` where there are none."""
        if not any(mark in pattern for mark in "*?["):
            return [self.path(pattern, where=where)]
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise InputError(f"nothing matches {pattern}", path=where, remedy=f"paths are relative to {self.folder}")
        self.named.update({str(one.relative_to(self.folder)): one for one in found})
        return found

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every named file by its name. Raises `InputError`."""
        return {name: digest(path) for name, path in sorted(self.named.items()) if path.is_file()}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file. Raises `InputError`."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    return found.hexdigest()


def canonical_json(data: Any) -> bytes:
    """Encode plain data as JSON in one form only: sorted keys, no spaces."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
