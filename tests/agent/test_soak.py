"""A short form of the soak in benchmarks/agent_soak.py: the assertions are in there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.agent_soak import soak


@pytest.mark.slow
def test_short_soak(tmp_path: Path) -> None:
    """Hundreds of pod lifecycles with kills and restarts in between: no lost CPU, no drift, nothing left behind."""
    result = asyncio.run(soak(tmp_path, 300, disturb=40))
    assert result["lifecycles"] >= 300
    assert result["files_open"] <= 0
    assert result["tasks"] == 0
