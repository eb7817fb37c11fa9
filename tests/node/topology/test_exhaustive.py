"""The part of `python -m tests.node.topology.exhaustive` that takes seconds."""

from __future__ import annotations

import pytest

from tests.node.topology.exhaustive import differences, random_differences


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "resources"), [(1, 3), (2, 3), (3, 2)])
def test_every_state(nodes: int, resources: int) -> None:
    """Whatever is free and asked for, the searched merge is the best of all combinations."""
    cases, different = differences(nodes, resources)
    assert cases >= 80
    assert different == 0


def test_random_states() -> None:
    """So it is for random resources of all kinds on up to eight nodes."""
    assert random_differences(range(10_000, 10_300)) == (300, 0)
