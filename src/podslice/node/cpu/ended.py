"""CPUs that stay with containers or pods that have ended, and so are neither used nor free.

An init container runs before the others, and its CPUs are used again by those after it. What they do not take stays
assigned to it until the pod ends. And a kubelet frees the CPUs of pods that are gone when it next admits a pod, not
before: until then shared containers stay on a pool that is smaller than it could be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from podslice.values.cpuset import Bits, format_bits, union

Owners = Mapping[str, Mapping[str, Bits]]
"""CPUs by pod UID and container."""


class IdleCPUs(NamedTuple):
    """CPUs of an init container that has ended, or with an empty `container` of a pod that is gone."""

    pod: str
    container: str
    cpus: Bits


def idle_after_init(owners: Owners, init_containers: Mapping[str, AbstractSet[str]]) -> Iterator[IdleCPUs]:
    """Yield the CPUs that no container of a pod uses once its init containers have ended. `init_containers` are by pod
    UID, without sidecars, which go on."""
    for uid, names in init_containers.items():
        held = owners.get(uid, {})
        used = union(cpus for name, cpus in held.items() if name not in names)
        for name, cpus in held.items():
            if name in names and cpus & ~used:
                yield IdleCPUs(uid, name, cpus & ~used)
                used |= cpus


def idle_of_gone_pods(owners: Owners, known: AbstractSet[str]) -> Iterator[IdleCPUs]:
    """Yield the CPUs of pods that are not among the `known` ones."""
    for uid, held in owners.items():
        cpus = union(held.values())
        if uid not in known and cpus:
            yield IdleCPUs(uid, "", cpus)


def describe_idle(idle: IdleCPUs, pod: str) -> str:
    """Return a sentence about idle CPUs; `pod` is the name under which the user knows the pod."""
    one = idle.cpus.bit_count() == 1
    cpus = f"{'CPU' if one else 'CPUs'} {format_bits(idle.cpus)} {'is' if one else 'are'}"
    if idle.container:
        return (
            f"{cpus} held for init container {idle.container} of {pod}, which ends before the others start: nothing "
            f"runs there until the pod ends"
        )
    return f"{cpus} held for pod {pod}, which is gone, until the next admission"


def describe_pools(now: Bits, then: Bits) -> str:
    """Return a sentence about the shared pool now and after the next admission."""
    return f"shared containers run on {format_bits(now) or 'no CPU'} now, and on {format_bits(then)} after it"
