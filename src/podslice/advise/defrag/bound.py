"""Lower bounds on the container moves that a pod needs: the CPUs missing on the best set of NUMA nodes, divided by what
a move frees.

Under the Topology Manager policies that refuse (restricted, single-numa-node), aligned CPUs must lie on a set of NUMA
nodes of the preferred size, and memory on the same node where one node is enough. Groups must therefore leave those
nodes; the fewest that can are those that free most per container. Whether there is room at their destination is
ignored, so the bound is never too high.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

from podslice.advise.defrag.groups import Group
from podslice.advise.defrag.space import State
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import Amounts, container_memory, pod_memory
from podslice.config.policy_options import RESTRICTED, SINGLE_NUMA_NODE
from podslice.node.view import NodeView
from podslice.values.errors import AdmissionError

IMPOSSIBLE = 1 << 30
# Each set is looked at for every state of the search: above this the bound costs more than it saves, so the need is
# left out.
_MOST_SETS = 300


class LowerBound(Protocol):
    """Protocol of the bounds that the search uses. `is_monotonic`: more free CPUs can only help the pod."""

    is_monotonic: bool

    def minimum(self, state: State) -> tuple[int, int]:
        """Return the fewest container moves that can still be needed, and the CPUs missing."""

    def estimate(self, state: State) -> tuple[int, int]:
        """Estimate the same two numbers, nearer to the truth and not always a lower bound."""


class GrowthBound:
    """Lower bounds for the growth of a pod that stays on its NUMA nodes.

    Under single-numa-node the missing CPUs must be freed on the pod's own node. Elsewhere other nodes may do, and the
    missing CPUs only order the states of the search.
    """

    def __init__(self, node: NodeView, was: AdmissionPod, wants: AdmissionPod) -> None:
        topology, held = node.topology, node.owned_by(was.uid)
        self._more = max(0, wants.cpus - node.pod_cpus.get(was.uid, held).bit_count())
        self._home = [place for place, cpus in enumerate(topology.numa_nodes.values()) if cpus & held]
        self._tied = node.single_numa_node
        before = {one.name: one.exclusive_cpus for one in was.containers}
        self.is_monotonic = sum(before.get(one.name) != one.exclusive_cpus for one in wants.containers) <= 1

    def minimum(self, state: State) -> tuple[int, int]:
        """See `LowerBound`. No move frees CPUs that the whole node lacks."""
        if self._more > sum(state.free):
            return IMPOSSIBLE, self._more
        missing = max(0, self._more - sum(state.free[place] for place in self._home))
        # Where the pod may grow onto other nodes it may need no move at all, so that 0 is the only safe bound.
        return int(bool(missing) and self._tied and len(self._home) == 1), missing

    def estimate(self, state: State) -> tuple[int, int]:
        """See `LowerBound`."""
        missing = self.minimum(state)[1]
        return int(bool(missing) and bool(self._home)), missing


class _Need(NamedTuple):
    """CPUs, and memory in bytes by resource, that must lie together, and the sets of NUMA nodes (by position) that
    would do."""

    cpus: int
    memory: Amounts
    sets: tuple[tuple[int, ...], ...]


class Bound:
    """Lower bounds for one pod on one node.

    `is_monotonic`: the pod is placed in one go, so more free CPUs only help. With several containers, free CPUs decide
    where the first one goes, and that can spoil the place of the second.
    """

    def __init__(self, node: NodeView, pod: AdmissionPod, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._ids = tuple(node.topology.numa_nodes)
        self._needs = tuple(_needs(node, pod))
        self.is_monotonic = len(pod.containers) == 1 or node.config.topology_manager_scope == "pod"
        self._owned_cpus = _owned_cpus(node, pod)

    def minimum(self, state: State) -> tuple[int, int]:
        """Return (container moves still needed at least, CPUs missing) for the need that is furthest from being met."""
        if self._owned_cpus > sum(state.free):
            return IMPOSSIBLE, self._owned_cpus
        return max((self._minimum_for(state, need) for need in self._needs), default=(0, 0))

    def estimate(self, state: State) -> tuple[int, int]:
        """Estimate as `minimum`, for all needs together: the largest first, each where it costs least beside those
        before it. Both numbers are 0 only if every need finds room."""
        free = list(state.free)
        moves = missing = 0
        for need in sorted(self._needs, key=lambda need: -need.cpus):
            room = state._replace(free=tuple(free))
            (more, lacking), nodes = min((self._minimum_on(room, need, nodes), nodes) for nodes in need.sets)
            moves, missing = moves + more, missing + lacking
            left = need.cpus
            for node in nodes:
                taken = min(left, max(0, free[node]))
                free[node] -= taken
                left -= taken
            # CPUs that are missing count against the first node, so that later needs do not count it as free.
            free[nodes[0]] -= left
        return moves, missing

    def _minimum_for(self, state: State, need: _Need) -> tuple[int, int]:
        """Return the bound for one need: that of the set of NUMA nodes where it is smallest."""
        return min((self._minimum_on(state, need, nodes) for nodes in need.sets), default=(IMPOSSIBLE, 0))

    def _minimum_on(self, state: State, need: _Need, nodes: tuple[int, ...]) -> tuple[int, int]:
        """Return (container moves, CPUs missing) to meet a need on these NUMA nodes (positions)."""
        missing = max(0, need.cpus - sum(state.free[node] for node in nodes))
        moves = self._fewest_moves(missing, [sum(place.counts[node] for node in nodes) for place in state.places])
        if need.memory and len(nodes) == 1:
            node = self._ids[nodes[0]]
            tables = state.ledger[node].memory_map or {}
            for name, amount in need.memory.items():
                lacking = amount - (tables[name].free if name in tables else 0)
                moves = max(
                    moves,
                    self._fewest_moves(
                        lacking,
                        [_memory_on(state, index, group, name, node) for index, group in enumerate(self._groups)],
                    ),
                )
        return moves, missing

    def _fewest_moves(self, missing: int, gains: Sequence[int]) -> int:
        """Return the fewest containers that free `missing` when each group frees at most its entry of `gains`. Parts of
        groups count, which keeps this a lower bound."""
        if missing <= 0:
            return 0
        useful = [(gain, group.weight) for gain, group in zip(gains, self._groups, strict=True) if gain > 0]
        # Fewest containers per CPU first, and the last group in part: a fractional knapsack, which no choice of whole
        # groups can beat.
        useful.sort(key=lambda one: one[1] / one[0])
        moved = 0
        for gain, weight in useful:
            if missing <= gain:
                return moved - (-missing * weight // gain)
            missing -= gain
            moved += weight
        return IMPOSSIBLE


def _owned_cpus(node: NodeView, pod: AdmissionPod) -> int:
    """Return how many CPUs the containers of the pod own at the same time. Moves do not change how many are free."""
    if not node.pins_cpus or pod.ignored:
        return 0
    return sum(container.exclusive_cpus for container in pod.containers if not container.plain_init)


def _memory_on(state: State, index: int, group: Group, name: str, node: int) -> int:
    """Return the most bytes that a group can hold on a NUMA node."""
    if not state.places[index].nodes >> node & 1:
        return 0
    return sum(block.size for block in group.blocks if block.type == name)


def _needs(node: NodeView, pod: AdmissionPod) -> Iterator[_Need]:
    """Yield the amounts that the pod needs together: its total in pod scope, else each container's own."""
    # Best-effort and none admit a pod wherever its CPUs lie; align-by-socket prefers sets by socket, not by width.
    refusing = node.config.topology_manager_policy in (RESTRICTED, SINGLE_NUMA_NODE)
    if not refusing or node.cpu_options.align_by_socket or pod.ignored:
        return
    memory = node.binds_memory and pod.guaranteed
    try:
        if node.aligns_pods:
            together = [(pod.cpus, pod_memory(pod, node.quirks) if memory else {})]
        elif pod.managed:
            return
        else:
            together = [
                (c.exclusive_cpus, container_memory(pod, c, node.quirks) if memory else {}) for c in pod.containers
            ]
    except AdmissionError:
        return
    for cpus, amounts in together:
        need = _need(node, cpus if node.pins_cpus else 0, amounts)
        if need is not None:
            yield need


def _need(node: NodeView, cpus: int, amounts: Amounts) -> _Need | None:
    """Return what must lie together and where it could; None where nothing must, or there are too many sets."""
    topology = node.topology
    # How many NUMA nodes a CPU class needs depends on the class.
    if cpus and node.cpu_classes is not None and not node.single_numa_node:
        return None
    width = node.fewest_numa_nodes(cpus) if cpus else 1
    if node.single_numa_node:
        width = 1
    tables = [state.memory_map or {} for state in node.memory.values()]
    # Memory must lie with the CPUs only where a single node could hold it on an empty machine.
    one_node = any(
        all(name in table and table[name].allocatable >= amount for name, amount in amounts.items()) for table in tables
    )
    memory = amounts if width == 1 and one_node else {}
    if not cpus and not memory:
        return None
    sets = tuple(combinations(range(len(topology.numa_nodes)), width))
    return _Need(cpus, memory, sets) if len(sets) <= _MOST_SETS else None
