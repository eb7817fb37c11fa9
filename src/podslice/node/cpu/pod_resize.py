"""Divide a pod's CPUs again after a resize: slices keep the CPUs they have, or those promised to them.

KEP-5526 does not cover resizes of pods with pod-level resources; the order here is ours. First slices shrink into the
pod's shared pool, then the pod CPUs shrink into the node's pool or grow from it, then slices grow from the pod's pool.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.api.pod.eligibility import AdmissionPod
from podslice.node.cpu.pod_level import Slice
from podslice.node.cpu.resize import ResizePicker
from podslice.values.cpuset import Bits, union


def shrink(resizer: ResizePicker, held: Bits, promised: Bits, count: int) -> Bits:
    """Choose which `count` of the held CPUs to keep: the promised ones, then the nearest to them. Where more than
    `count` are promised, choose among these alone."""
    if promised.bit_count() <= count:
        return resizer.pick(promised, held & ~promised, count)
    return resizer.pick(0, promised, count)


def shrink_slices(
    resizer: ResizePicker, pod: AdmissionPod, held: Mapping[str, Bits], promised: Mapping[str, Bits]
) -> dict[str, Bits]:
    """Return the slices of the long-lived containers, smaller where the pod now requests less."""
    slices = {}
    for container in pod.containers:
        count, own = container.exclusive_cpus, held.get(container.name, 0)
        if count and not container.plain_init and own:
            slices[container.name] = (
                own if own.bit_count() <= count else shrink(resizer, own, promised[container.name], count)
            )
    return slices


def divide(resizer: ResizePicker, pod: AdmissionPod, pod_cpus: Bits, slices: Mapping[str, Bits]) -> list[Slice]:
    """Return a set of CPUs for every container, in init, then app order; `slices` keep the CPUs they have. Raises
    `AdmissionError` where a slice cannot grow."""
    grown = dict(slices)
    for container in pod.containers:
        if container.exclusive_cpus and not container.plain_init:
            others = union(cpus for name, cpus in grown.items() if name != container.name)
            own = grown.get(container.name, 0)
            grown[container.name] = resizer.pick(own, pod_cpus & ~others, container.exclusive_cpus)
    pool, sidecars = pod_cpus & ~union(grown.values()), 0
    parts = []
    for container in pod.containers:
        own = grown.get(container.name, 0)
        if container.restartable:
            sidecars |= own
        elif container.init:
            own = pod_cpus & ~sidecars
            # A plain init container has ended: its set keeps no CPUs, and may be the same as those of others.
            if container.exclusive_cpus:
                own = resizer.pick(0, own, container.exclusive_cpus)
        parts.append(Slice(container.name, own or pool, bool(container.exclusive_cpus)))
    return parts
