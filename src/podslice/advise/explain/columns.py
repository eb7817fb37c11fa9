"""The need of a container, or of a pod as a whole, for each resource, beside the amounts of each NUMA node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, combinations, islice

import msgspec

from podslice.advise.trial.record import HintRound
from podslice.api.pod.demand import limits_of, pod_limits
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.machine.devices import DeviceResource
from podslice.node.memory.hints import Groups
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet, bits_of, union
from podslice.values.errors import AdmissionError

MOST_CANDIDATES = 1024


class Cell(msgspec.Struct, frozen=True, rename="camel"):
    """One resource on one set of NUMA nodes: CPUs, bytes or devices; `verdict` as in `codes.CANDIDATES`."""

    resource: str
    need: int
    free: int
    capacity: int
    verdict: str


class ListedHints:
    """Hints given as a list, with the interface of a `HintSet`."""

    def __init__(self, hints: Iterable[Hint]) -> None:
        self._preferred: dict[Bits, bool] = {}
        for hint in hints:
            if hint.mask is not None:
                self._preferred[hint.mask] = self._preferred.get(hint.mask, False) or hint.preferred

    def __contains__(self, mask: Bits) -> bool:
        return mask in self._preferred

    def prefers(self, mask: Bits) -> bool:
        return self._preferred[mask]


class Column:
    """One resource: the amount needed, the amounts by NUMA node, its provider's hints, and whether the pod holds some
    already.

    `groups` are those of the memory of the NUMA nodes. `reuse` is what init containers leave on exact sets of NUMA
    nodes; `required` are NUMA nodes that a set must have because they left something there.

    With `countable`, the tables hold the CPUs or devices of each node as bits, so that a device on two nodes counts
    once; else amounts.
    """

    def __init__(
        self, resource: str, need: int, hints: HintSet | ListedHints | None, *, countable: bool, held: bool = False
    ) -> None:
        self.resource = resource
        self.need = need
        self.hints = hints
        self.countable = countable
        self.held = held
        self.pool_empty = False
        self.groups: Groups | None = None
        self.reuse: dict[Bits, int] = {}
        self.required: Bits = 0
        self.free: dict[int, int] = {}
        self.capacity: dict[int, int] = {}
        self._cells: dict[tuple[int, int, str], Cell] = {}
        self._sums: tuple[dict[Bits, int], dict[Bits, int]] = ({0: 0}, {0: 0})

    def is_tied(self, mask: Bits) -> bool:
        """Whether the memory of a set is tied to another group of NUMA nodes."""
        return self.groups is not None and (self.groups.is_violated_by(mask) or self.groups.is_split_by(mask))

    def cell(self, free: int, capacity: int, verdict: str) -> Cell:
        """Return one object for all sets with the same numbers and verdict."""
        key = (free, capacity, verdict)
        known = self._cells.get(key)
        if known is None:
            known = self._cells[key] = Cell(self.resource, self.need, free, capacity, verdict)
        return known

    def free_on(self, mask: Bits) -> int:
        found = self._total(mask, self.free, self._sums[0])
        return found.bit_count() if self.countable else found + self.reuse.get(mask, 0)

    def free_on_all(self, nodes: tuple[int, ...]) -> Sequence[int]:
        """Return what is free on each of the `node_sets` of these nodes."""
        if self.reuse:
            return [self.free_on(mask) for mask, _ in node_sets(nodes)]
        return sums_of(nodes, tuple(self.free.items()), countable=self.countable)

    def capacity_on_all(self, nodes: tuple[int, ...]) -> Sequence[int]:
        """Return what each of the `node_sets` of these nodes has."""
        return sums_of(nodes, tuple(self.capacity.items()), countable=self.countable)

    def capacity_on(self, mask: Bits) -> int:
        found = self._total(mask, self.capacity, self._sums[1])
        return found.bit_count() if self.countable else found

    def _total(self, mask: Bits, table: dict[int, int], known: dict[Bits, int]) -> int:
        """Return the sum or union over the nodes of a set, built from that of the set without its lowest node."""
        found = known.get(mask)
        if found is None:
            # Smaller sets come first, so the sum of the rest is known already.
            rest = self._total(mask & (mask - 1), table, known)
            here = table.get((mask & -mask).bit_length() - 1, 0)
            found = known[mask] = rest | here if self.countable else rest + here
        return found


@cache
def node_sets(nodes: tuple[int, ...]) -> tuple[tuple[Bits, CPUSet], ...]:
    """Return sets of these NUMA nodes, smaller ones first, up to `MOST_CANDIDATES`."""
    members = chain.from_iterable(combinations(nodes, size) for size in range(1, len(nodes) + 1))
    masks = [bits_of(one) for one in islice(members, MOST_CANDIDATES)]
    return tuple((mask, CPUSet.from_bits(mask)) for mask in masks)


@lru_cache(maxsize=256)
def sums_of(nodes: tuple[int, ...], table: tuple[tuple[int, int], ...], *, countable: bool) -> tuple[int, ...]:
    """Return the sum over the nodes of each of their `node_sets`, or with `countable` the number of distinct bits. Pods
    that are refused on one node share them."""
    values = dict(table)
    known: dict[Bits, int] = {0: 0}
    for mask, _ in node_sets(nodes):
        # Smaller sets come first, so the sum without the lowest node is known.
        rest, here = known[mask & (mask - 1)], values.get((mask & -mask).bit_length() - 1, 0)
        known[mask] = rest | here if countable else rest + here
    del known[0]
    return tuple(value.bit_count() for value in known.values()) if countable else tuple(known.values())


def columns_of(node: NodeView, pod: AdmissionPod, step: HintRound) -> list[Column]:
    """Return a column for each resource that the managers place for the container of a step, or for the pod as a
    whole."""
    return list(_columns(node, pod, step))


def _columns(node: NodeView, pod: AdmissionPod, step: HintRound) -> Iterator[Column]:
    container = next((c for c in pod.containers if c.name == step.container), None)
    cpus = container.exclusive_cpus if container else pod.cpus
    pool = node.empty_pool(pod)
    if cpus and node.pins_cpus and not pod.ignored:
        numa_nodes, open_to = node.topology.numa_nodes, _open_to(node, pod, container)
        column = Column("cpu", cpus, _hints(step, "cpu", "cpu"), countable=True, held="cpu" in step.held)
        column.pool_empty = pool is not None and pool.resource == "cpu"
        column.free = {numa: bits & open_to & step.assignable for numa, bits in numa_nodes.items()}
        column.capacity = {numa: bits & open_to for numa, bits in numa_nodes.items()}
        column.required = node.topology.numa_nodes_of(step.reusable)
        yield column
    if node.binds_memory and pod.guaranteed and not pod.ignored:
        groups = Groups.of(step.memory)
        for name, amount in sorted(_memory(node, pod, container).items(), reverse=True):
            column = Column(name, amount, _hints(step, "memory", name), countable=False)
            column.pool_empty = pool is not None and pool.resource != "cpu"
            tables = {numa: (state.memory_map or {}).get(name) for numa, state in step.memory.items()}
            column.free = {numa: table.free for numa, table in tables.items() if table}
            column.capacity = {numa: table.allocatable for numa, table in tables.items() if table}
            column.groups = groups
            column.reuse = {mask: amounts[name] for mask, amounts in step.reuse.items() if name in amounts}
            yield column
    # Devices have no overcommit: the API server requires requests to equal limits, so limits are enough.
    limits = limits_of(container.spec.resources) if container else pod_limits(pod.spec, overhead=False)
    for resource in node.devices.resources:
        count = limits[resource.resource].value() if resource.resource in limits else 0
        if count:
            yield _devices(resource, count, step)


def _open_to(node: NodeView, pod: AdmissionPod, container: AdmissionContainer | None) -> Bits:
    """Return the CPUs that the classes of a node let a container, or the pod as a whole, own; all without classes."""
    classes = node.cpu_classes
    if classes is None:
        return node.topology.all_cpus
    owners = [one for one in pod.containers if one.exclusive_cpus and container in (None, one)]
    asking = [None] if container is None and pod.managed else owners
    return union(classes.own(classes.wish(pod, one, exclusive=True)) for one in asking)


def _devices(resource: DeviceResource, count: int, step: HintRound) -> Column:
    hints = _hints(step, "device", resource.resource)
    column = Column(resource.resource, count, hints, countable=True, held="device" in step.held)
    left = step.reusable_devices.get(resource.resource, frozenset())
    free = step.free_devices.get(resource.resource, frozenset()) | left
    for index, device in enumerate(resource.devices):
        # A device without NUMA nodes restricts no set, and is not a part of the table.
        for node in device.numa or ():
            column.capacity[node] = column.capacity.get(node, 0) | 1 << index
            if device.id in free:
                column.free[node] = column.free.get(node, 0) | 1 << index
    return column


def _memory(node: NodeView, pod: AdmissionPod, container: AdmissionContainer | None) -> Amounts:
    try:
        if container is not None:
            return container_memory(pod, container, node.quirks)
        return pod_memory(pod, node.quirks)
    except AdmissionError:
        return {}


def _hints(step: HintRound, provider: str, resource: str) -> HintSet | ListedHints | None:
    """Return the provider's sets with their preference; None where it has no preference or was not asked."""
    hints = (step.hints.get(provider) or {}).get(resource)
    return hints if hints is None or isinstance(hints, HintSet) else ListedHints(hints)
