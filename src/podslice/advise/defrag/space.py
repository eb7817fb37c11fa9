"""The states that moves can reach: how many CPUs each group has on which NUMA nodes, and where its memory is.

A state is valid when a restarted kubelet would take back all its pods as they are. Every group has as many CPUs as
before, on no more NUMA nodes. Memory fits where the ledger has it, and stays with its CPUs if it was there. The
Topology Manager judges no pod worse than before. Moves lead from one valid state to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, TypeVar

from podslice.advise.defrag.groups import (
    Counts,
    Group,
    counts_of,
    find_movable_groups,
    is_no_worse,
    relocate_sets,
)
from podslice.advise.trial.trial import Standing, Trial
from podslice.api.pod.spec import Pod
from podslice.machine.memory import Block, MachineState
from podslice.machine.memory_accounts import rebook, release
from podslice.node.cpu.picking.picker import Picker
from podslice.node.cpu.state import assignable
from podslice.node.memory.hints import memory_hints
from podslice.values.cpuset import Bits, bits_of, iter_bits, lowest_bits, union
from podslice.values.errors import AdmissionError, UpstreamDefectError

MOST_SPLITS = 64
"""Limit on the ways of dividing one group among the same NUMA nodes; above it only three are tried."""
_MOST_NODE_SETS = 64
T = TypeVar("T")


class Place(NamedTuple):
    """The place of a group: its CPUs by NUMA node, and the mask of the nodes of its memory."""

    counts: Counts
    nodes: Bits


class State(NamedTuple):
    """A node in the search: the shared pool, each group's CPUs and place, and the memory ledger (shared with other
    states)."""

    default: Bits
    cpus: tuple[Bits, ...]
    places: tuple[Place, ...]
    ledger: MachineState
    free: Counts


class Step(NamedTuple):
    """One group goes to another place; its CPUs are picked when the step is taken."""

    group: int
    to: Place


class Space:
    """All states that moves can reach from a node. `exhaustive` turns False when possible moves were left out.

    `resized`: UID of a pod for whose resize, instead of another pod, room is wanted; it stays where it is.
    """

    def __init__(self, node: Trial, *, resized: str = "") -> None:
        view = self._view = node.view
        self._resized = resized
        self.groups = find_movable_groups(view, resized)
        self.exhaustive = True
        self.topology = view.topology
        self.reserved = view.reserved
        self._trial = node.copy()
        self._picker = Picker(view.topology, view.cpu_options, view.quirks, view.release)
        self._grain = self.topology.cpus_per_core if view.cpu_options.full_pcpus_only else 1
        self._ids = tuple(self.topology.numa_nodes)
        self._memory_ids = tuple(sorted(view.memory))
        self._standing: dict[tuple[int, Place], bool] = {}
        self._before: dict[str, Standing] = {}
        self._open: dict[int, Bits] = {}
        self._classes = self._classify()

    def initial_state(self) -> State:
        """Return the state of the node as it is."""
        view = self._view
        places = tuple(Place(counts_of(self.topology, group.cpus), group.nodes) for group in self.groups)
        cpus = tuple(group.cpus for group in self.groups)
        return State(view.shared, cpus, places, dict(view.memory), self._free(view.shared))

    def _free(self, default: Bits) -> Counts:
        return counts_of(self.topology, assignable(default, self.reserved))

    def _classify(self) -> list[int]:
        """Number the groups; those that differ only by their place get equal numbers."""
        numbers: dict[object, int] = {}
        return [numbers.setdefault(self._equivalence_key(group), len(numbers)) for group in self.groups]

    def _equivalence_key(self, group: Group) -> object:
        return (
            group.weight,
            tuple(sorted(bits.bit_count() for bits in group.sets.values())),
            group.pod_cpus is not None,
            tuple(sorted((block.type, block.size) for block in group.blocks)),
            self._width(group),
            group.nodes.bit_count(),
            self._is_local(group),
            frozenset(self._standing_before(group.uid)),
        )

    def _standing_before(self, uid: str) -> Standing:
        if uid not in self._before:
            self._before[uid] = self._trial.standing(uid)
        return self._before[uid]

    def _width(self, group: Group) -> int:
        return self.topology.numa_nodes_of(group.cpus).bit_count()

    def _is_local(self, group: Group) -> bool:
        return not self.topology.numa_nodes_of(group.cpus) & ~group.nodes

    def signature(self, places: Sequence[Place]) -> tuple[tuple[int, Place], ...]:
        """Return a key that is equal for states that differ only in which of several equal groups is where."""
        return tuple(sorted(zip(self._classes, places, strict=True)))

    # Steps

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every valid step from a state, for equal groups at the same place only once."""
        seen = set()
        for index, group in enumerate(self.groups):
            place = state.places[index]
            if (self._classes[index], place) in seen:
                continue
            seen.add((self._classes[index], place))
            fitting = self._fitting_memory(state, group, place.nodes)
            for counts in self._divisions(state, index):
                for nodes in self._node_sets(group, counts, fitting):
                    to = Place(counts, nodes)
                    if to != place and self._is_no_worse(index, to):
                        yield Step(index, to)

    def _divisions(self, state: State, index: int) -> Iterator[Counts]:
        """Yield the ways of dividing a group's CPUs among at most as many NUMA nodes as it is on now."""
        group, now = self.groups[index], state.places[index].counts
        total = sum(now)
        if not total:
            yield now
            return
        room = tuple(free + own for free, own in zip(state.free, now, strict=True))
        width = self._width(group)
        for size in range(1, width + 1):
            for nodes in combinations(range(len(room)), size):
                found = list(_splits(total, [room[node] for node in nodes], self._grain))
                if len(found) > MOST_SPLITS:
                    self.exhaustive = False
                    # The extremes concentrate CPUs on one node or another, the middle divides them evenly.
                    found = [found[0], found[len(found) // 2], found[-1]]
                for split in found:
                    counts = [0] * len(room)
                    for node, count in zip(nodes, split, strict=True):
                        counts[node] = count
                    yield tuple(counts)

    def _fitting_memory(self, state: State, group: Group, now: Bits) -> frozenset[Bits]:
        """Return the masks of NUMA nodes that could hold the group's memory if it left its present ones."""
        if not group.blocks:
            return frozenset((0,))
        ledger = dict(state.ledger)
        # The group's own memory counts as free: it leaves before it comes back.
        release(ledger, _blocks_on(group, now))
        request: dict[str, int] = {}
        for block in group.blocks:
            request[block.type] = request.get(block.type, 0) + block.size
        hints = memory_hints(ledger, request, {}, crash=False)
        if hints is None:
            return frozenset((now,))
        return frozenset(mask for mask in self._masks(group.nodes.bit_count()) if mask in hints) | {now}

    def _masks(self, width: int) -> list[Bits]:
        """Return the masks of up to `width` NUMA nodes that have memory."""
        found = [bits_of(ids) for size in range(1, width + 1) for ids in combinations(self._memory_ids, size)]
        if len(found) > _MOST_NODE_SETS:
            self.exhaustive = False
        return found[:_MOST_NODE_SETS]

    def _node_sets(self, group: Group, counts: Counts, fitting: frozenset[Bits]) -> Iterator[Bits]:
        """Yield the masks where the group's memory may be when its CPUs are divided as `counts`."""
        there = bits_of(node for node, count in zip(self._ids, counts, strict=True) if count)
        local = group.blocks and self._is_local(group)
        for nodes in sorted(fitting):
            # Memory that lies with its CPUs now stays with them: remote memory would be worse than before.
            if not local or not there & ~nodes:
                yield nodes

    def _is_no_worse(self, index: int, to: Place) -> bool:
        """Whether the Topology Manager judges the group's pod no worse at a place than where it was."""
        key = index, to
        if key not in self._standing:
            self._standing[key] = self._judge(self.groups[index], to)
        return self._standing[key]

    def _judge(self, group: Group, to: Place) -> bool:
        if not self._view.aligns:
            return True
        before = self._standing_before(group.uid)
        # Hints depend on how many CPUs lie on each NUMA node, not on which: the lowest stand for them, free or not.
        counts = zip(self.topology.numa_nodes.values(), to.counts, strict=True)
        with self._trial.rollback():
            relocate_group(self._trial, group, union(lowest_bits(there, count) for there, count in counts), to.nodes)
            return is_no_worse(before, self._trial.standing(group.uid))

    def draft(self, state: State, step: Step) -> State:
        """Return the state after a step without the CPUs themselves: `default` and `cpus` are still those before."""
        place = state.places[step.group]
        ledger = state.ledger
        if step.to.nodes != place.nodes:
            ledger = dict(ledger)
            rebook(ledger, _blocks_on(self.groups[step.group], place.nodes), step.to.nodes)
        free = tuple(f + was - will for f, was, will in zip(state.free, place.counts, step.to.counts, strict=True))
        return state._replace(places=_replace_at(state.places, step.group, step.to), ledger=ledger, free=free)

    def pick_cpus(self, draft: State, step: Step) -> State | None:
        """Complete a draft with CPUs picked by the node's own policy; None if it finds none."""
        own = draft.cpus[step.group]
        try:
            free = assignable(draft.default, self.reserved) & self._open_to(step.group)
            picked = self._pick(own, free, step.to.counts)
        # The counts promise room that the picker cannot use, for instance parts of cores under full-pcpus-only.
        except (AdmissionError, UpstreamDefectError):
            self.exhaustive = False
            return None
        default = (draft.default | own) & ~picked
        return draft._replace(default=default, cpus=_replace_at(draft.cpus, step.group, picked))

    def _open_to(self, index: int) -> Bits:
        """Return the CPUs that the policy's classes and plugins leave to a group, or that it has."""
        found = self._open.get(index)
        if found is None:
            group = self.groups[index]
            found = self._open[index] = self._trial.eligible_cpus(group.uid, group.names) | group.cpus
        return found

    def _pick(self, own: Bits, free: Bits, counts: Counts) -> Bits:
        """Return `counts` CPUs on each NUMA node, as many as possible of the group's own."""
        picked = 0
        for there, count in zip(self.topology.numa_nodes.values(), counts, strict=True):
            kept = own & there
            more = count - kept.bit_count()
            picked |= kept | self._take(free & there, more) if more > 0 else self._take(kept, count)
        return picked

    def _take(self, available: Bits, count: int) -> Bits:
        return available if available.bit_count() == count else self._picker.take(available, count).cpus if count else 0

    # The verdict

    def admits(self, state: State, pod: Pod) -> bool:
        """Whether the node admits the pod in this state, or grants its resize."""
        with self._trial.rollback():
            self._trial.set_ledger(state.default, state.ledger)
            return self._trial.try_resize(pod) if self._resized else self._trial.try_admit(pod)

    def without_groups(self, state: State) -> State:
        """Return the state without any movable group: no moves can free more."""
        default, ledger = state.default, dict(state.ledger)
        for index, group in enumerate(self.groups):
            default |= state.cpus[index]
            release(ledger, _blocks_on(group, state.places[index].nodes))
        return state._replace(default=default, ledger=ledger, free=self._free(default))


def relocate_group(node: Trial, group: Group, cpus: Bits, nodes: Bits) -> None:
    """Move a group in the state of the managers, from wherever it is: CPUs and memory."""
    view = node.view
    if group.cpus:
        sets = {name: view.assignment(group.uid, name) or 0 for name in group.sets}
        there = relocate_sets(view.topology, sets, view.pod_cpus.get(group.uid), cpus)
        node.move_cpus(group.uid, there.sets, there.pod_cpus)
    if group.blocks:
        node.move_memory(group.uid, group.names, nodes)


def _blocks_on(group: Group, nodes: Bits) -> list[Block]:
    """Return the group's memory blocks as they are on other NUMA nodes."""
    affinity = tuple(iter_bits(nodes))
    return [Block(affinity, block.type, block.size) for block in group.blocks]


def _replace_at(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _splits(total: int, room: Sequence[int], grain: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways of taking `total` from several places, some from each, in multiples of `grain`."""
    if len(room) == 1:
        if total <= room[0]:
            yield (total,)
        return
    for count in range(grain, min(room[0], total - 1) + 1, grain):
        for rest in _splits(total - count, room[1:], grain):
            yield (count, *rest)
