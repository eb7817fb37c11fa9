"""Decisions are written in these tests as ever, but nobody waits for the disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_disk_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podslice.host.statefile.os.fsync", lambda descriptor: None)
