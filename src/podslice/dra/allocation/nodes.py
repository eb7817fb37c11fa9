"""Claims against many nodes: the nodes that can serve a pod's claims, and the devices used there.

Nodes whose pools look the same and are used the same give the same answers. Answers are remembered by the place of a
device on its node and not by its name, so that they serve all such nodes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from podslice.dra.allocation.pools import DeviceID, LabelledNode, OfferedDevice, Pool, incomplete_pools, pools_of
from podslice.dra.allocation.search import AbleDevices, RequestedClaim, Search
from podslice.dra.allocation.selectors import Matches, SelectorCache
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
    """Remembered results for claims with the same requests: answers by the state of a node, candidates by its shape."""

    answers: dict[int, _Answer]
    candidates: dict[int, AbleDevices]


class NodePools:
    """A node and its pools. `shape` is a number that nodes with equal pools share, from the table `shapes`."""

    def __init__(
        self, node: LabelledNode, pools: Sequence[Pool], foreign: Sequence[Pool], shapes: dict[object, int]
    ) -> None:
        self.node = node
        own = {(pool.driver, pool.name) for pool in pools}
        self.pools = (*pools, *(pool for pool in foreign if (pool.driver, pool.name) not in own))
        self.devices = [offered for pool in pools for offered in pool.devices]
        self.places = {offered.id: place for place, offered in enumerate(self.devices)}
        self.local = all(pool.local for pool in pools)
        self.shape = shapes.setdefault((bool(foreign), tuple(map(_pool_shape, pools))), len(shapes))


def _pool_shape(pool: Pool) -> tuple[object, ...]:
    devices = tuple(
        (one.look, tuple((which, tuple(sorted(amounts.items()))) for which, amounts in one.counters), one.taints,
         tuple(sorted(one.capacity.items())))
        for one in pool.devices
    )  # fmt: skip
    counters = tuple((name, tuple(sorted(amounts.items()))) for name, amounts in sorted(pool.counters.items()))
    return pool.driver, devices, counters, pool.complete, bool(pool.problem)


class ClusterDevices:
    """All nodes and the devices that claims hold there. Errors are those of `Search`."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        nodes: Iterable[LabelledNode],
        classes: Mapping[str, DeviceClass],
        matches: Matches,
    ) -> None:
        listed = list(slices)
        self.selectors = SelectorCache(classes, matches)
        self.usage = DeviceUsage()
        by_node: dict[str, list[ResourceSlice]] = {}
        elsewhere = [one for one in listed if one.spec.node_name is None]
        for one in listed:
            if one.spec.node_name is not None:
                by_node.setdefault(one.spec.node_name, []).append(one)
        found = {node.name: (node, pools_of([*by_node.get(node.name, []), *elsewhere], node)) for node in nodes}
        # Added to every node that does not have the pool itself: v1.36.2 lets them block requests for all devices
        # there.
        broken = incomplete_pools(listed)
        shapes: dict[object, int] = {}
        self.nodes = {name: NodePools(node, pools, broken, shapes) for name, (node, pools) in found.items()}
        self._states: dict[object, int] = {}
        self._state_of: dict[str, int] = {}
        self.refresh()
        self._known: dict[bytes, _KnownAnswers] = {}

    def _compute_state(self, one: NodePools) -> int:
        """Return a number that is equal for nodes that give the same answers; -1 for a node with pools of several
        nodes."""
        if not one.local:
            return -1
        usage = self.usage
        held = tuple(
            (place, offered.id in usage.owned, tuple(sorted(usage.consumed[offered.id].items())))
            for place, offered in enumerate(one.devices)
            if usage.is_used(offered.id)
        )
        return self._states.setdefault((one.shape, held), len(self._states))

    def find(self, node: str, claims: Sequence[RequestedClaim]) -> list[tuple[DeviceGrant, ...]] | None:
        """Return the grants of the claims of one pod on the node, None where they cannot be allocated together
        there."""
        one = self.nodes[node]
        if not one.local:
            return self._search(one, claims)
        known = self._known.setdefault(_signature(claims), _KnownAnswers({}, {}))
        return _name_devices(one, self._answer_for_state(one, self._state_of[node], claims, known))

    def _search(
        self, one: NodePools, claims: Sequence[RequestedClaim], candidates: AbleDevices | None = None
    ) -> list[tuple[DeviceGrant, ...]] | None:
        return Search(one.pools, self.usage, self.selectors, claims, candidates).run()

    def _answer_for_state(
        self, one: NodePools, state: int, claims: Sequence[RequestedClaim], known: _KnownAnswers
    ) -> _Answer:
        """Return the answer that all nodes in this state give."""
        if state not in known.answers:
            found = self._search(one, claims, known.candidates.setdefault(one.shape, {}))
            known.answers[state] = (
                None
                if found is None
                else tuple(tuple(_place_grant(one, grant) for grant in grants) for grants in found)
            )
        return known.answers[state]

    def group_alike(self, among: Container[str] | None = None) -> list[tuple[str, ...]]:
        """Return the nodes (those in `among`), grouped by equal answers."""
        found: dict[object, list[str]] = {}
        for name, state in self._state_of.items():
            if among is None or name in among:
                found.setdefault(name if state < 0 else state, []).append(name)
        return [tuple(names) for names in found.values()]

    def refresh(self) -> None:
        """Recompute the nodes' states after `usage` was changed from outside."""
        self._state_of = {name: self._compute_state(one) for name, one in self.nodes.items()}

    def take(self, node: str, grants: Iterable[DeviceGrant], owner: str) -> None:
        """Book the grants of a claim."""
        for grant in grants:
            self.usage.take(grant, owner)
        self._state_of[node] = self._compute_state(self.nodes[node])

    def nodes_with(self, grants: Iterable[DeviceGrant]) -> frozenset[str]:
        """Return the nodes that have all of these devices."""
        ids = {grant.offered.id for grant in grants}
        return frozenset(name for name, one in self.nodes.items() if ids <= one.places.keys())

    def find_first(
        self, claims: Sequence[RequestedClaim], among: Container[str] | None = None
    ) -> tuple[str, list[tuple[DeviceGrant, ...]]] | None:
        """Return the first node, in order, that serves the claims, and their grants; `among` restricts the nodes."""
        known = self._known.setdefault(_signature(claims), _KnownAnswers({}, {}))
        answers = known.answers
        for name, state in self._state_of.items():
            # `answers` stands for "not known yet", as None is an answer.
            if answers.get(state, answers) is None or (among is not None and name not in among):
                continue
            one = self.nodes[name]
            if one.local:
                found = _name_devices(one, self._answer_for_state(one, state, claims, known))
            else:
                found = self._search(one, claims)
            if found is not None:
                return name, found
        return None


def _name_devices(one: NodePools, answer: _Answer) -> list[tuple[DeviceGrant, ...]] | None:
    """Return an answer with this node's devices."""
    return None if answer is None else [tuple(_make_grant(one, placed) for placed in claim) for claim in answer]


def _signature(claims: Sequence[RequestedClaim]) -> bytes:
    """Return bytes that are equal for claims with the same requests."""
    return msgspec.json.encode([claim.devices for claim in claims], enc_hook=str)


def _place_grant(one: NodePools, grant: DeviceGrant) -> _Placed:
    consumed = None if grant.consumed is None else tuple(sorted(grant.consumed.items()))
    return _Placed(grant.request, one.places[grant.offered.id], consumed, grant.admin)


def _make_grant(one: NodePools, placed: _Placed) -> DeviceGrant:
    offered: OfferedDevice = one.devices[placed.place]
    return DeviceGrant(
        placed.request, offered, None if placed.consumed is None else dict(placed.consumed), placed.admin
    )


def devices_of(cluster: ClusterDevices) -> dict[DeviceID, OfferedDevice]:
    """Return all devices of all nodes."""
    return {offered.id: offered for one in cluster.nodes.values() for offered in one.devices}
