"""Resizes against a reference that is right at a glance; `tests.node.resize.exhaustive` asks all there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.resize.exhaustive import POLICIES, Asking, run


@pytest.mark.slow
def test_a_share_of_all() -> None:
    """Whatever a container has, others have and it wants: it gets what the rules say, under every option set and
    policy, and a refusal is Infeasible exactly where no state of others would admit it."""
    report = run(Asking(0.004, 5))
    assert report.found == []
    assert report.counts["picks"] > 5_000
    for policy in POLICIES:
        assert min(report.counts[f"{policy}: {kind}"] for kind in ("Allocated", "Deferred", "Infeasible")) > 0


@pytest.mark.slow
def test_what_is_through_is_not_asked_again(tmp_path: Path) -> None:
    """A hunt that is killed goes on where it was, behind the last whole line of its log, and counts the same."""
    log = tmp_path / "log"
    asking = Asking(0.0005, 3, log)
    whole = run(asking, part=(0, 18))
    lines = log.read_bytes().split(b"\n\n")
    assert len(lines) == 4
    log.write_bytes(b"\n\n".join(lines[:2]) + b"\n\n" + lines[2][:40])
    assert len(asking.known()) == 2
    again = run(asking, part=(0, 18))
    assert (again.counts, again.found) == (whole.counts, whole.found)
    assert len(asking.known()) == 4
    assert Asking(0.0005, 4, log).known() == {}
