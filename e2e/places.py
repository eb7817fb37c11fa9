"""Places of programs that are not part of the project: the path in a variable, then in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def user_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """This project's folder in the user's cache."""
    return (
        Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache") / "podslice"
    )


def place_of(variable: str, name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The place that a variable names, else `name` in the user's cache."""
    named = environment.get(variable)
    return Path(named) if named else user_cache(environment) / name


def runnable(folder: Path, name: str, cache: Path) -> Path | None:
    """A program in a folder, None without it. A packed one (`name.xz`) is unpacked below `cache` at the first call."""
    plain, packed = folder / name, folder / f"{name}.xz"
    if plain.is_file():
        return plain
    return unpack(packed, cache) if packed.is_file() else None


def unpack(packed: Path, cache: Path) -> Path:
    """The program in a packed file, below `cache`, where other content is another file."""
    data = packed.read_bytes()
    target = cache / f"{packed.stem}-{hashlib.sha256(data).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
                file.write(lzma.decompress(data))
            os.chmod(file.name, 0o755)
            os.replace(file.name, target)
    return target
