"""Whose CPUs a container runs on, from what is assigned to the containers of its pod (KEP-5526), and where its memory
is."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Literal, TypeAlias

from podslice.core.machine.memory import Block
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.quirks import Quirks
from podslice.core.values.cpuset import Bits, bits_of

Isolation: TypeAlias = Literal["container", "pod", "host"]
"""Whose CPUs a container runs on: its own, its pod's, everybody's."""


def isolation(pod: AdmissionPod, container: AdmissionContainer, assigned: Bits | None) -> Isolation:
    """Whose CPUs a container runs on that is assigned these."""
    if assigned is None:
        return "host"
    return "pod" if pod.managed and not container.isolated else "container"


def has_exclusive_cpus(
    pod: AdmissionPod, container: AdmissionContainer, assigned: Bits | None, *, pod_level: bool
) -> bool:
    """Decides the CFS quota of a container that is assigned these CPUs (cpu-topology 6.9)."""
    return isolation(pod, container, assigned) == "container" if pod_level else bool(assigned)


def pod_has_exclusive_cpus(pod: AdmissionPod, held: Mapping[str, Bits]) -> bool:
    """Decides the CFS quota of the pod cgroup and sandbox; `held` are the assignments of the pod's containers."""
    if pod.managed:
        return all(isolation(pod, one, held.get(one.name)) == "container" for one in pod.containers)
    return any(held.get(one.name) for one in pod.containers)


def beside(
    pod: AdmissionPod,
    container: AdmissionContainer,
    running: Container[str],
    quirks: Quirks,
    *,
    own: Bits,
    held: Mapping[str, Bits],
    bubble: Bits | None,
) -> Bits:
    """The CPUs that a container with the CPUs `own` runs on while the named containers of its pod run. An init
    container has its CPUs to itself, so the pod's shared pool is smaller as long as it runs. Upstream runs both on the
    same CPUs."""
    if quirks.init_overlaps_sidecars or bubble is None:
        return own
    if isolation(pod, container, held.get(container.name)) != "pod":
        return own
    taken = sidecars = 0
    for other in pod.containers:
        cpus = held.get(other.name, 0)
        if other.name == container.name or not other.exclusive_cpus:
            continue
        if other.restartable:
            sidecars |= cpus
        elif other.init and other.name in running:
            taken |= cpus | sidecars
    return own & ~taken or bubble & ~taken


def numa_nodes(blocks: Iterable[Block]) -> Bits:
    """All NUMA nodes that blocks are on."""
    return bits_of(node for block in blocks for node in block.numa_affinity or ())
