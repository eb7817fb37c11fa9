"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SHARED = Path(os.environ.get("PODSLICE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with recorded decisions and captured machines that lies beside the checkout; skips without it."""
    if not (_SHARED / "vectors").is_dir():
        pytest.skip("needs the shared folder beside the checkout (PODSLICE_SHARED names another place)")
    return _SHARED
