"""Whose CPUs a container runs on, from what is assigned to the containers of its pod (KEP-5526)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Literal, TypeAlias

from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.quirks import Quirks
from podslice.core.values.cpuset import Bits

Isolation: TypeAlias = Literal["container", "pod", "host"]
"""Whose CPUs a container runs on: its own, its pod's, everybody's."""


def isolation(pod: AdmissionPod, container: AdmissionContainer, assigned: Bits | None) -> Isolation:
    """Whose CPUs a container runs on that is assigned these."""
    if assigned is None:
        return "host"
    return "pod" if pod.managed and not container.isolated else "container"


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
