"""Pods made from state files alone, for a node whose pods nobody can be asked about.

A state file says who owns what, not what was asked for. A stand-in asks for exactly what it owns, so that a node
admits it again on the same file and it keeps it. Containers that own nothing are not in the files, and so not here.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.pod.spec import Container, ObjectMeta, Pod, PodSpec, ResourceList, ResourceRequirements
from podslice.core.state.content import Content
from podslice.core.values.cpuset import Bits, CPUSetError, parse_bits
from podslice.core.values.quantity import BINARY_SI, Quantity

_SOME_CPU, _SOME_MEMORY = Quantity.milli(1), Quantity.of(1 << 20, BINARY_SI)
Amounts = dict[str, dict[str, dict[str, Quantity]]]


def stand_ins(contents: Mapping[str, Content], known: frozenset[str] = frozenset()) -> list[Pod]:
    """One Guaranteed pod per UID in the files that is not in `known`, in order of UID."""
    amounts: Amounts = {}
    budgets: dict[str, dict[str, Quantity]] = {}
    for content in contents.values():
        _cpus(content, amounts, budgets)
        _memory(content, amounts, budgets)
        _devices(content, amounts)
    return [_pod(uid, amounts[uid], budgets.get(uid)) for uid in sorted(amounts) if uid not in known]


def _cpus(content: Content, amounts: Amounts, budgets: dict[str, dict[str, Quantity]]) -> None:
    if content.cpu is None or content.by_container_id:
        return
    for uid, bubble in (content.cpu.pod_entries or {}).items():
        budgets.setdefault(uid, {})["cpu"] = Quantity.of(bubble.bit_count())
    for uid, named in (content.cpu.entries or {}).items():
        sets = {name: _bits(text) for name, text in (named or {}).items()}
        for name, cpus in sets.items():
            own = amounts.setdefault(uid, {}).setdefault(name, {})
            if uid not in budgets or not _is_pool(name, cpus, sets, budgets[uid]["cpu"].value()):
                own["cpu"] = Quantity.of(cpus.bit_count())


def _is_pool(name: str, cpus: Bits, sets: Mapping[str, Bits], budget: int) -> bool:
    """True for a container on its pod's shared pool: on the same CPUs as another one, or on what others leave."""
    others = [bits for other, bits in sets.items() if other != name]
    owned = 0
    for bits in others:
        owned |= bits & ~cpus
    return cpus in others or (cpus.bit_count() == budget - owned.bit_count() and (len(others) == 0 or owned == 0))


def _memory(content: Content, amounts: Amounts, budgets: dict[str, dict[str, Quantity]]) -> None:
    if content.memory is None:
        return
    for uid, blocks in (content.memory.pod_entries or {}).items():
        for block in blocks or ():
            budgets.setdefault(uid, {})[block.type] = Quantity.of(block.size, BINARY_SI)
    for uid, named in (content.memory.entries or {}).items():
        for name, blocks in (named or {}).items():
            own = amounts.setdefault(uid, {}).setdefault(name, {})
            own |= {block.type: Quantity.of(block.size, BINARY_SI) for block in blocks or () if block.size}


def _devices(content: Content, amounts: Amounts) -> None:
    for entry in (content.device.entries if content.device is not None else None) or ():
        own = amounts.setdefault(entry.pod, {}).setdefault(entry.container, {})
        own[entry.resource] = Quantity.of(len(entry.device_ids()))


def _bits(text: str) -> Bits:
    try:
        return parse_bits(text)
    except CPUSetError:
        return 0


def _pod(uid: str, named: Mapping[str, dict[str, Quantity]], budget: dict[str, Quantity] | None) -> Pod:
    containers = tuple(
        Container(name=name, resources=_requirements(own, shared=budget is not None)) for name, own in named.items()
    )
    whole = None
    if budget is not None:
        total: ResourceList = {"cpu": _SOME_CPU, "memory": _SOME_MEMORY} | budget
        whole = ResourceRequirements(requests=total, limits=total)
    spec = PodSpec(containers=containers, resources=whole)
    return Pod(spec=spec, metadata=ObjectMeta(name=uid, namespace="(state)", uid=uid))


def _requirements(own: dict[str, Quantity], *, shared: bool) -> ResourceRequirements:
    """Equal requests and limits; a container that shares its pod's resources asks for nothing of its own."""
    if shared and "cpu" not in own:
        own = {name: amount for name, amount in own.items() if name not in ("cpu", "memory")}
        return ResourceRequirements(requests=own, limits=own) if own else ResourceRequirements()
    total = {"cpu": _SOME_CPU, "memory": _SOME_MEMORY} | own
    return ResourceRequirements(requests=total, limits=total)
