"""The shared pool of a node in sentences: how much it is, who owns the rest, and what of that stays idle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.node.cpu.ended import IdleCPUs, describe_idle, idle_after_init
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, format_bits, union

_MOST_NAMED = 3


def describe_pool(view: NodeView, held: Bits = 0) -> str:
    """Return what the shared pool of a node is and who owns the other CPUs; empty where no pod owns any. `held` are
    CPUs in it that the state file keeps for pods that are gone."""
    owned: dict[str, Bits] = {}
    for uid, cpus in owned_by_pod(view).items():
        metadata = view.pods[uid].spec.metadata if uid in view.pods else None
        name = uid if metadata is None else metadata.full_name
        owned[name] = owned.get(name, 0) | cpus
    # Only strict-cpu-reservation keeps the reserved CPUs out of the pool.
    reserved = view.reserved if not view.reserved & view.shared else 0
    return describe_pool_of(view.shared & ~held, view.topology.all_cpus, owned, reserved=reserved, held=held)


def owned_by_pod(view: NodeView) -> dict[str, Bits]:
    """Return the CPUs that each pod owns, by UID; pods that own none are left out."""
    found = {uid: union(named.values()) for uid, named in view.owners.items()}
    for uid, cpus in view.pod_cpus.items():
        found[uid] = found.get(uid, 0) | cpus
    return {uid: cpus for uid, cpus in found.items() if cpus}


def describe_pool_of(
    shared: Bits, machine: Bits, owned: Mapping[str, Bits], *, reserved: Bits = 0, held: Bits = 0
) -> str:
    """Return the sentence for a pool on a `machine` (0: unknown), `owned` CPUs by the owner's name, CPUs that are
    `reserved` outside the pool; empty where no CPU is owned and none is `held` for a pod that is gone."""
    if not owned and not held:
        return ""
    of = f" of {machine.bit_count()}" if machine else ""
    text = f"Shared pool: {shared.bit_count()}{of} CPUs ({format_bits(shared) or 'none'})"
    parts = []
    if owned:
        ordered = sorted(owned.items(), key=lambda item: (-item[1].bit_count(), item[0]))
        named = [f"{name} {cpus.bit_count()}" for name, cpus in ordered[:_MOST_NAMED]]
        rest = ordered[_MOST_NAMED:]
        if rest:
            several = "pod" if len(rest) == 1 else "pods"
            named.append(f"{len(rest)} more {several} {sum(cpus.bit_count() for _, cpus in rest)}")
        parts.append(f"owned: {union(owned.values()).bit_count()} ({', '.join(named)})")
    if reserved:
        parts.append(f"reserved and not shared: {reserved.bit_count()}")
    return "; ".join((text, *parts))


def idle_cpus(view: NodeView) -> Iterator[IdleCPUs]:
    """Yield the CPUs of init containers that no container after them takes over."""
    # The containers of a pod with pod-level resources share its CPUs, so none of them is idle.
    inits = {
        uid: frozenset(one.name for one in pod.containers if one.plain_init)
        for uid, pod in view.pods.items()
        if uid not in view.pod_cpus
    }
    return idle_after_init(view.owners, inits)


def idle_notes(view: NodeView) -> Iterator[str]:
    """Yield a sentence for each init container that ends before the others start, and keeps CPUs until its pod ends."""
    for idle in idle_cpus(view):
        metadata = view.pods[idle.pod].spec.metadata
        yield describe_idle(idle, metadata.full_name)
