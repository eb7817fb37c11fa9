"""Decisions are written in these tests as ever, but nobody waits for the disk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_disk_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podslice.host.state.statefile.os.fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def _no_kubelet_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The state files of a kubelet that may run on this machine are not looked at."""
    monkeypatch.setattr("podslice.agent.command.STATE_DIRECTORY", str(tmp_path / "no-kubelet"))


@pytest.fixture(autouse=True)
def _no_busy_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here to wait for."""
    for name in ("QUIET_SECONDS", "SANDBOX_SECONDS"):
        monkeypatch.setattr(f"podslice.agent.api_server.refusals.{name}", 0.0)
    monkeypatch.setattr("podslice.agent.api_server.explaining.LATER", 0.0)
