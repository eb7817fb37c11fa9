"""A toleration matches by key, value and effect."""

from __future__ import annotations

import pytest

from podslice.scheduling.taints import Taint, Toleration, Tolerations

TAINT = Taint("gpu", "yes", "NoExecute")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "", "yes"), True),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("gpu", "Exists", effect="NoSchedule"), False),
        (Toleration("", "Equal"), False),
        (Toleration("gpu", "Gt", "1"), False),
    ],
)
def test_tolerations(toleration: Toleration, *, tolerated: bool) -> None:
    assert Tolerations.of([toleration]).tolerate(TAINT) is tolerated


@pytest.mark.parametrize("effect", ["PreferNoSchedule", "None", ""])
def test_effects_that_exclude_nothing(effect: str) -> None:
    assert not Taint("gpu", "yes", effect).excludes
    assert TAINT.excludes
