"""Every number and every "because" of an explanation is true on the node (the long form is `truth`)."""

from __future__ import annotations

import pytest

from tests.advise.explain.truth import PROFILES, check, random_refusals


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_random_refusals_are_explained_truly(profile: str) -> None:
    """What is short changes the verdict, and one less does not; holders have what is said of them; what no state of
    the node would help is refused by an empty one, too."""
    causes: set[str] = set()
    for seed in range(60):
        for setup, pod in random_refusals(seed, profile):
            causes |= set(check(setup, pod))
    assert {"short", "too-big", "whole-cores", "node-total", "narrowest", "group"} <= causes
