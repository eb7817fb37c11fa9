"""The Kubernetes programs the cluster tests run: found, and unpacked once. They are not part of the project."""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
from pathlib import Path
from typing import NamedTuple

from e2e.packages import FetchError

VARIABLE = "PODSLICE_KUBERNETES"
BESIDE = Path(__file__).resolve().parents[2] / "shared/kubernetes"
_FILES = ("hyperkube", "etcd")


class Programs(NamedTuple):
    """`hyperkube` is kube-apiserver, kube-controller-manager, kube-scheduler and kubelet, by its first argument;
    `etcd FOLDER PORT` is a one-member etcd."""

    hyperkube: Path
    etcd: Path


def default_cache() -> Path:
    """Where large things are kept between runs."""
    return Path(os.environ.get("PODSLICE_E2E_CACHE", Path.home() / ".cache/podslice-e2e"))


def find_programs(cache: Path | None = None) -> Programs:
    """The programs, unpacked below the cache at the first call. Raises `FetchError` with one line where they are not
    at hand."""
    folder = Path(os.environ.get(VARIABLE) or BESIDE)
    packed = [folder / f"{name}.xz" for name in _FILES]
    if not all(path.is_file() for path in packed):
        raise FetchError(
            f"no Kubernetes programs in {folder}; {VARIABLE} names a folder with hyperkube.xz (kube-apiserver, "
            "kube-controller-manager, kube-scheduler and kubelet in one file) and etcd.xz"
        )
    target = (cache or default_cache()) / "kubernetes"
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Programs(*(_unpacked(path, target) for path in packed))


def _unpacked(packed: Path, target: Path) -> Path:
    data = packed.read_bytes()
    path = target / f"{packed.stem}-{hashlib.sha256(data).hexdigest()[:12]}"
    if not path.exists():
        partial = path.with_suffix(".part")
        partial.write_bytes(lzma.decompress(data))
        partial.chmod(0o755)
        partial.rename(path)
    return path
