"""A cell that is simulated leaves no garbage in cycles behind while it goes on, so that looking for it can wait."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.run import rare_collections, run_cell
from tests.fleet import fleets


def test_thresholds_come_back() -> None:
    """Also where a cell ends in an error."""
    before = gc.get_threshold()
    within = []

    def simulate() -> None:
        with rare_collections():
            within.append(gc.get_threshold())
            raise ValueError("ended")

    with pytest.raises(ValueError, match="ended"):
        simulate()
    assert within[0][0] > before[0]
    assert gc.get_threshold() == before


@pytest.mark.slow
def test_what_is_left_in_cycles_does_not_grow_with_the_pods() -> None:
    """Refusals and answers are not in cycles: three times the pods leave no more to collect at once."""
    kind = fleets.fleet_class(memory_manager_policy="Static")
    shapes = [fleets.shape("2"), fleets.shape("3"), fleets.shape("5")]
    found = []
    for pods in (200, 600):
        work = fleets.churn(shapes, pods)
        progress: list[int] = []

        def collected(share: float, seen: list[int] = progress) -> None:
            seen.append(gc.collect())

        run_cell(fleets.fleet_of(4, kind), work, CellOptions(), 1, progress=collected)
        found.append(progress[-1])
    assert found[1] <= found[0] + 100
