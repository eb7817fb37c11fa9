"""Decisions are written in these tests as ever, but nobody waits for the disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_disk_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podslice.host.state.statefile.os.fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def _no_busy_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here to wait for."""
    for name in ("QUIET_SECONDS", "SANDBOX_SECONDS"):
        monkeypatch.setattr(f"podslice.agent.api_server.refusals.{name}", 0.0)
    monkeypatch.setattr("podslice.agent.api_server.explaining.LATER", 0.0)
