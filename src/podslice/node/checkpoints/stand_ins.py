"""Make pods from state files alone, for a node whose pods cannot be listed.

A state file holds what was given, not what was requested. A stand-in requests exactly what it owns, so that a node
admits it again on the same file and it keeps it. Containers that own nothing are not in the files, and so not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.api.pod.spec import Container, ObjectMeta, Pod, PodSpec, ResourceList, ResourceRequirements
from podslice.node.checkpoints.content import Content
from podslice.node.checkpoints.names import STAND_IN_NAMESPACE
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.cpuset import Bits, parse_bits_or_empty
from podslice.values.quantity import BINARY_SI, Quantity

_SOME_CPU, _SOME_MEMORY = Quantity.milli(1), Quantity.of(1 << 20, BINARY_SI)


def stand_ins(contents: Mapping[str, Content], known: frozenset[str] = frozenset()) -> list[Pod]:
    """Return one pod per UID in the files that is not in `known`, in order of UID."""
    held = _Holdings({}, {}, {}, any(map(_keeps_ledger, contents.values())))
    for content in contents.values():
        match content.checkpoint:
            case CPUCheckpoint() as cpu if not content.by_container_id:
                _add_cpus(cpu, held)
            case MemoryCheckpoint() as memory:
                _add_memory(memory, held)
            case DeviceCheckpoint() as device:
                _add_devices(device, held)
    return [_make_pod(uid, held) for uid in sorted(held.amounts) if uid not in known]


class _Holdings(NamedTuple):
    """Content of the files: amounts by pod, container and resource; CPUs by pod and container; amounts of whole pods;
    and whether a Memory Manager keeps ledgers."""

    amounts: dict[str, dict[str, dict[str, Quantity]]]
    cpus: dict[str, dict[str, Bits]]
    budgets: dict[str, dict[str, Quantity]]
    booked: bool


def _keeps_ledger(content: Content) -> bool:
    return isinstance(content.checkpoint, MemoryCheckpoint) and bool(content.checkpoint.machine_state)


def _add_cpus(checkpoint: CPUCheckpoint, held: _Holdings) -> None:
    """Add the CPUs of pods and containers in a CPU state file to what they hold."""
    for uid, pod_cpus in (checkpoint.pod_entries or {}).items():
        held.budgets.setdefault(uid, {})["cpu"] = Quantity.of(pod_cpus.bit_count())
    for uid, named in (checkpoint.entries or {}).items():
        sets = held.cpus[uid] = {name: parse_bits_or_empty(text) for name, text in (named or {}).items()}
        for name, cpus in sets.items():
            own = held.amounts.setdefault(uid, {}).setdefault(name, {})
            if uid not in held.budgets or not _is_pool(name, cpus, sets, held.budgets[uid]["cpu"].value()):
                own["cpu"] = Quantity.of(cpus.bit_count())


def _is_pool(name: str, cpus: Bits, sets: Mapping[str, Bits], budget: int) -> bool:
    """Whether a container runs on its pod's shared pool: on the same CPUs as another one, or on those that others
    leave."""
    others = [bits for other, bits in sets.items() if other != name]
    owned = 0
    for bits in others:
        owned |= bits & ~cpus
    return cpus in others or (cpus.bit_count() == budget - owned.bit_count() and (len(others) == 0 or owned == 0))


def _add_memory(checkpoint: MemoryCheckpoint, held: _Holdings) -> None:
    """Add the blocks of pods and containers in a memory state file to what they hold."""
    for uid, blocks in (checkpoint.pod_entries or {}).items():
        for block in blocks or ():
            held.budgets.setdefault(uid, {})[block.type] = Quantity.of(block.size, BINARY_SI)
    for uid, named in (checkpoint.entries or {}).items():
        for name, blocks in (named or {}).items():
            own = held.amounts.setdefault(uid, {}).setdefault(name, {})
            own |= {block.type: Quantity.of(block.size, BINARY_SI) for block in blocks or () if block.size}


def _add_devices(checkpoint: DeviceCheckpoint, held: _Holdings) -> None:
    for entry in checkpoint.entries or ():
        own = held.amounts.setdefault(entry.pod, {}).setdefault(entry.container, {})
        own[entry.resource] = Quantity.of(len(entry.device_ids()))


def _make_pod(uid: str, held: _Holdings) -> Pod:
    """Return the stand-in of one UID."""
    named, budget = held.amounts[uid], held.budgets.get(uid)
    guaranteed = budget is not None or any("cpu" in own or "memory" in own for own in named.values())
    containers: list[Container] = []
    ended: list[Container] = []
    for name, own in named.items():
        container = Container(name=name, resources=_requirements(own, guaranteed=guaranteed, shared=budget is not None))
        (ended if budget is None and _has_ended(uid, name, held) else containers).append(container)
    whole = None
    if budget is not None:
        total: ResourceList = {"cpu": _SOME_CPU, "memory": _SOME_MEMORY} | budget
        whole = ResourceRequirements(requests=total, limits=total)
    spec = PodSpec(containers=tuple(containers), init_containers=tuple(ended), resources=whole)
    return Pod(spec=spec, metadata=ObjectMeta(name=uid, namespace=STAND_IN_NAMESPACE, uid=uid))


def _has_ended(uid: str, name: str, held: _Holdings) -> bool:
    """Whether this is an init container that has ended: it left its memory, or its CPUs, to others."""
    cpus = held.cpus.get(uid, {})
    if held.booked:
        named = held.amounts[uid]
        return "memory" not in named[name] and any("memory" in own for own in named.values())
    later = list(cpus)[list(cpus).index(name) + 1 :] if name in cpus else []
    return any(cpus[name] & cpus[other] for other in later)


def _requirements(own: dict[str, Quantity], *, guaranteed: bool, shared: bool) -> ResourceRequirements:
    """Return equal requests and limits; a container that shares its pod's resources requests nothing of its own."""
    if not guaranteed or (shared and "cpu" not in own):
        own = {name: amount for name, amount in own.items() if name not in ("cpu", "memory")}
        return ResourceRequirements(requests=own, limits=own) if own else ResourceRequirements()
    # A Guaranteed container needs both; the one that it does not own gets a token amount.
    total = {"cpu": _SOME_CPU, "memory": _SOME_MEMORY} | own
    return ResourceRequirements(requests=total, limits=total)
