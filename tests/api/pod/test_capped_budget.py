"""Budgets of which the containers' limits leave a part that no container can use."""

from __future__ import annotations

import pytest

from podslice import pod_from_dict
from podslice.api.pod.capped_budget import capped_budgets

GATES = {"PodLevelResources": True}
BUDGET = {"cpu": "8", "memory": "4Gi"}


def capped(*limits: dict[str, str]) -> list[str]:
    containers = [{"name": f"c{at}", "resources": {"limits": one, "requests": one}} for at, one in enumerate(limits)]
    spec = {"containers": containers, "resources": {"requests": BUDGET, "limits": BUDGET}}
    return [one.sentence for one in capped_budgets(pod_from_dict({"metadata": {"name": "p"}, "spec": spec}), GATES)]


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ((), []),
        (({},), []),
        (({"cpu": "8", "memory": "4Gi"},), []),
        (({"cpu": "6"}, {"cpu": "2"}), []),
        (
            ({"cpu": "4"}, {"cpu": "2"}),
            ["the pod reserves 8 CPU, and the cpu limits of its containers add up to 6: no container can use the rest"],
        ),
        (({"cpu": "4"}, {}), []),
    ],
)
def test_what_no_container_can_use(limits: tuple[dict[str, str], ...], told: list[str]) -> None:
    """The rest of a budget, where every container has a limit; a pod without containers has none."""
    assert capped(*limits) == told
