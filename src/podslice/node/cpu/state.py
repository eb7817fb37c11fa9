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
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.memory import Block
from podslice.values.cpuset import Bits, bits_of, iter_bits, union
from podslice.values.quirks import Quirks
from podslice.values.tables import ContainerIds, drop, drop_first, drop_in, put, put_in

Loans = dict[str, dict[str, tuple[int, ...]]]
"""CPUs beyond the promised ones, by pod and container, in the order in which they came."""


MadeUnder = dict[str, dict[str, tuple[str, ...]]]
"""The CPU classes under which CPUs were given, best first, `NAME!` where it was required, by pod and container; under
an empty name those of a BUBBLE."""


Memos = dict[str, dict[str, dict[str, str]]]
"""What plugins want to remember of containers, by pod, container and plugin."""


Remembered = tuple[Loans, dict[str, Bits], MadeUnder, Memos]
"""Loans of containers, those of pods with a BUBBLE, classes and memos: what the policy's state file holds."""

T = TypeVar("T")


def assignable(default: Bits, reserved: Bits) -> Bits:
    """ASSIGNABLE: what can still be given away exclusively."""
    return default & ~reserved


class PodMemory(msgspec.Struct, frozen=True):
    """The blocks of memory that one pod has, by container and as a `whole`."""

    containers: dict[str, tuple[Block, ...]] = {}
    whole: tuple[Block, ...] = ()

    def booked(self, *, pod_level: bool) -> tuple[Block, ...]:
        """The blocks the ledgers count."""
        if pod_level and self.whole:
            return self.whole
        return tuple(block for own in self.containers.values() for block in own)


class PodCPUs(msgspec.Struct, frozen=True):
    """What one pod has of a `CPUState`: `assignments` and `loans` by container, and its bubble; and its `memory` beside
    that."""

    assignments: dict[str, Bits] = {}
    loans: dict[str, tuple[int, ...]] = {}
    bubble: Bits = 0
    bubble_loans: Bits = 0
    memory: PodMemory = PodMemory()

    @property
    def cpus(self) -> Bits:
        """All CPUs of the pod."""
        return union(self.assignments.values()) | self.bubble


class Intent(NamedTuple):
    """A resize or a `move` that is being written: what the pod had, and what it is to have. What is resized has as much
    as it was granted; what moves has as much before as after, and the managers' files say which."""

    before: PodCPUs
    after: PodCPUs
    move: bool = False

    @property
    def sides(self) -> tuple[PodCPUs, PodCPUs]:
        """What the pod had, and what it is to have."""
        return self.before, self.after

    @property
    def both(self) -> PodCPUs:
        """What a pod owns while it moves: the CPUs that it leaves, and those that it is to have."""
        had, gets = self.sides
        own = {name: cpus | gets.assignments.get(name, 0) for name, cpus in had.assignments.items()}
        return replace(had, assignments=own, bubble=had.bubble | gets.bubble)


class OwnCPUs(NamedTuple):
    """What a container runs on that is its own or its pod's, None where that is nothing; `borrowed`: its own are all
    offline, and these are what is left to its pod."""

    cpus: Bits | None
    borrowed: bool = False


def own_cpus(assigned: Bits | None, bubble: Bits, offline: Bits) -> OwnCPUs:
    """Of a container that is assigned these CPUs in a pod with this BUBBLE, where some CPUs are offline."""
    if assigned is None or not assigned & offline:
        return OwnCPUs(assigned)
    if assigned & ~offline:
        return OwnCPUs(assigned & ~offline)
    return OwnCPUs(bubble & ~offline or None, borrowed=True)


def online_parts(held: Mapping[str, Bits], offline: Bits) -> Mapping[str, Bits]:
    """What containers have online of what they are assigned; those without any are left out."""
    if not offline:
        return held
    return {name: cpus & ~offline for name, cpus in held.items() if not cpus or cpus & ~offline}


class CPUState(msgspec.Struct, frozen=True):
    """All that a CPU Manager knows of its pods. A value: what changes it returns another one.

    `default`, `assignments` {pod: {container: CPUs}} and `bubbles` {pod: CPUs} are what its state file holds.
    `reusable`: CPUs by pod that its plain init containers leave to the containers after them. `written`: the CPUs the
    runtime was told, `containers`: the ids it has. `loans`: the CPUs that containers have beyond the ones promised at
    their first admission, in the order in which they came, ascending where they came together; `bubble_loans` those
    that pods have beyond their first bubble. `offline`: CPUs that went offline while the node ran; assignments and
    bubbles may name them, DEFAULT never does. `grants`: what plugins were told and said of what containers were given,
    by pod and container (`node.cpu.plugin_calls`). `classes`: the CPU classes that assignments were made under, on
    nodes that have some. `memos`: what plugins asked to be reminded of.
    """

    default: Bits = 0
    assignments: dict[str, dict[str, Bits]] = {}
    bubbles: dict[str, Bits] = {}
    reusable: dict[str, Bits] = {}
    written: dict[str, dict[str, Bits]] = {}
    containers: ContainerIds = {}
    loans: Loans = {}
    bubble_loans: dict[str, Bits] = {}
    offline: Bits = 0
    grants: dict[str, dict[str, Any]] = {}
    classes: MadeUnder = {}
    memos: Memos = {}

    # Questions

    def assignment(self, pod: str, container: str) -> Bits | None:
        """The CPUs of a container, None where it has no assignment."""
        containers = self.assignments.get(pod)
        return None if containers is None else containers.get(container)

    def assigned(self) -> Bits:
        """Union of all container assignments."""
        return union(cpus for containers in self.assignments.values() for cpus in containers.values())

    def held_by(self, pod: str, *, bubbles: bool) -> Bits | None:
        """What a pod gives back when it goes: with `bubbles` its BUBBLE, if it has one; None where nothing is assigned
        to it."""
        held = self.assignments.get(pod)
        if held is None:
            return None
        bubble = self.bubbles.get(pod) if bubbles else None
        return union(held.values()) if bubble is None else bubble

    def owned(self) -> Bits:
        """All CPUs that belong to somebody: every assignment and every bubble."""
        return self.assigned() | union(self.bubbles.values())

    def affinity(self, pod: str, container: str) -> Bits:
        """The CPUs a container runs on: its assignment, else the shared pool."""
        assigned = self.online(pod, container).cpus
        return self.default if assigned is None else assigned

    def online(self, pod: str, container: str) -> OwnCPUs:
        """The CPUs a container has of its own or its pod's that are online."""
        return own_cpus(self.assignment(pod, container), self.bubbles.get(pod, 0), self.offline)

    def promised(self, pod: str, container: str) -> Bits:
        """The baseline of a container with CPUs: those of its first admission, which it keeps for good."""
        loaned = bits_of(self.loans.get(pod, {}).get(container, ()))
        return (self.assignment(pod, container) or 0) & ~loaned

    def promised_bubble(self, pod: str) -> Bits:
        """The baseline of a pod with a BUBBLE."""
        return self.bubbles.get(pod, 0) & ~self.bubble_loans.get(pod, 0)

    def of_pod(self, pod: str) -> PodCPUs:
        """All that a pod has."""
        bubble, loaned = self.bubbles.get(pod, 0), self.bubble_loans.get(pod, 0)
        return PodCPUs(self.assignments.get(pod, {}), self.loans.get(pod, {}), bubble, loaned)

    # Changes

    def put_back(self, pod: str, had: PodCPUs) -> CPUState:
        """A pod has what it had once, in place of what it has; only where nobody else has it now."""
        return self.put_all_back({pod: had})

    def put_all_back(self, pods: Mapping[str, PodCPUs]) -> CPUState:
        """The same of several pods at once, who may have got what others of them had."""
        left = dict(pods)
        while left:
            free = self.default | union(self.of_pod(uid).cpus for uid in left)
            alone = _without_room(free, left)
            if alone is None:
                return self._with_back(left, free & ~union(had.cpus for had in left.values()) & ~self.offline)
            del left[alone]
        return self

    def _with_back(self, pods: Mapping[str, PodCPUs], default: Bits) -> CPUState:
        state = replace(self, default=default)
        for uid, had in pods.items():
            state = replace(
                state,
                assignments=_put_any(state.assignments, uid, had.assignments),
                loans=_put_any(state.loans, uid, had.loans),
                bubbles=_put_any(state.bubbles, uid, had.bubble),
                bubble_loans=_put_any(state.bubble_loans, uid, had.bubble_loans),
            )
        return state

    def with_default(self, cpus: Bits) -> CPUState:
        """Another DEFAULT."""
        return replace(self, default=cpus & ~self.offline)

    def assign(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """A container has these CPUs, in place of those it had."""
        return replace(self, assignments=put_in(self.assignments, pod, container, cpus))

    def give(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """A container has these CPUs, and DEFAULT has them no more."""
        assignments = put_in(self.assignments, pod, container, cpus)
        return replace(self, default=self.default & ~cpus, assignments=assignments)

    def unassign(self, pod: str, container: str) -> CPUState:
        """The container is forgotten; the pod goes with its last one."""
        loans, classes = drop_in(self.loans, pod, container), drop_in(self.classes, pod, container)
        assignments, memos = drop_in(self.assignments, pod, container), drop_in(self.memos, pod, container)
        return replace(self, assignments=assignments, loans=loans, classes=classes, memos=memos)

    def note_classes(self, pod: str, container: str, classes: tuple[str, ...]) -> CPUState:
        """What a container, or under an empty name the pod as a whole, has was given under these classes."""
        return replace(self, classes=put_in(self.classes, pod, container, classes))

    def resize(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """A container with CPUs has these now; what it gains is loaned, and what it loses is free in DEFAULT, unless an
        init container of the pod has it too."""
        had = self.assignments[pod][container]
        lost = had & ~union(own for name, own in self.assignments[pod].items() if name != container)
        return replace(self.resize_slice(pod, container, cpus), default=(self.default | lost) & ~cpus & ~self.offline)

    def resize_slice(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """As `resize`, within the pod's BUBBLE: DEFAULT stays. CPUs of a container that had none are promised."""
        had = self.assignments.get(pod, {}).get(container, cpus)
        kept = [cpu for cpu in self.loans.get(pod, {}).get(container, ()) if cpus >> cpu & 1]
        loaned = (*kept, *iter_bits(cpus & ~had))
        loans = put_in(self.loans, pod, container, loaned) if loaned else drop_in(self.loans, pod, container)
        return replace(self.assign(pod, container, cpus), loans=loans)

    def resize_bubble(self, pod: str, cpus: Bits) -> CPUState:
        """A pod with a BUBBLE has these CPUs now; what it gains is loaned, what it loses is free in DEFAULT."""
        had = self.bubbles[pod]
        loaned = cpus & (self.bubble_loans.get(pod, 0) | ~had)
        loans = put(self.bubble_loans, pod, loaned) if loaned else drop(self.bubble_loans, pod)
        default = (self.default | had) & ~cpus & ~self.offline
        return replace(self, default=default, bubbles=put(self.bubbles, pod, cpus), bubble_loans=loans)

    def with_bubble(self, pod: str, cpus: Bits) -> CPUState:
        """The pod has this BUBBLE."""
        return replace(self, bubbles=put(self.bubbles, pod, cpus))

    def give_back_bubble(self, pod: str) -> CPUState:
        """A pod's BUBBLE is part of DEFAULT again."""
        bubbles, loans = drop(self.bubbles, pod), drop(self.bubble_loans, pod)
        default = (self.default | self.bubbles[pod]) & ~self.offline
        classes = drop_in(self.classes, pod, "")
        return replace(self, default=default, bubbles=bubbles, bubble_loans=loans, classes=classes)

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
        grants = drop(self.grants, pod) if self.grants else self.grants
        classes = drop(self.classes, pod) if self.classes else self.classes
        memos = drop(self.memos, pod) if self.memos else self.memos
        loans = self.loans, self.bubble_loans
        if self.loans or self.bubble_loans:
            loans = drop(self.loans, pod), drop(self.bubble_loans, pod)
        if freed is None:
            kept = self.default, self.assignments, self.bubbles, self.reusable
            return CPUState(*kept, written, containers, *loans, self.offline, grants, classes, memos)
        return CPUState(
            (self.default | freed) & ~self.offline,
            drop(self.assignments, pod),
            drop(self.bubbles, pod) if bubbles else self.bubbles,
            self.reusable,
            written,
            containers,
            *loans,
            self.offline,
            grants,
            classes,
            memos,
        )

    def swap(self, pod: str, others: Mapping[int, int]) -> CPUState:
        """A pod has other CPUs for some of its own, in all its sets and at their place in the promised order; those it
        had before are offline."""
        taken = bits_of(others.values())
        own = {name: _swapped(cpus, others) for name, cpus in self.assignments.get(pod, {}).items()}
        loans = {
            name: tuple(others.get(cpu, cpu) for cpu in loaned) for name, loaned in self.loans.get(pod, {}).items()
        }
        bubbles, reusable, bubble_loans = (
            put(table, pod, _swapped(table[pod], others)) if pod in table else table
            for table in (self.bubbles, self.reusable, self.bubble_loans)
        )
        return replace(
            self,
            default=self.default & ~taken,
            assignments=put(self.assignments, pod, own) if own else self.assignments,
            loans=put(self.loans, pod, loans) if loans else self.loans,
            bubbles=bubbles,
            reusable=reusable,
            bubble_loans=bubble_loans,
        )

    def relocate(self, pod: str, sets: Mapping[str, Bits], bubble: Bits | None = None) -> CPUState:
        """Containers of a pod have other CPUs, as many as they had, and its bubble too if it has one.

        No upstream kubelet does this; whoever calls it has checked that the new CPUs are free (advise.defrag).
        """
        old = self.bubbles.get(pod, 0) if bubble is not None else 0
        new = bubble or 0
        own = dict(self.assignments.get(pod, {}))
        loans, bubble_loans = self.loans, self.bubble_loans
        for name, cpus in sets.items():
            old |= own.get(name) or 0
            new |= cpus
            own[name] = cpus
            loaned = len(loans.get(pod, {}).get(name, ()))
            if loaned:
                loans = put_in(loans, pod, name, tuple(iter_bits(cpus))[-loaned:])
        if bubble is not None and pod in bubble_loans:
            loaned = bubble_loans[pod].bit_count()
            bubble_loans = put(bubble_loans, pod, bits_of(tuple(iter_bits(bubble))[-loaned:]))
        return CPUState(
            (self.default | old) & ~new & ~self.offline,
            put(self.assignments, pod, own) if own else self.assignments,
            self.bubbles if bubble is None else put(self.bubbles, pod, bubble),
            drop(self.reusable, pod),
            self.written,
            self.containers,
            loans,
            bubble_loans,
            self.offline,
            self.grants,
            self.classes,
            self.memos,
        )

    def lend(self, pod: str, loans: Mapping[str, tuple[int, ...]], bubble: Bits) -> CPUState:
        """Of the CPUs that a pod has, these are the ones beyond the promised ones, and those of its BUBBLE."""
        own = {name: cpus for name, cpus in loans.items() if cpus}
        return replace(
            self,
            loans=_put_any(self.loans, pod, own),
            bubble_loans=_put_any(self.bubble_loans, pod, bubble),
        )


def _swapped(cpus: Bits, others: Mapping[int, int]) -> Bits:
    for cpu, other in others.items():
        if cpus >> cpu & 1 and not cpus >> other & 1:
            cpus ^= 1 << cpu | 1 << other
    return cpus


def _without_room(free: Bits, pods: Mapping[str, PodCPUs]) -> str | None:
    """The first of these pods whose CPUs are not all free, or one before it has."""
    for uid, had in pods.items():
        if had.cpus & ~free:
            return uid
        free &= ~had.cpus
    return None


def _put_any(table: dict[str, T], pod: str, value: T) -> dict[str, T]:
    """The table with this entry of a pod, without any where there is nothing in it."""
    return put(table, pod, value) if value else drop(table, pod)


Isolation: TypeAlias = Literal["container", "mixed", "pod", "host"]
"""Whose CPUs a container runs on: its own, its own and shared ones, its pod's, everybody's."""


OWNING: Final = ("container", "mixed")
"""With CPUs of their own."""


def isolation(
    pod: AdmissionPod, container: AdmissionContainer, assigned: Bits | None, *, borrowed: bool = False
) -> Isolation:
    """Whose CPUs a container runs on that is assigned these."""
    if assigned is None:
        return "host"
    if borrowed or (pod.managed and not container.isolated):
        return "pod"
    return "mixed" if container.mixed and assigned else "container"


def has_exclusive_cpus(
    pod: AdmissionPod, container: AdmissionContainer, assigned: Bits | None, *, pod_level: bool, borrowed: bool = False
) -> bool:
    """Decides the CFS quota of a container that is assigned these CPUs (cpu-topology 6.9)."""
    if not (pod_level or pod.managed):
        return bool(assigned) and not borrowed
    return isolation(pod, container, assigned, borrowed=borrowed) in OWNING


def pod_has_exclusive_cpus(pod: AdmissionPod, held: Mapping[str, Bits]) -> bool:
    """Decides the CFS quota of the pod cgroup and sandbox; `held` are the assignments of the pod's containers."""
    if pod.managed:
        return all(isolation(pod, one, held.get(one.name)) in OWNING for one in pod.containers)
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
    if isolation(pod, container, held.get(container.name)) not in ("pod", "mixed"):
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


def nodes_left(nodes: Bits, memory: Mapping[int, object]) -> Bits:
    """The NUMA nodes of a set that are still on the machine, whose `memory` is by node; all of the machine where none
    of them is."""
    return nodes and (nodes & bits_of(memory) or bits_of(memory))
