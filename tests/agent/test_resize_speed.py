"""A short form of benchmarks/agent_resize.py, so that it goes on measuring what it says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.agent_resize import measure


def test_the_benchmark_of_a_resize_measures(tmp_path: Path) -> None:
    """Containers leave a CPU for the one that grows, in real cgroups or in files, and a line says how long it took."""
    assert measure(tmp_path, shared=5, rounds=2).startswith("5 shared containers, ")
