"""Who has CPUs of their own, and what they ask of guards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from podslice.api.pod.eligibility import AdmissionPod
from podslice.config.annotations import CACHE_CLASS, CPU_POWER, GUARDS, IRQ, IRQ_CLAIM, ISOLATION, requested_guard
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, union


class GuardedHolder(NamedTuple):
    """A container with CPUs of its own that are online; `container` is empty for what the containers of a pod share
    among themselves. `irq`, `isolation`, `power` and `cache` are what it asks for."""

    uid: str
    container: str
    cpus: Bits
    irq: str = "ban"
    isolation: str = "root"
    power: str = ""
    cache: str = ""


def holders(view: NodeView) -> Iterator[GuardedHolder]:
    """All of a node, in order of admission."""
    guards = view.policy.guards
    power = guards.default_power if guards is not None else ""
    cache = guards.default_cache if guards is not None else ""
    for uid in dict.fromkeys((*view.owners, *view.bubbles)):
        pod = view.pods.get(uid)
        shares = _share(pod) if pod is not None and uid in view.bubbles else frozenset()
        owned = {name: cpus for name, cpus in view.owners.get(uid, {}).items() if name not in shares}
        rest = view.bubbles.get(uid, 0) & ~union(owned.values())
        wishes = {key: requested_guard(view.policy, pod.spec, key) if pod else {} for key in GUARDS}
        for name, cpus in (*owned.items(), *([("", rest)] if rest else [])):
            online = cpus & view.topology.all_cpus & ~view.offline
            if online:
                wish = {key: found.get(name, "") for key, found in wishes.items()}
                irq, isolation = wish[IRQ] or "ban", wish[ISOLATION] or "root"
                yield GuardedHolder(
                    uid, name, online, irq, isolation, wish[CPU_POWER] or power, wish[CACHE_CLASS] or cache
                )


def _share(pod: AdmissionPod) -> frozenset[str]:
    """The containers of a pod with CPUs as a whole that own none of them; in its ledgers each has all that they
    share."""
    return frozenset(one.name for one in pod.containers if not one.exclusive_cpus)


def guarded_cpus(found: Iterable[GuardedHolder], cores: Iterable[Bits]) -> Bits:
    """The CPUs that interrupts are to leave alone: all of who bans them, and all but the first core of who takes them
    on that core (`housekeeping`)."""
    cores = list(cores)
    guarded = 0
    for one in found:
        if one.irq == "housekeeping":
            first = one.cpus & -one.cpus
            guarded |= one.cpus & ~next((core for core in cores if core & first), first)
        elif one.irq != "keep":
            guarded |= one.cpus
    return guarded


def claimed(found: Iterable[GuardedHolder]) -> dict[str, Bits]:
    """The CPUs of who claims interrupts, by the glob of their devices."""
    claims: dict[str, Bits] = {}
    for one in found:
        if one.irq.startswith(IRQ_CLAIM):
            glob = one.irq.removeprefix(IRQ_CLAIM)
            claims[glob] = claims.get(glob, 0) | one.cpus
    return claims
