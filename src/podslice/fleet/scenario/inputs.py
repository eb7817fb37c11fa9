"""The files a scenario stands on: where they are, and what is in them, as a digest.

Paths are relative to the scenario file. What is not there but comes along with podslice (`assumptions/openb.yaml`) is
taken from the package.
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
    """Resolves the paths of one scenario and remembers which files were named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.named: dict[str, Path] = {}

    def path(self, name: str, *, where: str) -> Path:
        """The file that a scenario names. Raises `InputError` with the field `where` it is named."""
        found = self.folder / name
        if not found.exists() and not Path(name).is_absolute():
            packaged = Path(str(files("podslice.fleet") / "data")) / name
            if ".." not in Path(name).parts and packaged.is_file():
                found = packaged
        if not found.exists():
            remedy = f"paths are relative to {self.folder}"
            raise InputError(f"there is no {name}", path=where, remedy=remedy)
        self.named[name] = found
        return found

    def directory(self, name: str, *, where: str) -> Path:
        """The folder that a scenario names; all its files count. Raises `InputError`."""
        found = self.folder / name
        if not found.is_dir():
            raise InputError(f"there is no folder {name}", path=where, remedy=f"paths are relative to {self.folder}")
        self.named |= {f"{name}/{one.relative_to(found)}": one for one in sorted(found.rglob("*")) if one.is_file()}
        return found

    def paths(self, pattern: str, *, where: str) -> list[Path]:
        """The files that a pattern fits, sorted. Raises `InputError` where there are none."""
        if not any(mark in pattern for mark in "*?["):
            return [self.path(pattern, where=where)]
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise InputError(f"nothing fits {pattern}", path=where, remedy=f"paths are relative to {self.folder}")
        self.named.update({str(one.relative_to(self.folder)): one for one in found})
        return found

    def digests(self) -> dict[str, str]:
        """SHA-256 of every named file by its name. Raises `InputError`."""
        return {name: digest(path) for name, path in sorted(self.named.items()) if path.is_file()}


def digest(path: Path) -> str:
    """SHA-256 of a file. Raises `InputError`."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    return found.hexdigest()


def canonical(data: Any) -> bytes:
    """Plain data as JSON of one form."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
