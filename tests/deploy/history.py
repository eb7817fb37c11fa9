"""Charts as they were, out of the repository's history."""

from __future__ import annotations

import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
STATES = {
    "2026-11-22, before agents are followed": "f4f12455^",
    "2026-11-23, before the order of claims": "ed1f54eb^",
    "2026-11-23, claims that can never be served": "fe32cb41",
    "2026-11-24, leases": "828e6dec",
    "2026-11-24, refused pods are woken": "369a80bb",
    "2026-11-26, policies": "fa41ae36",
    "2026-11-27, before pools and certificates": "720d5a3a",
}
"""Commits with a chart that somebody may have installed: the five before this one, and two that upgrades broke."""


@cache
def _archive(commit: str) -> bytes:
    asked = ["git", "-C", str(_ROOT), "archive", commit, "deploy/helm/podslice"]
    ran = subprocess.run(asked, capture_output=True)
    return ran.stdout if ran.returncode == 0 else b""


def chart_of(commit: str, folder: Path) -> Path:
    """Unpack the chart of that commit; skip the test where the history does not go back so far."""
    packed = _archive(commit)
    if not packed:
        pytest.skip("needs the history: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "deploy/helm/podslice"
