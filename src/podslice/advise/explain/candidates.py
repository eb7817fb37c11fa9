"""The table of candidates: for every set of NUMA nodes, the amounts needed and free, and the reasons against it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, combinations, islice

import msgspec

from podslice.advise.trial.record import HintRound
from podslice.api.pod.demand import limits_of, pod_limits
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.machine.devices import DeviceResource
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet, bits_of, iter_bits, union
from podslice.values.errors import AdmissionError

MOST_CANDIDATES = 1024
_BADNESS = {
    verdict: place
    for place, verdict in enumerate(
        ("small", "short", "pool", "group", "joint", "apart", "bare", "unhinted", "wide", "fits")
    )
}
"""Verdicts, the worst first: a set gets the worst of its resources' verdicts."""


class Cell(msgspec.Struct, frozen=True, rename="camel"):
    """One resource on one set of NUMA nodes: CPUs, bytes or devices; `verdict` as in `codes.CANDIDATES`."""

    resource: str
    need: int
    free: int
    capacity: int
    verdict: str


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    """A set of NUMA nodes. `verdict` is the worst of its resources' verdicts; `killers` names all resources that speak
    against the set."""

    nodes: CPUSet
    cells: tuple[Cell, ...]
    verdict: str
    killers: tuple[str, ...]


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


class _Column:
    """One resource: the amount needed, the amounts by NUMA node, its provider's hints, and whether the pod holds some
    already.

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
        self.free: dict[int, int] = {}
        self.capacity: dict[int, int] = {}
        self._cells: dict[tuple[int, int, str], Cell] = {}
        self._sums: tuple[dict[Bits, int], dict[Bits, int]] = ({0: 0}, {0: 0})

    def offers(self, mask: Bits, free: int) -> bool:
        """Whether there is a hint for the set, of which `free` is free."""
        hints = self.hints
        if (
            self.countable
            and not self.held
            and free < self.need
            and isinstance(hints, HintSet)
            and len(hints.needs) == 1
        ):
            return False
        return hints is not None and mask in hints

    def cell(self, free: int, capacity: int, verdict: str) -> Cell:
        """Return one object for all sets with the same numbers and verdict."""
        key = (free, capacity, verdict)
        known = self._cells.get(key)
        if known is None:
            known = self._cells[key] = Cell(self.resource, self.need, free, capacity, verdict)
        return known

    def free_on(self, mask: Bits) -> int:
        found = self._total(mask, self.free, self._sums[0])
        return found.bit_count() if self.countable else found

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


def candidates(node: NodeView, pod: AdmissionPod, step: HintRound, chosen: Bits | None = None) -> tuple[Candidate, ...]:
    """Return sets of the machine's NUMA nodes with a verdict for each, single nodes first, up to `MOST_CANDIDATES`
    sets, and the chosen one."""
    columns = list(_columns(node, pod, step))
    single = node.config.topology_manager_policy == "single-numa-node"
    sets = _sets(tuple(sorted(one.id for one in node.machine.nodes)))
    if chosen and all(mask != chosen for mask, _ in sets):
        sets = (*sets, (chosen, CPUSet.from_bits(chosen)))
    if not columns:
        return tuple(_candidate(mask, nodes, (), single=single) for mask, nodes in sets)
    tables = [[_cell(mask, column, columns) for mask, _ in sets] for column in columns]
    return tuple(
        _candidate(mask, nodes, cells, single=single)
        for (mask, nodes), cells in zip(sets, zip(*tables, strict=True), strict=True)
    )


@cache
def _sets(nodes: tuple[int, ...]) -> tuple[tuple[Bits, CPUSet], ...]:
    """Return sets of these NUMA nodes, smaller ones first, up to `MOST_CANDIDATES`."""
    members = chain.from_iterable(combinations(nodes, size) for size in range(1, len(nodes) + 1))
    masks = [bits_of(one) for one in islice(members, MOST_CANDIDATES)]
    return tuple((mask, CPUSet.from_bits(mask)) for mask in masks)


def _candidate(mask: Bits, nodes: CPUSet, cells: tuple[Cell, ...], *, single: bool) -> Candidate:
    killers = tuple([cell.resource for cell in cells if cell.verdict != "fits"])
    verdict = "fits" if not killers else min([cell.verdict for cell in cells], key=_BADNESS.__getitem__)
    if single and mask & (mask - 1) and verdict in ("fits", "wide"):
        verdict = "wide-single"
    return Candidate(nodes, cells, verdict, killers)


def _cell(mask: Bits, column: _Column, columns: list[_Column]) -> Cell:
    free, capacity = column.free_on(mask), column.capacity_on(mask)
    need, hints = column.need, column.hints
    if hints is None:
        verdict = "fits" if free >= need else "small" if capacity < need else "short"
    elif column.offers(mask, free):
        verdict = "fits" if hints.prefers(mask) else "wide"
    elif capacity < need:
        verdict = "small"
    elif free < need:
        verdict = "short"
    else:
        verdict = _why_no_hint(mask, column, columns)
    return column.cell(free, capacity, verdict)


def _why_no_hint(mask: Bits, column: _Column, columns: list[_Column]) -> str:
    """Return the verdict for a set that has enough free and yet no hint."""
    if column.pool_empty:
        return "pool"
    if not column.countable:
        # The Memory Manager hints at memory and huge pages together: one that lacks room takes the hint from the other.
        for other in columns:
            if not other.countable and other is not column and other.free_on(mask) < other.need:
                return "joint"
        return "group"
    if column.held:
        return "apart"
    return "bare" if any(not column.capacity.get(node) for node in iter_bits(mask)) else "unhinted"


def _columns(node: NodeView, pod: AdmissionPod, step: HintRound) -> Iterator[_Column]:
    container = next((c for c in pod.containers if c.name == step.container), None)
    cpus = container.exclusive_cpus if container else pod.cpus
    pool = node.empty_pool(pod)
    if cpus and node.pins_cpus and not pod.ignored:
        numa_nodes, open_to = node.topology.numa_nodes, _open_to(node, pod, container)
        column = _Column("cpu", cpus, _hints(step, "cpu", "cpu"), countable=True, held="cpu" in step.held)
        column.pool_empty = pool is not None and pool.resource == "cpu"
        column.free = {numa: bits & open_to & step.assignable for numa, bits in numa_nodes.items()}
        column.capacity = {numa: bits & open_to for numa, bits in numa_nodes.items()}
        yield column
    if node.binds_memory and pod.guaranteed and not pod.ignored:
        for name, amount in sorted(_memory(pod, container).items(), reverse=True):
            column = _Column(name, amount, _hints(step, "memory", name), countable=False)
            column.pool_empty = pool is not None and pool.resource != "cpu"
            tables = {numa: (state.memory_map or {}).get(name) for numa, state in step.memory.items()}
            column.free = {numa: table.free for numa, table in tables.items() if table}
            column.capacity = {numa: table.allocatable for numa, table in tables.items() if table}
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


def _devices(resource: DeviceResource, count: int, step: HintRound) -> _Column:
    held = {
        name
        for named in step.devices.values()
        for by_resource in named.values()
        for name in by_resource.get(resource.resource, ())
    }
    hints = _hints(step, "device", resource.resource)
    column = _Column(resource.resource, count, hints, countable=True, held="device" in step.held)
    for index, device in enumerate(resource.devices):
        # A device without NUMA nodes restricts no set, and is no part of the table.
        for node in device.numa or ():
            column.capacity[node] = column.capacity.get(node, 0) | 1 << index
            if device.healthy and device.id not in held:
                column.free[node] = column.free.get(node, 0) | 1 << index
    return column


def _memory(pod: AdmissionPod, container: AdmissionContainer | None) -> Amounts:
    try:
        if container is not None:
            return container_memory(pod, container)
        return pod_memory(pod)
    except AdmissionError:
        return {}


def _hints(step: HintRound, provider: str, resource: str) -> HintSet | ListedHints | None:
    """Return the provider's sets with their preference; None where it has no preference or was not asked."""
    hints = (step.hints.get(provider) or {}).get(resource)
    return hints if hints is None or isinstance(hints, HintSet) else ListedHints(hints)
