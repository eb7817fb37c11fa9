"""What the CPU Manager knows, and the words for it.

Every set is a set of CPU ids (bits of an `int`); these names are used throughout:

ALL         every CPU of the machine
RESERVED    kept for the system; never given away exclusively
DEFAULT     the node's shared pool: what containers without an assignment run on
ASSIGNABLE  DEFAULT − RESERVED: what can still be given away exclusively
EXCLUSIVE   assigned to one container
BUBBLE      assigned to one pod with pod-level resources (state entry of the pod)
POD SHARED  BUBBLE − the exclusive slices in it

Invariants (profile `podslice`; property tests check them): DEFAULT and every assignment are disjoint, DEFAULT, all
assignments and all bubbles together are ALL (− RESERVED with strict reservation), and a pod's assignments lie within
its bubble.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from podslice.core.machine.memory import Block
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.quirks import Quirks
from podslice.core.state.tables import ContainerIds, drop, drop_first, drop_in, put, put_in
from podslice.core.values.cpuset import Bits, bits_of, iter_bits, union

Loans = dict[str, dict[str, tuple[int, ...]]]
"""CPUs beyond the promised ones, by pod and container, in the order in which they came."""


def assignable(default: Bits, reserved: Bits) -> Bits:
    """ASSIGNABLE: what can still be given away exclusively."""
    return default & ~reserved


class CPUState(msgspec.Struct, frozen=True):
    """All that a CPU Manager knows of its pods. A value: what changes it returns another one.

    `default`, `assignments` {pod: {container: CPUs}} and `bubbles` {pod: CPUs} are what its state file holds.
    `reusable`: CPUs by pod that its plain init containers leave to the containers after them. `written`: the CPUs the
    runtime was told, `containers`: the ids it has. `loans`: the CPUs that containers have beyond the ones promised at
    their first admission, in the order in which they came, ascending where they came together.
    """

    default: Bits = 0
    assignments: dict[str, dict[str, Bits]] = {}
    bubbles: dict[str, Bits] = {}
    reusable: dict[str, Bits] = {}
    written: dict[str, dict[str, Bits]] = {}
    containers: ContainerIds = {}
    loans: Loans = {}

    # Questions

    def assignment(self, pod: str, container: str) -> Bits | None:
        """The CPUs of a container, None where it has no assignment."""
        containers = self.assignments.get(pod)
        return None if containers is None else containers.get(container)

    def assigned(self) -> Bits:
        """Union of all container assignments."""
        return union(cpus for containers in self.assignments.values() for cpus in containers.values())

    def affinity(self, pod: str, container: str) -> Bits:
        """The CPUs a container runs on: its assignment, else the shared pool."""
        assigned = self.assignment(pod, container)
        return self.default if assigned is None else assigned

    def promised(self, pod: str, container: str) -> Bits:
        """The baseline of a container with CPUs: those of its first admission, which it keeps for good."""
        loaned = bits_of(self.loans.get(pod, {}).get(container, ()))
        return (self.assignment(pod, container) or 0) & ~loaned

    # Changes

    def with_default(self, cpus: Bits) -> CPUState:
        """Another DEFAULT."""
        return replace(self, default=cpus)

    def assign(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """A container has these CPUs, in place of those it had."""
        return replace(self, assignments=put_in(self.assignments, pod, container, cpus))

    def give(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """A container has these CPUs, and DEFAULT has them no more."""
        assignments = put_in(self.assignments, pod, container, cpus)
        return replace(self, default=self.default & ~cpus, assignments=assignments)

    def unassign(self, pod: str, container: str) -> CPUState:
        """The container is forgotten; the pod goes with its last one."""
        loans = drop_in(self.loans, pod, container)
        return replace(self, assignments=drop_in(self.assignments, pod, container), loans=loans)

    def resize(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """A container with CPUs has these now; what it gains is loaned, and what it loses is free in DEFAULT, unless an
        init container of the pod has it too."""
        had = self.assignments[pod][container]
        lost = had & ~union(own for name, own in self.assignments[pod].items() if name != container)
        kept = tuple(cpu for cpu in self.loans.get(pod, {}).get(container, ()) if cpus >> cpu & 1)
        loaned = (*kept, *iter_bits(cpus & ~had))
        loans = put_in(self.loans, pod, container, loaned) if loaned else drop_in(self.loans, pod, container)
        return replace(self.assign(pod, container, cpus), default=(self.default | lost) & ~cpus, loans=loans)

    def with_bubble(self, pod: str, cpus: Bits) -> CPUState:
        """The pod has this BUBBLE."""
        return replace(self, bubbles=put(self.bubbles, pod, cpus))

    def give_back_bubble(self, pod: str) -> CPUState:
        """A pod's BUBBLE is part of DEFAULT again."""
        return replace(self, default=self.default | self.bubbles[pod], bubbles=drop(self.bubbles, pod))

    def leave_reusable(self, reusable: dict[str, Bits]) -> CPUState:
        """Other CPUs are left by init containers."""
        return self if reusable == self.reusable else replace(self, reusable=reusable)

    def write(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """The runtime was told these CPUs."""
        return replace(self, written=put_in(self.written, pod, container, cpus))

    def know(self, pod: str, container: str, container_id: str) -> CPUState:
        """The runtime has this container."""
        return replace(self, containers=put_in(self.containers, pod, container_id, container))

    def start(self, pod: str, container: str, container_id: str) -> CPUState:
        """A container is about to start, on the CPUs it has of its own, if it has any."""
        cpus = self.assignment(pod, container)
        if cpus is None:
            return self.know(pod, container, container_id)
        written = put_in(self.written, pod, container, cpus)
        return replace(self, written=written, containers=put_in(self.containers, pod, container_id, container))

    def stop(self, pod: str, container: str) -> CPUState:
        """The container is no longer there to be told; its oldest id is forgotten."""
        containers = drop_first(self.containers, pod, container)
        return replace(self, written=drop_in(self.written, pod, container), containers=containers)

    def forget(self, pod: str, freed: Bits | None, *, bubbles: bool) -> CPUState:
        """The pod is gone with all its containers. `freed` is DEFAULT again, None where nothing is assigned; with
        `bubbles` its BUBBLE went with it."""
        written, containers = drop(self.written, pod), drop(self.containers, pod)
        loans = drop(self.loans, pod)
        if freed is None:
            return CPUState(self.default, self.assignments, self.bubbles, self.reusable, written, containers, loans)
        return CPUState(
            self.default | freed,
            drop(self.assignments, pod),
            drop(self.bubbles, pod) if bubbles else self.bubbles,
            self.reusable,
            written,
            containers,
            loans,
        )

    def relocate(self, pod: str, sets: Mapping[str, Bits], bubble: Bits | None = None) -> CPUState:
        """Containers of a pod have other CPUs, as many as they had, and its bubble too if it has one.

        No upstream kubelet does this; whoever calls it has checked that the new CPUs are free (advise.defrag).
        """
        old = self.bubbles.get(pod, 0) if bubble is not None else 0
        new = bubble or 0
        own = dict(self.assignments.get(pod, {}))
        for name, cpus in sets.items():
            old |= own.get(name) or 0
            new |= cpus
            own[name] = cpus
        return CPUState(
            (self.default | old) & ~new,
            put(self.assignments, pod, own) if own else self.assignments,
            self.bubbles if bubble is None else put(self.bubbles, pod, bubble),
            drop(self.reusable, pod),
            self.written,
            self.containers,
            self.loans,
        )


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
