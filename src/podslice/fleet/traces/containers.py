"""Divide the requests of a row among the containers of a template: sidecars and init containers beside the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from podslice.fleet.scenario.scenario import ContainerShare
from podslice.fleet.scenario.strict import Number, quantity
from podslice.values.errors import InputError

_FIELD = "reading.containers"


class RowAmounts(Protocol):
    """The requests of a pod: millicores and bytes."""

    @property
    def cpu(self) -> int: ...
    @property
    def memory(self) -> int: ...


def divide(
    containers: Sequence[ContainerShare], amounts: RowAmounts, devices: Mapping[str, str], qos: str, row: str
) -> dict[str, Any]:
    """Return the containers of a pod's specification. Raises `InputError` where the parts exceed the row's requests."""
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
    containers: Sequence[ContainerShare], shares: Sequence[Number | None], total: int, scale: int, row: str, field: str
) -> list[int]:
    """Return the part of each container; the one without an amount gets the rest."""
    parts = [
        0 if one is None else _part(one, total, scale, f"{_FIELD}[{place}].{field}") for place, one in enumerate(shares)
    ]
    taken = sum(part for one, part in zip(containers, parts, strict=True) if one.run != "init")
    left = total - taken
    if left <= 0:
        problem = f"the containers' parts leave nothing of the {field} of {row} for the one that gets the rest"
        raise InputError(problem, path=_FIELD, remedy="write shares such as 10%")
    return [left if one is None else part for one, part in zip(shares, parts, strict=True)]


def _part(share: Number, total: int, scale: int, path: str) -> int:
    """Return an amount, or a share of the total, rounded up."""
    text = str(share)
    if not text.endswith("%"):
        amount = quantity(share, path)
        return amount.milli_value() if scale == 1000 else amount.value()
    try:
        percent = float(text[:-1])
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 100:
        raise InputError(f"{text!r} is not a share", path=path, remedy="write 25%, 200m or 1Gi")
    return -(-total * round(percent * 1000) // 100_000)
