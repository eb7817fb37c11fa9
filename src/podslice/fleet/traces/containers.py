"""What a row asks for, divided among the containers of a template: sidecars and init containers beside the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from podslice.fleet.scenario.scenario import ContainerShare
from podslice.fleet.scenario.strict import Number, quantity
from podslice.values.errors import InputError

_FIELD = "reading.containers"


class RowAmounts(Protocol):
    """What a pod asks for: milli-CPUs and bytes."""

    @property
    def cpu(self) -> int: ...
    @property
    def memory(self) -> int: ...


def divided(
    containers: Sequence[ContainerShare], amounts: RowAmounts, devices: Mapping[str, str], qos: str, row: str
) -> dict[str, Any]:
    """The containers of a pod's specification. Raises `InputError` where the parts are more than a row asks for."""
    cpus = _parts(containers, [one.cpu for one in containers], amounts.cpu, 1000, row, "cpu")
    memory = _parts(containers, [one.memory for one in containers], amounts.memory, 1, row, "memory")
    holder = next((one for one in containers if one.gpus), None)
    holder = holder or next(one for one in containers if one.cpu is None and one.run != "init")
    spec: dict[str, Any] = {"initContainers": [], "containers": []}
    for one, cpu, size in zip(containers, cpus, memory, strict=True):
        own = {"cpu": f"{cpu}m", "memory": str(size)}
        more = devices if one is holder else {}
        requests = {} if qos == "best-effort" else own
        limits = {**(own if qos == "guaranteed" else {}), **more}
        made: dict[str, Any] = {"name": one.name, "resources": {"requests": {**requests, **more}, "limits": limits}}
        if one.run == "sidecar":
            made["restartPolicy"] = "Always"
        spec["containers" if one.run == "app" else "initContainers"].append(made)
    return spec


def _parts(
    containers: Sequence[ContainerShare], told: Sequence[Number | None], total: int, scale: int, row: str, field: str
) -> list[int]:
    """The part of each container: what it says, and what is left for the one that says nothing."""
    parts = [
        0 if one is None else _part(one, total, scale, f"{_FIELD}[{place}].{field}") for place, one in enumerate(told)
    ]
    taken = sum(part for one, part in zip(containers, parts, strict=True) if one.run != "init")
    left = total - taken
    if left <= 0:
        problem = f"the containers' parts leave nothing of the {field} of {row} for the one that gets the rest"
        raise InputError(problem, path=_FIELD, remedy="write shares such as 10%")
    return [left if one is None else part for one, part in zip(told, parts, strict=True)]


def _part(told: Number, total: int, scale: int, path: str) -> int:
    """An amount, or a share of the total, rounded up."""
    text = str(told)
    if not text.endswith("%"):
        amount = quantity(told, path)
        return amount.milli_value() if scale == 1000 else amount.value()
    try:
        share = float(text[:-1])
    except ValueError:
        share = -1.0
    if not 0 <= share < 100:
        raise InputError(f"{text!r} is no share", path=path, remedy="write 25%, 200m or 1Gi")
    return -(-total * round(share * 1000) // 100_000)
