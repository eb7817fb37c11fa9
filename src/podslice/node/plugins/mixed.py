"""The shared part of mixed containers: the CPUs that containers with exclusive CPUs share besides (docs/policy.md).

Inside a pod with pod CPUs it is the pod's shared pool. Else it is the pool of a container of the same wish that only
shares, or the CPUs that the policy lists, which no container may own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.config.policy import MixedCPUs
from podslice.machine.model import CPUTopology
from podslice.node.cpu.state import OwnCPUs
from podslice.node.plugins.classes import CPUClasses, shared_cpus_of
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits, union
from podslice.values.errors import StartError, StartKind

DEFAULT_POOL: Final = "default"
_POOL = StartKind("mixed-pool", "mixed.pool {problem}", "{remedy}")
_OWNABLE = "list CPUs that no container may own: reserved ones, or those of a class with exclusive: never"


class MixedPool(NamedTuple):
    """The policy's rules for shared parts. `cpus`: those that it lists, None for the usual pool; `near`: only on the
    NUMA nodes of the exclusive ones. `throttled`: CPU limits are enforced."""

    cpus: Bits | None = None
    near: bool = False
    throttled: bool = False


USUAL: Final = MixedPool()


def mixed_pool(
    rules: MixedCPUs | None, topology: CPUTopology, *, reserved: Bits, classes: CPUClasses | None, offline: Bits
) -> MixedPool | None:
    """Return the pool of a node, None where its policy has none. Raises `StartError`."""
    if rules is None:
        return None
    listed = None
    if rules.pool != DEFAULT_POOL:
        listed = _parse_pool(rules.pool, topology.all_cpus | offline)
        ownable = topology.all_cpus if classes is None else union(classes.ownable.values())
        if listed & ownable & ~reserved:
            problem = f"names CPUs that containers may own: {format_bits(listed & ownable & ~reserved)}"
            raise StartError("policy", _POOL, problem=problem, remedy=_OWNABLE)
    return MixedPool(listed, rules.near == "numa", rules.quota == "total")


def _parse_pool(text: str, there: Bits) -> Bits:
    """Return the CPUs of a mixed pool, a list of CPUs that are all `there`. Raises `StartError`."""
    remedy = f"default, or CPUs of this machine: {format_bits(there)}"
    try:
        listed = parse_bits(text)
    except CPUSetError as error:
        raise StartError("policy", _POOL, problem=error.problem, remedy=remedy) from None
    if not listed or listed & ~there:
        names = format_bits(listed & ~there) or "no CPUs"
        raise StartError("policy", _POOL, problem=f"names {names}", remedy=remedy)
    return listed


def first_threads(topology: CPUTopology, cpus: Bits) -> Bits:
    """Return the lowest thread of each core, of some CPUs."""
    mine = (core & cpus for core in topology.cores.values())
    return union(some & -some for some in mine)


class Sharing(NamedTuple):
    """The shared CPUs of a node at one moment: DEFAULT, the rules, and the CPUs that are offline."""

    pool: MixedPool | None
    classes: CPUClasses | None
    topology: CPUTopology
    default: Bits
    offline: Bits

    def runs_on(
        self, pod: AdmissionPod, name: str, own: OwnCPUs, held: Mapping[str, Bits], pod_cpus: Bits | None
    ) -> Bits:
        """Return the CPUs of a container that owns some; `held` are the assignments of its pod's containers."""
        return self.used_cpus(pod, name, own) | self.shared_part(pod, name, own, held, pod_cpus)

    def used_cpus(self, pod: AdmissionPod, name: str, own: OwnCPUs) -> Bits:
        """Return those of its own CPUs that a container runs on: all, or the lowest thread of each core."""
        cpus = own.cpus or 0
        if not pod.hides_smt or own.borrowed:
            return cpus
        if not any(one.name == name and one.hides_smt for one in pod.containers):
            return cpus
        return first_threads(self.topology, cpus)

    def shared_part(
        self, pod: AdmissionPod, name: str, own: OwnCPUs, held: Mapping[str, Bits], pod_cpus: Bits | None
    ) -> Bits:
        """Return the shared CPUs of a mixed container; none for others, or for one that has lost all CPUs of its
        own."""
        container = next((one for one in pod.containers if one.name == name), None)
        if container is None or not container.mixed or not own.cpus or own.borrowed:
            return 0
        if pod_cpus is not None:
            return pod_cpus & ~_slices(pod, container, held) & ~self.offline
        pool = self.pool or USUAL
        shared = self._pool_of(pod, name) if pool.cpus is None else pool.cpus & ~self.offline
        # All listed CPUs may be offline: then the usual pool serves.
        shared = shared or self._pool_of(pod, name)
        if pool.near:
            shared = shared & self.topology.cpus_in_numa_nodes(self.topology.numa_nodes_of(own.cpus)) or shared
        return shared & ~own.cpus

    def _pool_of(self, pod: AdmissionPod, name: str) -> Bits:
        return self.default if self.classes is None else shared_cpus_of(self.classes, pod, name, self.default)


def _slices(pod: AdmissionPod, container: AdmissionContainer, held: Mapping[str, Bits]) -> Bits:
    """Return the CPUs that this container and those beside it own of their pod's."""
    owners = [one for one in pod.containers if one.exclusive_cpus and not one.plain_init]
    if container.plain_init:
        before = pod.containers[: pod.containers.index(container)]
        owners = [one for one in owners if one in before]
    return union(held.get(one.name, 0) for one in (*owners, container))
