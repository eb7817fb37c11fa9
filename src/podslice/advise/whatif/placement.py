"""Measure the place that a pod got: what it owns, and over how many NUMA nodes and caches that is spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.node.decision import ContainerDecision, Decision
from podslice.node.view import NodeView
from podslice.scheduling.predicates import admission_requests
from podslice.values.cpuset import Bits, iter_bits


class Placement(msgspec.Struct, frozen=True):
    """The place of an admitted pod.

    - `owned_cpus`: CPUs of its own; `floating_cpus`: CPUs that a static CPU Manager would give it and it does not own
    - `placed`: it owns all the CPUs that it could, or owns none of these but memory or devices
    - `cross_numa`: a container's own CPUs, memory and devices lie on more than one NUMA node
    - `needless_nodes`: on more than the container needs on an empty node
    - `apart`: its containers lie on different NUMA nodes although fewer would hold the whole pod
    - `cross_cache`: a container's CPUs lie in more L3 caches, or more L2 caches that cores share, than it needs
    """

    owned_cpus: int = 0
    floating_cpus: int = 0
    placed: bool = False
    cross_numa: bool = False
    needless_nodes: bool = False
    apart: bool = False
    cross_cache: bool = False


NOWHERE = Placement()
_CPU = "cpu"


class Ruler:
    """Measures places on a node with one machine and configuration; `view` is of any moment."""

    def __init__(self, view: NodeView) -> None:
        topology, self._view = view.topology, view
        usable = topology.all_cpus & ~view.reserved
        self._devices = {
            one.resource: {device.id: min(device.numa) for device in one.devices if device.numa}
            for one in view.devices.resources
        }
        near = {name: Counter(devices.values()) for name, devices in self._devices.items()}
        self._sizes = {
            _CPU: [(cpus & usable).bit_count() for cpus in topology.numa_nodes.values()],
            "memory": [node.memory for node in view.machine.nodes],
            **{name: list(counts.values()) for name, counts in near.items() if counts},
        }
        # Caches that belong to one core say nothing that its threads do not say.
        shared = [
            cache.cpus.bits & topology.all_cpus
            for cache in view.machine.caches
            if cache.level == 2 and len({topology.core_of[cpu] for cpu in cache.cpus if cpu in topology.core_of}) > 1
        ]
        levels = (list(topology.uncore_caches.values()), shared)
        self._caches = [(masks, [(mask & usable).bit_count() for mask in masks]) for masks in levels if len(masks) > 1]

    def measure(self, pod: Pod, decision: Decision) -> Placement:
        """Return the place of a pod that was admitted with this decision."""
        own, touched, whole = 0, set[int](), Counter[str]()
        cross = needless = split = False
        for container in decision.containers:
            cpus = container.exclusive_cpus.bits
            own |= cpus
            nodes, held = self._nodes_of(container), self._held(container)
            touched |= nodes
            whole.update(held)
            cross = cross or len(nodes) > 1
            needless = needless or len(nodes) > self._needed_nodes(held)
            split = split or self._is_split(cpus)
        holds = whole.total() > whole[_CPU]
        own |= 0 if decision.pod_cpus is None else decision.pod_cpus.bits
        # Init containers leave their CPUs to the containers after them: these count once.
        whole[_CPU] = own.bit_count()
        apart = not needless and len(touched) > self._needed_nodes(whole)
        floating = max(0, wanted_cpus(self._view, pod) - own.bit_count())
        placed = not floating and bool(own or holds)
        return Placement(own.bit_count(), floating, placed, cross, needless, apart, split)

    def _nodes_of(self, container: ContainerDecision) -> set[int]:
        nodes = container.numa_nodes if container.isolation != "host" else ()
        return {*nodes, *container.memory_nodes, *self._device_nodes(container.devices)}

    def _device_nodes(self, held: Mapping[str, list[str]]) -> Iterator[int]:
        for resource, devices in held.items():
            near = self._devices.get(resource, {})
            # A device on several NUMA nodes is near each of them; the lowest stands for it.
            yield from (near[device] for device in devices if device in near)

    def _held(self, container: ContainerDecision) -> dict[str, int]:
        """Return how much a container holds of what lies on NUMA nodes: CPUs, memory, devices by resource."""
        devices = {name: len(ids) for name, ids in container.devices.items() if name in self._sizes}
        memory = {name: size for name, size in container.memory.items() if name in self._sizes}
        return {_CPU: len(container.exclusive_cpus), **memory, **devices}

    def _needed_nodes(self, held: Mapping[str, int]) -> int:
        """Return the fewest NUMA nodes that have so much while nothing else is on the node."""
        return max(1, *(fewest(amount, self._sizes[name]) for name, amount in held.items()))

    def _is_split(self, cpus: Bits) -> bool:
        for masks, sizes in self._caches:
            touched = sum(1 for mask in masks if mask & cpus)
            if touched > 1 and touched > fewest(cpus.bit_count(), sizes):
                return True
        return False


def fewest(amount: int, sizes: Iterable[int]) -> int:
    """Return the smallest number of places of these `sizes` that hold the amount together; one where even all hold
    less, since that says nothing about where it lies."""
    left, count = amount, 0
    for size in sorted(sizes, reverse=True):
        if left <= 0:
            break
        left -= size
        count += 1
    return count if left <= 0 else 1


def wanted_cpus(view: NodeView, pod: Pod) -> int:
    """Return the CPUs that a static CPU Manager gives a pod at a time, whatever the node's own policy is."""
    admission = view.admission(default_pod(pod, view.gates))
    return 0 if admission.ignored else admission.cpus


def requested_cpus(view: NodeView, pod: Pod) -> int:
    """Return the CPUs that a pod requests, rounded up, and at least one: a pod that requests none counts too."""
    milli = admission_requests(default_pod(pod, view.gates), view.gates).get("cpu", 0)
    return max(1, -(-milli // 1000))


def shared_core_cpus(view: NodeView, owners: Iterable[Bits]) -> Bits:
    """Return the owned CPUs on cores of which another owner, or the shared pool, has a thread."""
    topology, found = view.topology, 0
    for cpus in owners:
        # Owners may still hold CPUs that are offline.
        for core in {topology.core_of[cpu] for cpu in iter_bits(cpus & topology.all_cpus)}:
            threads = topology.cores[core]
            if threads & ~cpus:
                found |= threads & cpus
    return found
