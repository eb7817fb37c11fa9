"""The archives of a release, built reproducibly: another build gives the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EARLIEST = 315532800
"""1980: a zip file holds no earlier time."""


class ReleaseError(Exception):
    """Raised, with one line, for a release that must not be published."""


def epoch(root: Path = ROOT) -> int:
    """Return the time of all files in the archives: SOURCE_DATE_EPOCH, else that of the last commit, else 1980."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        commit = subprocess.run(["git", "-C", str(root), "log", "-1", "--format=%ct"], capture_output=True, text=True)
        given = commit.stdout.strip() if commit.returncode == 0 else ""
    return max(int(given or EARLIEST), EARLIEST)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in a folder, by name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def build(out: Path, *targets: str, root: Path = ROOT, when: int, **environment: str) -> None:
    """Build archives (`wheel`, `sdist`) of a source tree. Raises `ReleaseError` with the builder's last line."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    command += [word for target in targets for word in ("-t", target)]
    variables = {**os.environ, **environment, "SOURCE_DATE_EPOCH": str(when)}
    built = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True)
    if built.returncode:
        raise ReleaseError(f"cannot be built: {(built.stderr or built.stdout).strip().splitlines()[-1]}")


def build_twice(out: Path, root: Path = ROOT) -> dict[str, str]:
    """Build wheel and sdist into an empty folder and give their digests.

    They are built again under another time zone, umask and hash seed, and the wheel once more from the unpacked sdist.
    Raises `ReleaseError` where a single byte differs.
    """
    when = epoch(root)
    build(out, "sdist", "wheel", root=root, when=when)
    first = digests(out)
    with tempfile.TemporaryDirectory() as folder:
        again, unpacked, from_sdist = (Path(folder, name) for name in ("again", "unpacked", "from-sdist"))
        before = os.umask(0o077)
        try:
            build(again, "sdist", "wheel", root=root, when=when, TZ="Pacific/Kiritimati", PYTHONHASHSEED="4711")
        finally:
            os.umask(before)
        compare(first, digests(again), "a second build")
        (sdist,) = out.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        (source,) = unpacked.iterdir()
        build(from_sdist, "wheel", root=source, when=when)
        compare({name: first[name] for name in first if name.endswith(".whl")}, digests(from_sdist), "the sdist")
    return first


def compare(first: dict[str, str], second: dict[str, str], what: str) -> None:
    """Raise `ReleaseError` naming the files whose digests differ."""
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if differing:
        raise ReleaseError(f"{what} gives other bytes: {', '.join(differing)}")
