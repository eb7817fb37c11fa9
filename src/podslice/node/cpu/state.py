"""The CPU Manager's state as a value, and the names of its sets of CPUs.

Every set is a set of CPU ids (bits of an `int`); these names are used throughout:

ALL         every CPU of the machine
RESERVED    kept for the system; never given away exclusively
DEFAULT     the node's shared pool: what containers without an assignment run on
ASSIGNABLE  DEFAULT − RESERVED: what can still be given away exclusively
EXCLUSIVE   assigned to one container
POD CPUS    assigned to one pod with pod-level resources (`pod_cpus`; the state file's pod entry)
POD SHARED  POD CPUS − the exclusive slices in them

Invariants (profile `podslice`; property tests check them): DEFAULT and every assignment are disjoint, DEFAULT, all
assignments and all pod CPUs together are ALL (− RESERVED with strict reservation), and a pod's assignments lie within
its pod CPUs.
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
"""CPU classes under which CPUs were given, best first, `NAME!` for a required one, by pod and container; under an empty
name those of the pod CPUs."""


Memos = dict[str, dict[str, dict[str, str]]]
"""Notes that plugins keep on containers, by pod, container and plugin."""


Remembered = tuple[Loans, dict[str, Bits], MadeUnder, Memos]
"""Content of the policy's state file: loans of containers, loans of pod CPUs, classes and memos."""

T = TypeVar("T")


def assignable(default: Bits, reserved: Bits) -> Bits:
    """Return ASSIGNABLE: the CPUs that can still be given away exclusively."""
    return default & ~reserved


class PodMemory(msgspec.Struct, frozen=True):
    """The memory blocks of one pod: by container, and those of the pod as a `whole`."""

    containers: dict[str, tuple[Block, ...]] = {}
    whole: tuple[Block, ...] = ()

    def charged_blocks(self, *, pod_level: bool) -> tuple[Block, ...]:
        """Return the blocks that the ledgers count: the pod's own where it has some, as its containers' blocks lie in
        them."""
        if pod_level and self.whole:
            return self.whole
        return tuple(block for own in self.containers.values() for block in own)


class PodCPUs(msgspec.Struct, frozen=True):
    """One pod's part of a `CPUState`: `assignments` and `loans` by container, `pod_cpus` and their loans;
    beside it the pod's `memory`."""

    assignments: dict[str, Bits] = {}
    loans: dict[str, tuple[int, ...]] = {}
    pod_cpus: Bits = 0
    pod_loans: Bits = 0
    memory: PodMemory = PodMemory()

    @property
    def cpus(self) -> Bits:
        """All CPUs of the pod."""
        return union(self.assignments.values()) | self.pod_cpus


class Intent(NamedTuple):
    """A resize or a `move` that is being written: the pod before and after it. A resize changes the amount, so the
    granted amount shows which side holds after a crash; a move does not, so the managers' files show it."""

    before: PodCPUs
    after: PodCPUs
    move: bool = False

    @property
    def sides(self) -> tuple[PodCPUs, PodCPUs]:
        """The pod before and after."""
        return self.before, self.after

    @property
    def both(self) -> PodCPUs:
        """The pod's CPUs during a move: those it leaves and those it gets."""
        had, gets = self.sides
        own = {name: cpus | gets.assignments.get(name, 0) for name, cpus in had.assignments.items()}
        return replace(had, assignments=own, pod_cpus=had.pod_cpus | gets.pod_cpus)


class OwnCPUs(NamedTuple):
    """The online CPUs that a container runs on and that are its own or its pod's; None: it has none. `borrowed`: all
    its own CPUs are offline, so it runs on those of its pod."""

    cpus: Bits | None
    borrowed: bool = False


def own_cpus(assigned: Bits | None, pod_cpus: Bits, offline: Bits) -> OwnCPUs:
    """Return the own CPUs of a container with these assigned CPUs, in a pod with these `pod_cpus`, while some
    CPUs are offline."""
    if assigned is None or not assigned & offline:
        return OwnCPUs(assigned)
    if assigned & ~offline:
        return OwnCPUs(assigned & ~offline)
    return OwnCPUs(pod_cpus & ~offline or None, borrowed=True)


def online_parts(held: Mapping[str, Bits], offline: Bits) -> Mapping[str, Bits]:
    """Return the online part of each assignment. Assignments that are all offline are left out; empty ones stay."""
    if not offline:
        return held
    return {name: cpus & ~offline for name, cpus in held.items() if not cpus or cpus & ~offline}


# Messages between agents and services keep the older name "bubble".
class CPUState(msgspec.Struct, frozen=True, rename={"pod_cpus": "bubbles", "pod_loans": "bubble_loans"}):
    """All that a CPU Manager knows of its pods. A value: methods that change something return a new state.

    `default`, `assignments` {pod: {container: CPUs}} and `pod_cpus` {pod: CPUs} are the content of the state file.
    `reusable`: CPUs by pod that its plain init containers leave to the containers after them. `written`: the CPUs last
    sent to the runtime; `containers`: the runtime's container ids. `loans`: CPUs of containers beyond those promised at
    their first admission, in the order in which they came, ascending where they came together; `pod_loans`: pod CPUs
    beyond those first given. `offline`: CPUs that went offline while the node ran; assignments and pod CPUs may include
    them, DEFAULT never does. `grants`: requests and effects that plugins saw, by pod and container
    (`node.cpu.plugin_calls`). `classes`: the CPU classes of assignments, on nodes that define some. `memos`: notes that
    plugins keep.
    """

    default: Bits = 0
    assignments: dict[str, dict[str, Bits]] = {}
    pod_cpus: dict[str, Bits] = {}
    reusable: dict[str, Bits] = {}
    written: dict[str, dict[str, Bits]] = {}
    containers: ContainerIds = {}
    loans: Loans = {}
    pod_loans: dict[str, Bits] = {}
    offline: Bits = 0
    grants: dict[str, dict[str, Any]] = {}
    classes: MadeUnder = {}
    memos: Memos = {}

    # Questions

    def assignment(self, pod: str, container: str) -> Bits | None:
        """Return the CPUs of a container, None where it has no assignment."""
        containers = self.assignments.get(pod)
        return None if containers is None else containers.get(container)

    def assigned(self) -> Bits:
        """Return the union of all container assignments."""
        return union(cpus for containers in self.assignments.values() for cpus in containers.values())

    def cpus_to_free(self, pod: str, *, pod_level: bool) -> Bits | None:
        """Return the CPUs that become free when a pod goes: with `pod_level` its pod CPUs, if it has some, else its
        assignments. None where nothing is assigned to it."""
        held = self.assignments.get(pod)
        if held is None:
            return None
        pod_cpus = self.pod_cpus.get(pod) if pod_level else None
        return union(held.values()) if pod_cpus is None else pod_cpus

    def owned(self) -> Bits:
        """Return all CPUs with an owner: every assignment and all pod CPUs."""
        return self.assigned() | union(self.pod_cpus.values())

    def affinity(self, pod: str, container: str) -> Bits:
        """Return the CPUs a container runs on: its assignment, else the shared pool."""
        assigned = self.online(pod, container).cpus
        return self.default if assigned is None else assigned

    def online(self, pod: str, container: str) -> OwnCPUs:
        """Return the online CPUs that are the container's own or its pod's."""
        return own_cpus(self.assignment(pod, container), self.pod_cpus.get(pod, 0), self.offline)

    def promised(self, pod: str, container: str) -> Bits:
        """Return the baseline of a container with CPUs: those of its first admission, which it keeps through every
        resize."""
        loaned = bits_of(self.loans.get(pod, {}).get(container, ()))
        return (self.assignment(pod, container) or 0) & ~loaned

    def promised_to_pod(self, pod: str) -> Bits:
        """Return the baseline of the pod CPUs: those of the pod's first admission."""
        return self.pod_cpus.get(pod, 0) & ~self.pod_loans.get(pod, 0)

    def of_pod(self, pod: str) -> PodCPUs:
        """Return one pod's part of the state."""
        pod_cpus, loaned = self.pod_cpus.get(pod, 0), self.pod_loans.get(pod, 0)
        return PodCPUs(self.assignments.get(pod, {}), self.loans.get(pod, {}), pod_cpus, loaned)

    # Changes

    def restore_pod(self, pod: str, had: PodCPUs) -> CPUState:
        """Replace a pod's part by an earlier one, unless another owner has some of these CPUs now."""
        return self.restore_pods({pod: had})

    def restore_pods(self, pods: Mapping[str, PodCPUs]) -> CPUState:
        """Replace the parts of several pods by earlier ones, where one may now own what another had. A pod whose CPUs
        are not free keeps its current part."""
        left = dict(pods)
        while left:
            free = self.default | union(self.of_pod(uid).cpus for uid in left)
            alone = _first_without_room(free, left)
            # All that are left fit together, although one may take what another gives up.
            if alone is None:
                return self._restore(left, free & ~union(had.cpus for had in left.values()) & ~self.offline)
            del left[alone]
        return self

    def _restore(self, pods: Mapping[str, PodCPUs], default: Bits) -> CPUState:
        """Return the state with these pods' assignments and this DEFAULT."""
        state = replace(self, default=default)
        for uid, had in pods.items():
            state = replace(
                state,
                assignments=_put_or_drop(state.assignments, uid, had.assignments),
                loans=_put_or_drop(state.loans, uid, had.loans),
                pod_cpus=_put_or_drop(state.pod_cpus, uid, had.pod_cpus),
                pod_loans=_put_or_drop(state.pod_loans, uid, had.pod_loans),
            )
        return state

    def with_default(self, cpus: Bits) -> CPUState:
        """Return a copy whose shared pool is `cpus`."""
        return replace(self, default=cpus & ~self.offline)

    def assign(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """Assign CPUs to a container in place of those it had."""
        return replace(self, assignments=put_in(self.assignments, pod, container, cpus))

    def give(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """Move CPUs from DEFAULT to a container."""
        assignments = put_in(self.assignments, pod, container, cpus)
        return replace(self, default=self.default & ~cpus, assignments=assignments)

    def unassign(self, pod: str, container: str) -> CPUState:
        """Drop a container's assignment and what belongs to it; a pod's entry goes with its last container."""
        loans, classes = drop_in(self.loans, pod, container), drop_in(self.classes, pod, container)
        assignments, memos = drop_in(self.assignments, pod, container), drop_in(self.memos, pod, container)
        return replace(self, assignments=assignments, loans=loans, classes=classes, memos=memos)

    def note_classes(self, pod: str, container: str, classes: tuple[str, ...]) -> CPUState:
        """Record the CPU classes under which a container, or under an empty name the pod as a whole, got CPUs."""
        return replace(self, classes=put_in(self.classes, pod, container, classes))

    def resize(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """Replace a container's CPUs. Those it gains are loaned; those it loses return to DEFAULT, unless another
        container of the pod (an init container) has them too."""
        had = self.assignments[pod][container]
        lost = had & ~union(own for name, own in self.assignments[pod].items() if name != container)
        return replace(self.resize_slice(pod, container, cpus), default=(self.default | lost) & ~cpus & ~self.offline)

    def resize_slice(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """As `resize`, within the pod CPUs: DEFAULT does not change. CPUs of a container that had none are promised."""
        # Without an entry everything counts as had, so nothing of it is loaned.
        had = self.assignments.get(pod, {}).get(container, cpus)
        kept = [cpu for cpu in self.loans.get(pod, {}).get(container, ()) if cpus >> cpu & 1]
        loaned = (*kept, *iter_bits(cpus & ~had))
        loans = put_in(self.loans, pod, container, loaned) if loaned else drop_in(self.loans, pod, container)
        return replace(self.assign(pod, container, cpus), loans=loans)

    def resize_pod_cpus(self, pod: str, cpus: Bits) -> CPUState:
        """Replace a pod's CPUs; those it gains are loaned, those it loses return to DEFAULT."""
        had = self.pod_cpus[pod]
        loaned = cpus & (self.pod_loans.get(pod, 0) | ~had)
        loans = put(self.pod_loans, pod, loaned) if loaned else drop(self.pod_loans, pod)
        default = (self.default | had) & ~cpus & ~self.offline
        return replace(self, default=default, pod_cpus=put(self.pod_cpus, pod, cpus), pod_loans=loans)

    def assign_pod(self, pod: str, cpus: Bits) -> CPUState:
        """Set the pod CPUs of a pod."""
        return replace(self, pod_cpus=put(self.pod_cpus, pod, cpus))

    def free_pod_cpus(self, pod: str) -> CPUState:
        """Return a pod's CPUs to DEFAULT."""
        pod_cpus, loans = drop(self.pod_cpus, pod), drop(self.pod_loans, pod)
        default = (self.default | self.pod_cpus[pod]) & ~self.offline
        classes = drop_in(self.classes, pod, "")
        return replace(self, default=default, pod_cpus=pod_cpus, pod_loans=loans, classes=classes)

    def with_reusable(self, reusable: dict[str, Bits]) -> CPUState:
        """Return a copy in which init containers leave these CPUs."""
        return self if reusable == self.reusable else replace(self, reusable=reusable)

    def write(self, pod: str, container: str, cpus: Bits) -> CPUState:
        """Record CPUs that were sent to the runtime."""
        return replace(self, written=put_in(self.written, pod, container, cpus))

    def note_container(self, pod: str, container: str, container_id: str) -> CPUState:
        """Record a container of the runtime."""
        return replace(self, containers=put_in(self.containers, pod, container_id, container))

    def start(self, pod: str, container: str, container_id: str) -> CPUState:
        """Record a container that is about to start, on its own CPUs if it has some."""
        cpus = self.assignment(pod, container)
        if cpus is None:
            return self.note_container(pod, container, container_id)
        written = put_in(self.written, pod, container, cpus)
        return replace(self, written=written, containers=put_in(self.containers, pod, container_id, container))

    def stop(self, pod: str, container: str) -> CPUState:
        """Forget what was written for a container, and its oldest runtime id: an id that came later may still run."""
        # Ids are in the order in which they came; a restarted container has a newer one.
        containers = drop_first(self.containers, pod, container)
        return replace(self, written=drop_in(self.written, pod, container), containers=containers)

    def forget(self, pod: str, freed: Bits | None, *, pod_level: bool) -> CPUState:
        """Drop a pod and all its containers. `freed` returns to DEFAULT, None where nothing is assigned; with
        `pod_level` its pod CPUs go too."""
        written, containers = drop(self.written, pod), drop(self.containers, pod)
        grants = drop(self.grants, pod) if self.grants else self.grants
        classes = drop(self.classes, pod) if self.classes else self.classes
        memos = drop(self.memos, pod) if self.memos else self.memos
        loans = self.loans, self.pod_loans
        if self.loans or self.pod_loans:
            loans = drop(self.loans, pod), drop(self.pod_loans, pod)
        if freed is None:
            kept = self.default, self.assignments, self.pod_cpus, self.reusable
            return CPUState(*kept, written, containers, *loans, self.offline, grants, classes, memos)
        return CPUState(
            (self.default | freed) & ~self.offline,
            drop(self.assignments, pod),
            drop(self.pod_cpus, pod) if pod_level else self.pod_cpus,
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
        """Replace CPUs of a pod by others, in all its sets and at their place in the order of promises; the replaced
        ones are offline and do not return to DEFAULT."""
        taken = bits_of(others.values())
        own = {name: _swap(cpus, others) for name, cpus in self.assignments.get(pod, {}).items()}
        loans = {
            name: tuple(others.get(cpu, cpu) for cpu in loaned) for name, loaned in self.loans.get(pod, {}).items()
        }
        pod_cpus, reusable, pod_loans = (
            # The same exchange in every set keeps slices inside their pod CPUs.
            put(table, pod, _swap(table[pod], others)) if pod in table else table
            for table in (self.pod_cpus, self.reusable, self.pod_loans)
        )
        return replace(
            self,
            default=self.default & ~taken,
            assignments=put(self.assignments, pod, own) if own else self.assignments,
            loans=put(self.loans, pod, loans) if loans else self.loans,
            pod_cpus=pod_cpus,
            reusable=reusable,
            pod_loans=pod_loans,
        )

    def relocate(self, pod: str, sets: Mapping[str, Bits], pod_cpus: Bits | None = None) -> CPUState:
        """Move containers of a pod, and its pod CPUs if it has some, to as many other CPUs.

        No upstream kubelet does this; the caller has checked that the new CPUs are free (advise.defrag).
        """
        old = self.pod_cpus.get(pod, 0) if pod_cpus is not None else 0
        new = pod_cpus or 0
        own = dict(self.assignments.get(pod, {}))
        loans, pod_loans = self.loans, self.pod_loans
        for name, cpus in sets.items():
            old |= own.get(name) or 0
            new |= cpus
            own[name] = cpus
            loaned = len(loans.get(pod, {}).get(name, ()))
            if loaned:
                # The highest new CPUs take the place of the loaned ones: which CPU was promised means nothing after a
                # move.
                loans = put_in(loans, pod, name, tuple(iter_bits(cpus))[-loaned:])
        if pod_cpus is not None and pod in pod_loans:
            loaned = pod_loans[pod].bit_count()
            pod_loans = put(pod_loans, pod, bits_of(tuple(iter_bits(pod_cpus))[-loaned:]))
        return CPUState(
            (self.default | old) & ~new & ~self.offline,
            put(self.assignments, pod, own) if own else self.assignments,
            self.pod_cpus if pod_cpus is None else put(self.pod_cpus, pod, pod_cpus),
            drop(self.reusable, pod),
            self.written,
            self.containers,
            loans,
            pod_loans,
            self.offline,
            self.grants,
            self.classes,
            self.memos,
        )

    def set_loans(self, pod: str, loans: Mapping[str, tuple[int, ...]], pod_cpus: Bits) -> CPUState:
        """Mark which of a pod's CPUs, and of its pod CPUs, are beyond the promised ones."""
        own = {name: cpus for name, cpus in loans.items() if cpus}
        return replace(
            self,
            loans=_put_or_drop(self.loans, pod, own),
            pod_loans=_put_or_drop(self.pod_loans, pod, pod_cpus),
        )


def _swap(cpus: Bits, others: Mapping[int, int]) -> Bits:
    for cpu, other in others.items():
        # A set that has both CPUs, of a slice and its pod, stays as it is.
        if cpus >> cpu & 1 and not cpus >> other & 1:
            cpus ^= 1 << cpu | 1 << other
    return cpus


def _first_without_room(free: Bits, pods: Mapping[str, PodCPUs]) -> str | None:
    """Return the first of these pods whose CPUs are not free, or belong to one before it; None where all fit."""
    for uid, had in pods.items():
        if had.cpus & ~free:
            return uid
        free &= ~had.cpus
    return None


def _put_or_drop(table: dict[str, T], pod: str, value: T) -> dict[str, T]:
    """Return the table with this entry of a pod, without any where the entry is empty."""
    return put(table, pod, value) if value else drop(table, pod)


Isolation: TypeAlias = Literal["container", "mixed", "pod", "host"]
"""Kind of CPUs a container runs on: its own, its own and shared ones, its pod's, the node's shared pool."""


OWNING: Final = ("container", "mixed")
"""Kinds that own CPUs."""


def isolation(
    pod: AdmissionPod, container: AdmissionContainer, assigned: Bits | None, *, borrowed: bool = False
) -> Isolation:
    """Return the kind of CPUs that a container with this assignment runs on."""
    if assigned is None:
        return "host"
    if borrowed or (pod.managed and not container.isolated):
        return "pod"
    return "mixed" if container.mixed and assigned else "container"


def has_exclusive_cpus(
    pod: AdmissionPod, container: AdmissionContainer, assigned: Bits | None, *, pod_level: bool, borrowed: bool = False
) -> bool:
    """Whether a container with this assignment has exclusive CPUs, which decides its CFS quota (cpu-topology 6.9)."""
    # Without pod-level resources every assignment is exclusive: upstream looks no further than the set.
    if not (pod_level or pod.managed):
        return bool(assigned) and not borrowed
    return isolation(pod, container, assigned, borrowed=borrowed) in OWNING


def pod_has_exclusive_cpus(pod: AdmissionPod, held: Mapping[str, Bits]) -> bool:
    """Whether all, or without pod-level resources any, containers own CPUs, which decides the CFS quota of the pod
    cgroup and sandbox; `held` are the assignments of the pod's containers."""
    # Containers that share still need the pod's quota, so all must own CPUs; else one owner may not be throttled.
    if pod.managed:
        return all(isolation(pod, one, held.get(one.name)) in OWNING for one in pod.containers)
    return any(held.get(one.name) for one in pod.containers)


def cpus_beside(
    pod: AdmissionPod,
    container: AdmissionContainer,
    running: Container[str],
    quirks: Quirks,
    *,
    own: Bits,
    held: Mapping[str, Bits],
    pod_cpus: Bits | None,
) -> Bits:
    """Return those of a container's CPUs `own` that are left while the named containers of its pod run. An init
    container has its CPUs to itself, so the pod's shared pool is smaller as long as it runs. Upstream runs both on the
    same CPUs (quirk `init_overlaps_sidecars`)."""
    if quirks.init_overlaps_sidecars or pod_cpus is None:
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
    return own & ~taken or pod_cpus & ~taken


def numa_nodes(blocks: Iterable[Block]) -> Bits:
    """Return all NUMA nodes that blocks are on."""
    return bits_of(node for block in blocks for node in block.numa_affinity or ())


def remaining_nodes(nodes: Bits, memory: Mapping[int, object]) -> Bits:
    """Return the nodes of a set that are still on the machine, whose `memory` is by NUMA node; all of the machine's
    where none is."""
    return nodes and (nodes & bits_of(memory) or bits_of(memory))
