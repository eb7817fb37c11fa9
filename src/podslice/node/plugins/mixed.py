"""What containers with exclusive CPUs share besides: the shared part of a mixed container (docs/mixed.md).

Inside a pod with CPUs of its own it is the pod's shared pool. Else it is what a container of the same wish that only
shares would have, or the CPUs that the policy lists, which nobody may own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.config.policy import MixedCPUs
from podslice.machine.model import CPUTopology
from podslice.node.cpu.state import OwnCPUs
from podslice.node.plugins.classes import CPUClasses, shared_by
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits, union
from podslice.values.errors import StartError, StartKind

DEFAULT_POOL: Final = "default"
_POOL = StartKind("mixed-pool", "mixed.pool {problem}", "{remedy}")
_OWNABLE = "list CPUs that nobody may own: reserved ones, or those of a class with exclusive: never"


class MixedPool(NamedTuple):
    """What of a policy decides about shared parts. `cpus`: those that it lists, None for what others share; `near`:
    only on the NUMA nodes of the exclusive ones. `throttled`: CPU limits are enforced."""

    cpus: Bits | None = None
    near: bool = False
    throttled: bool = False


USUAL: Final = MixedPool()


def mixed_pool(
    rules: MixedCPUs | None, topology: CPUTopology, *, reserved: Bits, classes: CPUClasses | None, offline: Bits
) -> MixedPool | None:
    """The pool of a node, None where its policy has none. Raises `StartError`."""
    if rules is None:
        return None
    listed = None
    if rules.pool != DEFAULT_POOL:
        listed = _listed(rules.pool, topology.all_cpus | offline)
        ownable = topology.all_cpus if classes is None else union(classes.ownable.values())
        if listed & ownable & ~reserved:
            problem = f"names CPUs that containers may own: {format_bits(listed & ownable & ~reserved)}"
            raise StartError("policy", _POOL, problem=problem, remedy=_OWNABLE)
    return MixedPool(listed, rules.near == "numa", rules.quota == "total")


def _listed(text: str, there: Bits) -> Bits:
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
    """The lowest thread of each core, of some CPUs."""
    mine = (core & cpus for core in topology.cores.values())
    return union(some & -some for some in mine)


class Sharing(NamedTuple):
    """A node and what is shared on it at one moment: DEFAULT, and the CPUs that are offline."""

    pool: MixedPool | None
    classes: CPUClasses | None
    topology: CPUTopology
    default: Bits
    offline: Bits

    def runs_on(
        self, pod: AdmissionPod, name: str, own: OwnCPUs, held: Mapping[str, Bits], bubble: Bits | None
    ) -> Bits:
        """The CPUs of a container that has some of its own; `held` are the assignments of its pod's containers."""
        return self.used_of(pod, name, own) | self.shared_part(pod, name, own, held, bubble)

    def used_of(self, pod: AdmissionPod, name: str, own: OwnCPUs) -> Bits:
        """What a container runs on of its own CPUs: all, or the lowest thread of each core."""
        cpus = own.cpus or 0
        if not pod.hides_smt or own.borrowed:
            return cpus
        if not any(one.name == name and one.hides_smt for one in pod.containers):
            return cpus
        return first_threads(self.topology, cpus)

    def shared_part(
        self, pod: AdmissionPod, name: str, own: OwnCPUs, held: Mapping[str, Bits], bubble: Bits | None
    ) -> Bits:
        """What of it is shared; nothing where the container is not mixed, or has lost all CPUs of its own."""
        container = next((one for one in pod.containers if one.name == name), None)
        if container is None or not container.mixed or not own.cpus or own.borrowed:
            return 0
        if bubble is not None:
            return bubble & ~_slices(pod, container, held) & ~self.offline
        pool = self.pool or USUAL
        shared = self._pool_of(pod, name) if pool.cpus is None else pool.cpus & ~self.offline
        shared = shared or self._pool_of(pod, name)
        if pool.near:
            shared = shared & self.topology.cpus_in_numa_nodes(self.topology.numa_nodes_of(own.cpus)) or shared
        return shared & ~own.cpus

    def _pool_of(self, pod: AdmissionPod, name: str) -> Bits:
        return self.default if self.classes is None else shared_by(self.classes, pod, name, self.default)


def _slices(pod: AdmissionPod, container: AdmissionContainer, held: Mapping[str, Bits]) -> Bits:
    """What containers beside this one own of their pod's CPUs, and it itself."""
    owners = [one for one in pod.containers if one.exclusive_cpus and not one.plain_init]
    if container.plain_init:
        before = pod.containers[: pod.containers.index(container)]
        owners = [one for one in owners if one in before]
    return union(held.get(one.name, 0) for one in (*owners, container))
