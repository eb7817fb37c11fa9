"""Sums that tell how many running pods must leave before a pod can be admitted, without a trial.

All here are necessary conditions: where they fail no trial would succeed, where they hold only a trial can tell.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from podslice.advise.explain.fixes.bench import PodNeeds
from podslice.config.policy_options import BEST_EFFORT, NONE
from podslice.node.view import NodeView
from podslice.scheduling.predicates import PODS, amounts
from podslice.values.cpuset import Bits

_ALL = -1
"""Stands for the whole node among NUMA nodes."""
_CPU = "cpu"
_REQUESTED = "requested "
"""Begins the names of what the kubelet's general predicates count."""
Key = tuple[int, str]
"""A NUMA node, or the whole node, and a resource."""


_Pair = tuple[int, int]


class Lack(NamedTuple):
    """What a pod lacks: on the whole node, and on each NUMA node that might take it; None where any NUMA node may.
    `pieces`: so many containers each need at least so many CPUs of one NUMA node."""

    in_all: Mapping[Key, int]
    places: Sequence[Mapping[Key, int]] | None
    pieces: tuple[int, int] = (0, 0)

    @property
    def lacks_cpus(self) -> bool:
        """Whether the whole node has too few free CPUs."""
        return self.in_all.get((_ALL, _CPU), 0) > 0

    @property
    def has_place(self) -> bool:
        """Whether some NUMA node has enough free CPUs, or any may give some."""
        return self.is_placed_with({})

    def is_placed_with(self, freed: Mapping[int, int]) -> bool:
        """Whether some NUMA node has enough free CPUs once so many more (or fewer) are free there."""
        return self.places is None or any(
            place.get((numa, _CPU), 0) <= freed.get(numa, 0) for numa, place in self._numbered()
        )

    def _numbered(self) -> Iterator[tuple[int, Mapping[Key, int]]]:
        return ((next(iter(place))[0], place) for place in self.places or ())

    @property
    def is_of_cpus(self) -> bool:
        """Whether CPUs lack wherever the pod goes, so that less of anything else does not help."""
        return self.lacks_cpus or not self.has_place or self.in_all.get((_ALL, _REQUESTED + _CPU), 0) > 0

    @property
    def lacks_requests(self) -> bool:
        """Whether the pods together request more than the node has for pods."""
        return any(size > 0 and name.startswith(_REQUESTED) for (_, name), size in self.in_all.items())


class Shortages:
    """What the running pods of a node would free, and how much of it a pod lacks."""

    def __init__(self, node: NodeView, running: Iterable[PodNeeds]) -> None:
        self._node = node
        self._numa = dict(node.topology.numa_nodes)
        self._free_cpus = node.assignable
        self._freed = {one.admission.uid: self._freed_by(one) for one in running}
        self._left = self._remaining()
        self._most: dict[Key, list[int]] = {}

    def _remaining(self) -> dict[str, int]:
        """Return what all requests together leave of what the node has for pods."""
        left = {**amounts(self._node.allocatable), PODS: amounts(self._node.allocatable).get(PODS, 0)}
        for freed in self._freed.values():
            for (_, name), size in freed.items():
                if name.startswith(_REQUESTED):
                    left[name[len(_REQUESTED) :]] = left.get(name[len(_REQUESTED) :], 0) - size
        return left

    def _freed_by(self, needs: PodNeeds) -> dict[Key, int]:
        uid = needs.admission.uid
        cpus = self._node.owned_by(uid)
        freed = {(_ALL, _CPU): cpus.bit_count()}
        for numa, own in self._numa.items():
            if cpus & own:
                freed[numa, _CPU] = (cpus & own).bit_count()
        for blocks in (self._node.pod_blocks.get(uid, ()), *self._node.blocks.get(uid, {}).values()):
            for block in blocks:
                for numa in block.numa_affinity or ():
                    # What lies on several NUMA nodes may all be on each of them.
                    freed[numa, block.type] = freed.get((numa, block.type), 0) + block.size
        for name, amount in needs.requests.items():
            freed[_ALL, _REQUESTED + name] = amount
        return freed

    def lack(self, needs: PodNeeds) -> Lack:
        """Return what a pod lacks here."""
        node, pod = self._node, needs.admission
        if not node.undoes_refusals:
            return Lack({}, None)
        in_all: dict[Key, int] = {}
        # A critical pod preempts others, so that sums of requests do not refuse it.
        if node.predicates and not needs.critical:
            for name, amount in needs.requests.items():
                if amount > 0 and amount > (left := self._left.get(name, amount)):
                    in_all[_ALL, _REQUESTED + name] = amount - left
        if not node.pins_cpus or pod.ignored:
            return Lack(in_all, None)
        total = pod.cpus if node.places_whole(pod) else needs.own_cpus
        in_all[_ALL, _CPU] = total - self._free_cpus.bit_count()
        if node.config.topology_manager_policy in (NONE, BEST_EFFORT) or node.cpu_options.align_by_socket:
            return Lack(in_all, None)
        count = pod.cpus if node.aligns_pods else max((one.exclusive_cpus for one in pod.containers), default=0)
        if not node.single_numa_node and node.fewest_numa_nodes(count) > 1:
            return Lack(in_all, None)
        memory = needs.lone_memory if node.single_numa_node and node.binds_memory else ()
        places = [self._lack_on(numa, own, count, memory or ()) for numa, own in self._numa.items()]
        owned = [one.exclusive_cpus for one in pod.containers if one.exclusive_cpus and not one.plain_init]
        pieces = (0, 0) if node.aligns_pods or len(owned) < 2 else (len(owned), min(owned))
        return Lack(in_all, places, pieces)

    def _lack_on(self, numa: int, own: Bits, count: int, memory: Iterable[tuple[str, int]]) -> dict[Key, int]:
        lack = {(numa, _CPU): count - (own & self._free_cpus).bit_count()}
        state = self._node.memory.get(numa)
        for name, size in memory:
            table = (state.memory_map or {}).get(name) if state else None
            lack[numa, name] = size - (table.free if table else 0)
        return lack

    def singles(self, uids: Sequence[str], lack: Lack) -> list[str]:
        """Return those of the pods of which each alone may free enough."""
        in_all = tuple(_missing(lack.in_all).items())
        places = None if lack.places is None else [tuple(_missing(place).items()) for place in lack.places]
        found = []
        for uid in uids:
            freed = self._freed.get(uid, {})
            if all(freed.get(key, 0) >= size for key, size in in_all) and (
                places is None or any(all(freed.get(key, 0) >= size for key, size in place) for place in places)
            ):
                found.append(uid)
        return [uid for uid in found if self.is_met(lack, (uid,))] if lack.pieces[0] else found

    def is_met(self, lack: Lack, uids: Iterable[str]) -> bool:
        """Whether these pods may free enough."""
        freed = [self._freed[uid] for uid in uids if uid in self._freed]

        def covers(lacking: Mapping[Key, int]) -> bool:
            return all(
                missing <= 0 or missing <= sum(one.get(key, 0) for one in freed) for key, missing in lacking.items()
            )

        if not covers(lack.in_all) or not (lack.places is None or any(map(covers, lack.places))):
            return False
        return not lack.pieces[0] or self._holds(lack.pieces, freed)

    def _holds(self, pieces: tuple[int, int], freed: Sequence[Mapping[Key, int]]) -> bool:
        """Whether the NUMA nodes, with what is freed, have room for so many containers of so many CPUs each."""
        number, size = pieces
        rooms = (
            ((own & self._free_cpus).bit_count() + sum(one.get((numa, _CPU), 0) for one in freed)) // size
            for numa, own in self._numa.items()
        )
        return sum(rooms) >= number

    def pairs(self, uids: Sequence[str], lack: Lack) -> Iterator[tuple[str, str]] | None:
        """Return the pairs of these pods that may free enough, those nearest to the beginning first; None where nothing
        of these sums lacks."""
        places = [_missing(place) for place in lack.places] if lack.places is not None else [{}]
        in_all = _missing(lack.in_all)
        if not in_all and not all(places):
            return None
        merged = heapq.merge(*(self._pairs_in(uids, place, in_all) for place in places))
        named = ((uids[pair[1]], uids[pair[0]]) for pair, _ in groupby(merged))
        return (pair for pair in named if not lack.pieces[0] or self.is_met(lack, pair))

    def _pairs_in(self, uids: Sequence[str], place: Mapping[Key, int], in_all: Mapping[Key, int]) -> Iterator[_Pair]:
        """Yield the pairs of positions that may free enough in one place, in order of the later one."""
        lacking = {**place, **in_all}
        useful: list[tuple[int, list[int]]] = []
        for at, uid in enumerate(uids):
            freed = self._freed.get(uid, {})
            # What frees nothing in the place only adds to a single pod that was tried.
            if not any(key in freed for key in place or in_all):
                continue
            sizes = [freed.get(key, 0) for key in lacking]
            for earlier, others in useful:
                if all(a + b >= size for a, b, size in zip(sizes, others, lacking.values(), strict=True)):
                    yield at, earlier
            useful.append((at, sizes))

    def fewest(self, lack: Lack) -> int:
        """Return how many pods must leave at least; more than there are where not even all are enough."""
        places = 0 if lack.places is None else min(map(self._fewest_for, lack.places), default=0)
        return max(places, self._fewest_for(lack.in_all))

    def _fewest_for(self, lacking: Mapping[Key, int]) -> int:
        return max((self._count(key, missing) for key, missing in lacking.items()), default=0)

    def _count(self, key: Key, missing: int) -> int:
        if missing <= 0:
            return 0
        if key not in self._most:
            sizes = sorted((size for one in self._freed.values() if (size := one.get(key))), reverse=True)
            self._most[key] = list(accumulate(sizes))
        most = self._most[key]
        return bisect_left(most, missing) + 1 if most and most[-1] >= missing else len(self._freed) + 1

    def may_return(self, uid: str, other: PodNeeds, lack: Lack) -> bool:
        """Whether a pod that leaves may come back after another one that lacks so much took a place."""
        back = self.lack(other)
        if back.places is None or lack.places is None:
            return True
        freed = self._freed[uid]
        keys = [(numa, _CPU) for numa in self._numa]
        for taken, here in zip(keys, lack.places, strict=True):
            if here[taken] > freed.get(taken, 0):
                continue
            for key, there in zip(keys, back.places, strict=True):
                left = freed.get(key, 0) - there[key]
                # On the NUMA node that the pod takes, nothing of what it lacked is left for the other one.
                if left >= (self._count_of(here, key) if key == taken else 0):
                    return True
        return False

    def _count_of(self, here: Mapping[Key, int], key: Key) -> int:
        """Return the CPUs that a pod takes on a NUMA node where it lacks so many."""
        return here[key] + (self._numa[key[0]] & self._free_cpus).bit_count()

    def orders(self, uids: Sequence[str], lack: Lack) -> list[tuple[str, ...]]:
        """Return these pods in orders of what they would free of what lacks, most first, for each place; those that
        free nothing of it are left out."""
        found: list[tuple[str, ...]] = []
        for lacking in (lack.in_all, *(lack.places or ())):
            for key, missing in lacking.items():
                sizes = {uid: self._freed.get(uid, {}).get(key, 0) for uid in uids} if missing > 0 else {}
                order = tuple(sorted((uid for uid in sizes if sizes[uid]), key=lambda uid: -sizes[uid]))
                if order and order not in found:
                    found.append(order)
        return found


def _missing(sizes: Mapping[Key, int]) -> dict[Key, int]:
    return {key: size for key, size in sizes.items() if size > 0}
