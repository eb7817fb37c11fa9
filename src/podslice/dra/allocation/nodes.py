"""Claims against many nodes: which nodes can serve a pod's claims, and with which devices.

Nodes whose pools look the same and are used the same give the same answers, which are looked up by the place of a
device and not by its name.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from podslice.dra.allocation.pools import DeviceID, LabelledNode, OfferedDevice, Pool, incomplete_pools, pools_of
from podslice.dra.allocation.search import AbleDevices, Search, WantedClaim
from podslice.dra.allocation.selecting import Matches, Selecting
from podslice.dra.allocation.usage import DeviceGrant, DeviceUsage
from podslice.dra.objects import DeviceClass, ResourceSlice


class _Placed(NamedTuple):
    """A grant by the place of its device on the node."""

    request: str
    place: int
    consumed: tuple[tuple[str, int], ...] | None
    admin: bool


_Answer = tuple[tuple[_Placed, ...], ...] | None


class _KnownAnswers(NamedTuple):
    """Of claims that ask for the same: answers by the state of a node, candidates by its shape."""

    answers: dict[int, _Answer]
    candidates: dict[int, AbleDevices]


class NodePools:
    """One node and its pools. `shape` is a number that nodes with equal pools share, of those in `shapes`."""

    def __init__(
        self, node: LabelledNode, pools: Sequence[Pool], foreign: Sequence[Pool], shapes: dict[object, int]
    ) -> None:
        self.node = node
        own = {(pool.driver, pool.name) for pool in pools}
        self.pools = (*pools, *(pool for pool in foreign if (pool.driver, pool.name) not in own))
        self.devices = [offered for pool in pools for offered in pool.devices]
        self.places = {offered.id: place for place, offered in enumerate(self.devices)}
        self.local = all(pool.local for pool in pools)
        self.shape = shapes.setdefault((bool(foreign), tuple(map(_shape, pools))), len(shapes))


def _shape(pool: Pool) -> tuple[object, ...]:
    devices = tuple(
        (one.look, tuple((which, tuple(sorted(amounts.items()))) for which, amounts in one.counters), one.taints,
         tuple(sorted(one.capacity.items())))
        for one in pool.devices
    )  # fmt: skip
    counters = tuple((name, tuple(sorted(amounts.items()))) for name, amounts in sorted(pool.counters.items()))
    return pool.driver, devices, counters, pool.complete, bool(pool.problem)


class ClusterDevices:
    """All nodes and what claims hold there. Raises nothing of its own; see `Search`."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        nodes: Iterable[LabelledNode],
        classes: Mapping[str, DeviceClass],
        matches: Matches,
    ) -> None:
        listed = list(slices)
        self.selecting = Selecting(classes, matches)
        self.usage = DeviceUsage()
        by_node: dict[str, list[ResourceSlice]] = {}
        elsewhere = [one for one in listed if one.spec.node_name is None]
        for one in listed:
            if one.spec.node_name is not None:
                by_node.setdefault(one.spec.node_name, []).append(one)
        found = {node.name: (node, pools_of([*by_node.get(node.name, []), *elsewhere], node)) for node in nodes}
        broken = incomplete_pools(listed)
        shapes: dict[object, int] = {}
        self.nodes = {name: NodePools(node, pools, broken, shapes) for name, (node, pools) in found.items()}
        self._states: dict[object, int] = {}
        self._state_of: dict[str, int] = {}
        self.refresh()
        self._known: dict[bytes, _KnownAnswers] = {}

    def _state(self, one: NodePools) -> int:
        """Equal for nodes that give the same answers."""
        if not one.local:
            return -1
        usage = self.usage
        held = tuple(
            (place, offered.id in usage.owned, tuple(sorted(usage.consumed[offered.id].items())))
            for place, offered in enumerate(one.devices)
            if usage.used(offered.id)
        )
        return self._states.setdefault((one.shape, held), len(self._states))

    def find(self, node: str, claims: Sequence[WantedClaim]) -> list[tuple[DeviceGrant, ...]] | None:
        """What the claims of one pod get on the node, None where they cannot be had together there."""
        one = self.nodes[node]
        if not one.local:
            return self._search(one, claims)
        known = self._known.setdefault(_signature(claims), _KnownAnswers({}, {}))
        return _named(one, self._answer(one, self._state_of[node], claims, known))

    def _search(
        self, one: NodePools, claims: Sequence[WantedClaim], candidates: AbleDevices | None = None
    ) -> list[tuple[DeviceGrant, ...]] | None:
        return Search(one.pools, self.usage, self.selecting, claims, candidates).run()

    def _answer(self, one: NodePools, state: int, claims: Sequence[WantedClaim], known: _KnownAnswers) -> _Answer:
        """The answer of all nodes in this state."""
        if state not in known.answers:
            found = self._search(one, claims, known.candidates.setdefault(one.shape, {}))
            known.answers[state] = (
                None if found is None else tuple(tuple(_placed(one, grant) for grant in grants) for grants in found)
            )
        return known.answers[state]

    def alike(self, among: Container[str] | None = None) -> list[tuple[str, ...]]:
        """The nodes that count, those together that give the same answers."""
        found: dict[object, list[str]] = {}
        for name, state in self._state_of.items():
            if among is None or name in among:
                found.setdefault(name if state < 0 else state, []).append(name)
        return [tuple(names) for names in found.values()]

    def refresh(self) -> None:
        """After `usage` was changed from outside."""
        self._state_of = {name: self._state(one) for name, one in self.nodes.items()}

    def take(self, node: str, grants: Iterable[DeviceGrant], owner: str) -> None:
        """Book what a claim gets."""
        for grant in grants:
            self.usage.take(grant, owner)
        self._state_of[node] = self._state(self.nodes[node])

    def usable_on(self, grants: Iterable[DeviceGrant]) -> frozenset[str]:
        """The nodes on which all of these devices are."""
        ids = {grant.offered.id for grant in grants}
        return frozenset(name for name, one in self.nodes.items() if ids <= one.places.keys())

    def first(
        self, claims: Sequence[WantedClaim], among: Container[str] | None = None
    ) -> tuple[str, list[tuple[DeviceGrant, ...]]] | None:
        """The first node, in order, that serves them, and what they get there; `among`: the only ones that count."""
        known = self._known.setdefault(_signature(claims), _KnownAnswers({}, {}))
        answers = known.answers
        for name, state in self._state_of.items():
            if answers.get(state, answers) is None or (among is not None and name not in among):
                continue
            one = self.nodes[name]
            if one.local:
                found = _named(one, self._answer(one, state, claims, known))
            else:
                found = self._search(one, claims)
            if found is not None:
                return name, found
        return None


def _named(one: NodePools, answer: _Answer) -> list[tuple[DeviceGrant, ...]] | None:
    """An answer with this node's devices."""
    return None if answer is None else [tuple(_grant(one, placed) for placed in claim) for claim in answer]


def _signature(claims: Sequence[WantedClaim]) -> bytes:
    """Equal for claims that ask for the same."""
    return msgspec.json.encode([claim.devices for claim in claims], enc_hook=str)


def _placed(one: NodePools, grant: DeviceGrant) -> _Placed:
    consumed = None if grant.consumed is None else tuple(sorted(grant.consumed.items()))
    return _Placed(grant.request, one.places[grant.offered.id], consumed, grant.admin)


def _grant(one: NodePools, placed: _Placed) -> DeviceGrant:
    offered: OfferedDevice = one.devices[placed.place]
    return DeviceGrant(
        placed.request, offered, None if placed.consumed is None else dict(placed.consumed), placed.admin
    )


def devices_of(cluster: ClusterDevices) -> dict[DeviceID, OfferedDevice]:
    """All devices of all nodes."""
    return {offered.id: offered for one in cluster.nodes.values() for offered in one.devices}
