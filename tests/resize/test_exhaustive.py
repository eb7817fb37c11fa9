"""Resizes against a reference that is right at a glance; `python -m tests.resize.exhaustive` asks all there are."""

from __future__ import annotations

import pytest

from tests.resize.exhaustive import POLICIES, run


@pytest.mark.slow
def test_a_share_of_all() -> None:
    """Whatever a container has, others have and it wants: it gets what the rules say, under every option set and
    policy, and a refusal is Infeasible exactly where no state of others would admit it."""
    report = run(0.004, 7)
    assert report.found == []
    assert report.counts["picks"] > 5_000
    for policy in POLICIES:
        assert min(report.counts[f"{policy}: {kind}"] for kind in ("Allocated", "Deferred", "Infeasible")) > 0
