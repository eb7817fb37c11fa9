"""Random claims beside the real kube-scheduler: the same feasibility, the same devices, the same amounts."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.allocations import compare


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_random_claims(programs: None, tmp_path: Path, missing: float) -> None:
    """podslice answers for each pod what the scheduler does, also where pools lack slices."""
    outcomes = list(compare(tmp_path, cases=12, seed=77, missing=missing))
    assert len(outcomes) == 48
    assert [one for one in outcomes if one.different or one.elsewhere] == []
    assert {one.real.devices is None for one in outcomes} == {True, False}
