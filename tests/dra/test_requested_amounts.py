"""Amounts that claims request, in the resources of pods."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.spec import from_dict
from podslice.dra.objects import ResourceClaimSpec
from podslice.dra.requested_amounts import requested_amounts


def form(count: int = 1, **amounts: str) -> dict[str, Any]:
    asked = {name.replace("_", "/", 1): amount for name, amount in amounts.items()}
    return {"deviceClassName": "podslice.io", "count": count, "capacity": {"requests": asked}}


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([{"exactly": form(cpu="4", memory="1Gi")}], {"cpu": "4", "memory": "1Gi"}),
        ([{"exactly": form(2, **{"podslice.io_cpu": "4"})}, {"exactly": form(cpu="500m")}], {"cpu": "8500m"}),
        ([{"exactly": form(**{"gpu.example.com_cpu": "4", "lanes": "2"})}], {}),
        ([{"exactly": form(hugepages2Mi="4Mi")}], {"hugepages-2Mi": "4Mi"}),
        ([{"firstAvailable": [{"name": "a", **form(cpu="8")}, {"name": "b", **form(cpu="2")}]}], {"cpu": "2"}),
        ([{"firstAvailable": [{"name": "a", **form(cpu="8")}, {"name": "b", **form(memory="1Gi")}]}], {}),
    ],
)
def test_amounts(requests: list[dict[str, Any]], said: dict[str, str]) -> None:
    """Amounts of our devices and of those without a domain, times their count; of alternatives the least."""
    named = [{"name": f"r{place}", **one} for place, one in enumerate(requests)]
    spec = from_dict({"devices": {"requests": named}}, ResourceClaimSpec)
    assert {name: str(amount) for name, amount in requested_amounts(spec.devices).items()} == said
