"""Dividing a pod's CPUs again after a resize: slices keep what they have, or what was promised to them.

KEP-5526 leaves resizes of pods with pod-level resources out; the order here is ours. First slices give back to the
pod's shared pool, then the bubble gives back to the node or takes from it, then slices take from the pool.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.api.pod.eligibility import AdmissionPod
from podslice.node.cpu.pod_level import Slice
from podslice.node.cpu.resize import ResizePicker
from podslice.values.cpuset import Bits, union


def shrunk(resizer: ResizePicker, held: Bits, promised: Bits, count: int) -> Bits:
    """What is left of CPUs that are held: those promised and the nearest to them; of the promised ones alone where even
    they are too many."""
    if promised.bit_count() <= count:
        return resizer.pick(promised, held & ~promised, count)
    return resizer.pick(0, promised, count)


def shrunk_slices(
    resizer: ResizePicker, pod: AdmissionPod, held: Mapping[str, Bits], promised: Mapping[str, Bits]
) -> dict[str, Bits]:
    """The slices of the containers that run for long, once those that want less have given back."""
    slices = {}
    for container in pod.containers:
        count, own = container.exclusive_cpus, held.get(container.name, 0)
        if count and not container.plain_init and own:
            slices[container.name] = (
                own if own.bit_count() <= count else shrunk(resizer, own, promised[container.name], count)
            )
    return slices


def divided_again(resizer: ResizePicker, pod: AdmissionPod, bubble: Bits, slices: Mapping[str, Bits]) -> list[Slice]:
    """Sets for all containers of a bubble in which these slices stay where they are, in init, then app order. Raises
    `AdmissionError` where a slice has no room to grow."""
    grown = dict(slices)
    for container in pod.containers:
        if container.exclusive_cpus and not container.plain_init:
            others = union(cpus for name, cpus in grown.items() if name != container.name)
            own = grown.get(container.name, 0)
            grown[container.name] = resizer.pick(own, bubble & ~others, container.exclusive_cpus)
    pool, sidecars = bubble & ~union(grown.values()), 0
    parts = []
    for container in pod.containers:
        own = grown.get(container.name, 0)
        if container.restartable:
            sidecars |= own
        elif container.init:
            own = bubble & ~sidecars
            if container.exclusive_cpus:
                own = resizer.pick(0, own, container.exclusive_cpus)
        parts.append(Slice(container.name, own or pool, bool(container.exclusive_cpus)))
    return parts
