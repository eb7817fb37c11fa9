"""Every amount of the pod and of its containers, as written and as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.advise.inspect.page import Amounts, Value
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements, is_restartable_init

DEFAULTING, LIMIT_RANGE, GATE = "defaulting", "LimitRange", "gate"
_CONTAINERS = ("container", "init", "sidecar")
_FIRST = ("cpu", "memory", "ephemeral-storage")


class Stages(NamedTuple):
    """A pod as written, after the API server's defaults, and after LimitRange objects and defaults once more."""

    written: Pod
    defaulted: Pod
    final: Pod


class _Owner(NamedTuple):
    """Amounts of one owner at each stage; `texts` are those of `resources[0]` as they were spelled, where known."""

    name: str
    kind: str
    path: str
    resources: tuple[ResourceRequirements | None, ...]
    texts: Any


def kind_of(container: Container, *, init: bool) -> str:
    """Return `sidecar`, `init` or `container`."""
    if not init:
        return "container"
    return "sidecar" if is_restartable_init(container) else "init"


def amount_rows(stages: Stages, data: Mapping[str, Any] | None = None) -> tuple[Amounts, ...]:
    """Return a row for each owner and resource: pod, init containers, app containers, overhead.

    `data` is the pod's plain data, for amounts as they were spelled (a decoded `1.5Gi` is `1536Mi`).
    """
    return tuple(row for owner in _owners(stages, (data or {}).get("spec") or {}) for row in _rows(owner))


def _owners(stages: Stages, data: Mapping[str, Any]) -> Iterator[_Owner]:
    yield _Owner("pod", "pod", "spec.resources", tuple(pod.spec.resources for pod in stages), data.get("resources"))
    for field, init in (("initContainers", True), ("containers", False)):
        lists = [pod.spec.init_containers if init else pod.spec.containers for pod in stages]
        # Pods that were built in Python have no plain data.
        spelled = data.get(field) or [{}] * len(lists[0])
        for index, containers in enumerate(zip(*lists, strict=True)):
            path = f"spec.{field}[{index}].resources"
            kind = kind_of(containers[0], init=init)
            resources = tuple(one.resources for one in containers)
            yield _Owner(containers[0].name, kind, path, resources, spelled[index].get("resources"))
    overhead = tuple(ResourceRequirements(requests=pod.spec.overhead) for pod in stages)
    yield _Owner("overhead", "overhead", "spec.overhead", overhead, {"requests": data.get("overhead")})


def _rows(owner: _Owner) -> Iterator[Amounts]:
    requests = [_list(one.requests if one else None) for one in owner.resources]
    limits = [_list(one.limits if one else None) for one in owner.resources]
    names = {name for lists in (*requests, *limits) for name in lists}
    # A container without amounts still gets a row: it is often the reason for the QoS class.
    if not names and owner.kind in _CONTAINERS:
        yield Amounts(owner.name, owner.kind, owner.path, "", Value(), Value())
    for name in in_order(names):
        request = _value(requests, name, _spelling(owner.texts, "requests", name))
        limit = _value(limits, name, _spelling(owner.texts, "limits", name))
        yield Amounts(owner.name, owner.kind, owner.path, name, request, limit)


def _list(amounts: ResourceList | None) -> dict[str, str]:
    return {name: str(amount) for name, amount in (amounts or {}).items()}


def _spelling(texts: Any, side: str, name: str) -> str:
    value = ((texts or {}).get(side) or {}).get(name)
    return "" if value is None else str(value)


def _value(stages: list[dict[str, str]], name: str, spelled: str) -> Value:
    written, defaulted, final = (texts.get(name, "") for texts in stages)
    return Value(spelled or written, final, _by(written, defaulted, final))


def _by(written: str, defaulted: str, final: str) -> str:
    """Return what changed an amount: a gate, the defaulting, a LimitRange, or nothing."""
    if written == final:
        return ""
    if not final:
        return GATE
    return DEFAULTING if defaulted == final else LIMIT_RANGE


def in_order(names: set[str]) -> list[str]:
    """Return cpu, memory and ephemeral-storage first, the others by name."""
    return [name for name in _FIRST if name in names] + sorted(names - {*_FIRST})
