"""The use of a node's system in answers of its kubelet's Summary API.

    kubectl get --raw /api/v1/nodes/NAME/proxy/stats/summary >> usage.json

Each answer is one sample: what the whole node uses less what its pods use. CPU is the mean of the last seconds, so that
many answers say more than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from podslice.advise.reserve.formulas import MeasuredAmounts
from podslice.advise.reserve.measured import with_margins
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

_REMEDY = "give the output of kubectl get --raw /api/v1/nodes/NAME/proxy/stats/summary"
_NANO_PER_MILLI = 1_000_000


class Sample(NamedTuple):
    """Millicores and bytes that the system used beside the pods, at a time in seconds since 1970."""

    at: float
    milli_cpu: float
    memory: int


def load_summaries(paths: Iterable[str]) -> MeasuredAmounts:
    """Return the amounts to reserve by the answers in files, which may hold several one after the other: the most of
    all samples with a margin. Raises `InputError`."""
    samples = [sample for path in paths for sample in _read(path)]
    span = max(one.at for one in samples) - min(one.at for one in samples)
    return with_margins(
        max(one.milli_cpu for one in samples),
        max(one.memory for one in samples),
        hours=int(span // 3600),
        samples=len(samples),
    )


def _read(path: str) -> list[Sample]:
    documents = load_documents(read_text(path), path)
    if not documents:
        raise InputError("is empty", source=path, remedy=_REMEDY)
    return [_sample(document, path) for document in documents]


def _sample(document: Any, path: str) -> Sample:
    node = document.get("node") if isinstance(document, dict) else None
    if not isinstance(node, dict) or "cpu" not in node:
        raise InputError("is not an answer of a kubelet's Summary API", source=path, remedy=_REMEDY)
    pods = _pods(document, node)
    milli = (_amount(node, "cpu", "usageNanoCores", path) - pods[0]) / _NANO_PER_MILLI
    memory = _amount(node, "memory", "workingSetBytes", path) - pods[1]
    return Sample(_time(node["cpu"], path), max(0.0, milli), max(0, memory))


def _pods(document: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[int, int]:
    """Return nanocores and bytes of all pods: as the kubelet adds them up, else as the sum of those it lists."""
    of_system = node.get("systemContainers")
    together = [one for one in _objects(of_system) if one.get("name") == "pods"]
    listed = together or _objects(document.get("pods"))
    return (
        sum(_amount(one, "cpu", "usageNanoCores") for one in listed),
        sum(_amount(one, "memory", "workingSetBytes") for one in listed),
    )


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _amount(owner: Mapping[str, Any], kind: str, name: str, path: str = "") -> int:
    """Return an amount; where `path` is given it must be there, else a missing one is 0. Raises `InputError`."""
    part = owner.get(kind)
    value = part.get(name) if isinstance(part, dict) else None
    if isinstance(value, int) and value >= 0:
        return value
    if not path:
        return 0
    raise InputError(f"{value!r} is not an amount" if value is not None else "is missing", source=path,
                     path=f"node.{kind}.{name}", remedy=_REMEDY)  # fmt: skip


def _time(cpu: Mapping[str, Any], path: str) -> float:
    text = str(cpu.get("time", ""))
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InputError(f"{text!r} is not a time", source=path, path="node.cpu.time", remedy=_REMEDY) from None
