"""The result that a resize of one container should have, in the plainest way: sets, loops, nothing clever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, combinations
from typing import NamedTuple

from podslice.machine.model import CPUTopology
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import ids_of

CPUs = frozenset[int]
Nodes = frozenset[int]


class Layout(NamedTuple):
    """A machine: its CPUs by core, L3 cache, NUMA node and socket, each list by id."""

    cores: tuple[CPUs, ...]
    caches: tuple[CPUs, ...]
    nodes: tuple[CPUs, ...]
    sockets: tuple[CPUs, ...]

    @classmethod
    def of(cls, topology: CPUTopology) -> Layout:
        levels = topology.cores, topology.uncore_caches, topology.numa_nodes, topology.sockets
        return cls(*(tuple(frozenset(ids_of(cpus)) for _, cpus in sorted(level.items())) for level in levels))

    @property
    def all_cpus(self) -> CPUs:
        return frozenset(chain(*self.nodes))


# CT 4.6: packed


@cache
def packed(layout: Layout, options: CPUPolicyOptions, free: CPUs, count: int) -> CPUs:
    """Whole nodes and sockets, whole caches, whole cores, single CPUs; those with fewest free CPUs first."""
    spread = options.distribute_cpus_across_cores
    uncore = options.prefer_align_cpus_by_uncorecache and not options.distribute_cpus_across_numa
    large, larger = layout.nodes, layout.sockets
    if len(layout.sockets) < len(layout.nodes):
        large, larger = larger, large
    taken: CPUs = frozenset()

    def left() -> CPUs:
        return free - taken

    def order(objects: Iterable[CPUs], within: CPUs | None = None) -> list[CPUs]:
        there = [one for one in objects if one & left() and (within is None or one & within)]
        return sorted(there, key=lambda one: (len(one & left()), min(one)))

    def parents() -> list[CPUs]:
        """Sockets in order; where a socket holds several nodes, nodes in order of their sockets."""
        if len(layout.sockets) >= len(layout.nodes):
            return list(dict.fromkeys(socket for node in order(layout.nodes) for socket in order(layout.sockets, node)))
        return list(dict.fromkeys(node for socket in order(layout.sockets) for node in order(layout.nodes, socket)))

    def take_whole(objects: Iterable[CPUs]) -> None:
        nonlocal taken
        for one in [one for one in objects if one <= left()]:
            if len(taken) + len(one) <= count:
                taken |= one

    for level in (large, larger):
        take_whole(order(level))
    if uncore and len(taken) < count:
        caches = [cache for node in _nodes_in_order(layout, order) for cache in order(layout.caches, node)]
        take_whole(caches)
        for cache in caches:
            missing = count - len(taken)
            if 0 < missing <= len(cache & left()):
                plain = CPUPolicyOptions()
                taken |= packed(layout, plain, cache & left(), missing)
    if not spread and len(taken) < count:
        for parent in parents():
            take_whole(order(layout.cores, parent))
    single = _spread(layout, order, left) if spread else _one_by_one(layout, order, parents, left)
    for cpu in list(single):
        if len(taken) < count:
            taken |= {cpu}
    assert len(taken) == count
    return taken


def _nodes_in_order(layout: Layout, order: Callable[..., list[CPUs]]) -> list[CPUs]:
    if len(layout.sockets) >= len(layout.nodes):
        return order(layout.nodes)
    return list(dict.fromkeys(node for socket in order(layout.sockets) for node in order(layout.nodes, socket)))


def _one_by_one(
    layout: Layout, order: Callable[..., list[CPUs]], parents: Callable[[], list[CPUs]], left: Callable[[], CPUs]
) -> Iterator[int]:
    for parent in parents():
        for core in order(layout.cores, parent):
            yield from sorted(core & left())


def _spread(layout: Layout, order: Callable[..., list[CPUs]], left: Callable[[], CPUs]) -> Iterator[int]:
    """Socket after socket, one CPU of every core before a second one of any, the lowest ids first."""
    sockets = order(layout.sockets)
    if len(layout.sockets) >= len(layout.nodes):
        sockets = list(dict.fromkeys(one for node in order(layout.nodes) for one in order(layout.sockets, node)))
    for socket in sockets:
        cores = [sorted(core & left()) for core in layout.cores if core & socket]
        for turn in range(max(map(len, cores), default=0)):
            yield from sorted(core[turn] for core in cores if len(core) > turn)


# 5.3: the phases


def pick(
    layout: Layout, options: CPUPolicyOptions, anchor: CPUs, pool: CPUs, count: int, mask: Nodes | None
) -> CPUs | None:
    """Return all of the anchor and what is missing from the pool, nearest first; None where there is not enough."""
    pool = _within(layout, options, pool - anchor, mask)
    if options.full_pcpus_only:
        touched = [core for core in layout.cores if core & anchor]
        whole = [core for core in layout.cores if core <= pool]
        pool = frozenset(chain(*(core & pool for core in touched), *whole))
    if not len(anchor) <= count <= len(anchor | pool):
        return None
    if options.distribute_cpus_across_numa:
        return _levelled(layout, options, anchor, pool, count, mask)
    chosen = anchor
    for place in _phases(layout, options, anchor):
        free = (pool & place) - chosen
        chosen |= packed(layout, options, free, min(count - len(chosen), len(free)))
    return chosen


def _within(layout: Layout, options: CPUPolicyOptions, pool: CPUs, mask: Nodes | None) -> CPUs:
    if mask is None:
        return pool
    near = frozenset(chain(*(layout.nodes[node] for node in mask)))
    if options.align_by_socket:
        near = frozenset(chain(*(socket for socket in layout.sockets if socket & near)))
    return pool & near


def _phases(layout: Layout, options: CPUPolicyOptions, anchor: CPUs) -> Iterator[CPUs]:
    if not options.distribute_cpus_across_cores:
        yield _touched(layout.cores, anchor)
    if options.prefer_align_cpus_by_uncorecache and any(not node <= cache for node in layout.nodes
                                                        for cache in layout.caches if cache & node):  # fmt: skip
        yield _touched(layout.caches, anchor)
    nodes = [node for node in layout.nodes if node & anchor]
    yield from sorted(nodes, key=lambda node: (-len(node & anchor), layout.nodes.index(node)))
    yield _touched(layout.sockets, anchor)
    yield layout.all_cpus


def _touched(objects: Iterable[CPUs], cpus: CPUs) -> CPUs:
    return frozenset(chain(*(one for one in objects if one & cpus)))


def _levelled(
    layout: Layout, options: CPUPolicyOptions, anchor: CPUs, pool: CPUs, count: int, mask: Nodes | None
) -> CPUs | None:
    """Unit by unit to the node with the fewest CPUs that has a free one."""
    if mask is None:
        nodes = [node for node in layout.nodes if node & anchor]
        while len(frozenset(chain(*nodes)) & (anchor | pool)) < count:
            others = [node for node in layout.nodes if node not in nodes]
            nodes.append(max(others, key=lambda node: (len(node & (anchor | pool)), -layout.nodes.index(node))))
    else:
        nodes = [node for node in layout.nodes if _within(layout, options, node, mask)]
    chosen = anchor
    while len(chosen) < count:
        units = []
        for node in nodes:
            unit = _unit(layout, options, anchor, chosen, (pool & node) - chosen)
            if unit and len(chosen) + len(unit) <= count:
                units.append((len(chosen & node), layout.nodes.index(node), unit))
        if not units:
            return None
        chosen |= min(units)[2]
    return chosen


def _unit(layout: Layout, options: CPUPolicyOptions, anchor: CPUs, chosen: CPUs, free: CPUs) -> CPUs:
    caches = options.prefer_align_cpus_by_uncorecache
    for near in (anchor, chosen):
        for place in (_touched(layout.cores, near), _touched(layout.caches, near) if caches else frozenset()):
            if free & place:
                return _one(layout, options, free & place, free)
    return _one(layout, options, free, free) if free else frozenset()


def _one(layout: Layout, options: CPUPolicyOptions, among: CPUs, free: CPUs) -> CPUs:
    if not options.full_pcpus_only:
        return packed(layout, options, among, 1)
    return next(core & free for core in layout.cores if min(among) in core)


# 5.4: the verdict


def masks(layout: Layout) -> list[Nodes]:
    """Return all sets of NUMA nodes, narrow and low ones first."""
    ids = range(len(layout.nodes))
    return [frozenset(some) for size in range(1, len(layout.nodes) + 1) for some in combinations(ids, size)]


def grow(
    layout: Layout, options: CPUPolicyOptions, policy: str, held: CPUs, assignable: CPUs, count: int
) -> CPUs | None:
    """Return the CPUs of a container on the CPUs `held` after it grew to `count`; None where it may not. Under strict
    reservation another container must have a CPU left to share."""
    found = _grow(layout, options, policy, held, assignable, count)
    if found is not None and options.strict_cpu_reservation and assignable <= found:
        return None
    return found


def _grow(
    layout: Layout, options: CPUPolicyOptions, policy: str, held: CPUs, assignable: CPUs, count: int
) -> CPUs | None:
    if policy == "none":
        return pick(layout, options, held, assignable, count, None)
    here = frozenset(index for index, node in enumerate(layout.nodes) if node & held)
    room = [len(node & (held | assignable)) for node in layout.nodes]
    enough = [mask for mask in masks(layout) if here <= mask and sum(room[one] for one in mask) >= count]
    sizes = [len(mask) for mask in masks(layout) if sum(len(layout.nodes[one]) for one in mask) >= count]
    if not enough:
        return None
    smallest = min(sizes)
    preferred = [mask for mask in enough if len(mask) == smallest or _aligned(layout, options, mask, smallest)]
    if policy == "single-numa-node":
        preferred = [mask for mask in preferred if len(mask) == 1]
    best = _best(layout, options, preferred, smallest)
    if policy != "best-effort":
        if best is None:
            return None
        only_node = policy == "single-numa-node" and len(layout.nodes) == 1
        return pick(layout, options, held, assignable, count, None if only_node else best)
    if best is None:
        best = min(enough, key=lambda mask: (len(mask), sorted(mask)))
    found = pick(layout, options, held, assignable, count, best)
    return pick(layout, options, held, assignable, count, None) if found is None else found


def _aligned(layout: Layout, options: CPUPolicyOptions, mask: Nodes, smallest: int) -> bool:
    """With `align-by-socket` a mask is also preferred that spans as few sockets as so many nodes can."""
    per_socket = len(layout.nodes) // len(layout.sockets)
    return options.align_by_socket and per_socket > 0 and _sockets(layout, mask) == -(-smallest // per_socket)


def _sockets(layout: Layout, mask: Nodes) -> int:
    return sum(any(layout.nodes[one] & socket for one in mask) for socket in layout.sockets)


def _best(layout: Layout, options: CPUPolicyOptions, preferred: list[Nodes], smallest: int) -> Nodes | None:
    aligned = [mask for mask in preferred if _aligned(layout, options, mask, smallest)]
    return min(aligned or preferred, key=lambda mask: (len(mask), sorted(mask)), default=None)
