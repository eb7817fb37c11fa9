"""The Kubernetes programs the cluster tests run: found, and unpacked once. They are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from e2e.packages import FetchError
from e2e.places import place_of, runnable

VARIABLE = "PODSLICE_KUBERNETES"


class Programs(NamedTuple):
    """`hyperkube` is kube-apiserver, kube-controller-manager, kube-scheduler and kubelet, by its first argument;
    `etcd FOLDER PORT` is a one-member etcd."""

    hyperkube: Path
    etcd: Path


def default_cache() -> Path:
    """Return the cache folder for large files that outlast a run."""
    return Path(os.environ.get("PODSLICE_E2E_CACHE", Path.home() / ".cache/podslice-e2e"))


def find_programs(cache: Path | None = None) -> Programs:
    """The programs; packed ones are unpacked below the cache at the first call. Raises `FetchError` with one line where
    they are not at hand."""
    folder = place_of(VARIABLE, "kubernetes")
    found = [runnable(folder, name, (cache or default_cache()) / "kubernetes") for name in Programs._fields]
    if None in found:
        raise FetchError(
            f"no Kubernetes programs in {folder}; {VARIABLE} names a folder with hyperkube (kube-apiserver, "
            "kube-controller-manager, kube-scheduler and kubelet in one file) and etcd, each perhaps packed as .xz"
        )
    return Programs(*filter(None, found))
