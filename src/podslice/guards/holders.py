"""Containers with CPUs of their own, and the guards that they request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from podslice.api.pod.eligibility import AdmissionPod
from podslice.config.annotations import CACHE_CLASS, CPU_POWER, GUARDS, IRQ, IRQ_CLAIM, ISOLATION, requested_guard
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, union


class GuardedHolder(NamedTuple):
    """A container with CPUs of its own.

    `container`: its name, empty for the CPUs that the containers of a pod share among themselves.
    `cpus`: those that are online. `irq`, `isolation`, `power`, `cache`: the guards that it requests.
    """

    uid: str
    container: str
    cpus: Bits
    irq: str = "ban"
    isolation: str = "root"
    power: str = ""
    cache: str = ""


def holders(view: NodeView) -> Iterator[GuardedHolder]:
    """Yield the holders of a node, in order of admission."""
    guards = view.policy.guards
    power = guards.default_power if guards is not None else ""
    cache = guards.default_cache if guards is not None else ""
    for uid in dict.fromkeys((*view.owners, *view.pod_cpus)):
        pod = view.pods.get(uid)
        shares = _share(pod) if pod is not None and uid in view.pod_cpus else frozenset()
        owned = {name: cpus for name, cpus in view.owners.get(uid, {}).items() if name not in shares}
        rest = view.pod_cpus.get(uid, 0) & ~union(owned.values())
        requests = {key: requested_guard(view.policy, pod.spec, key) if pod else {} for key in GUARDS}
        for name, cpus in (*owned.items(), *([("", rest)] if rest else [])):
            online = cpus & view.topology.all_cpus & ~view.offline
            if online:
                request = {key: found.get(name, "") for key, found in requests.items()}
                irq, isolation = request[IRQ] or "ban", request[ISOLATION] or "root"
                yield GuardedHolder(
                    uid, name, online, irq, isolation, request[CPU_POWER] or power, request[CACHE_CLASS] or cache
                )


def _share(pod: AdmissionPod) -> frozenset[str]:
    """Return the containers that share the pod CPUs and own none. The node's view names all shared CPUs for each."""
    return frozenset(one.name for one in pod.containers if not one.exclusive_cpus)


def guarded_cpus(found: Iterable[GuardedHolder], cores: Iterable[Bits]) -> Bits:
    """Return the CPUs that interrupts must avoid.

    These are all CPUs of holders that ban interrupts, and for `housekeeping`, which takes them on its first core, the
    others. `cores`: the CPUs of each core.
    """
    cores = list(cores)
    guarded = 0
    for one in found:
        if one.irq == "housekeeping":
            first = one.cpus & -one.cpus
            guarded |= one.cpus & ~next((core for core in cores if core & first), first)
        elif one.irq != "keep":
            guarded |= one.cpus
    return guarded


def claims_by_device(found: Iterable[GuardedHolder]) -> dict[str, Bits]:
    """Return the CPUs of holders that claim interrupts, by the glob of the devices."""
    claims: dict[str, Bits] = {}
    for one in found:
        if one.irq.startswith(IRQ_CLAIM):
            glob = one.irq.removeprefix(IRQ_CLAIM)
            claims[glob] = claims.get(glob, 0) | one.cpus
    return claims
