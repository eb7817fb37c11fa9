"""Queries of the page and `kubectl podslice`, on the service's event loop: maps, surveys, pending pods, history.

One query at a time runs here, in slices, so that it cannot delay the scheduler's calls. Long work that needs only
values (ways out, pictures) is left to the caller, who gets them as `crowded` and `NodeLook`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from podslice.cluster.model.eviction import Evictable
from podslice.cluster.model.holds import HeldNode
from podslice.cluster.page.history import SAMPLE_SECONDS, FragmentationHistory, measure_room_now
from podslice.cluster.page.maps import NodeMaps
from podslice.cluster.page.slices import Slices
from podslice.cluster.page.survey import AskedPod, Survey, fit_document, survey
from podslice.cluster.page.ways_out import CrowdedNode
from podslice.cluster.placements import Placements
from podslice.cluster_view.answers import ClusterFragmentation, ClusterNodes, PendingPod, PendingState, PodFit
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.service.clusterobjects import ScheduledPod
from podslice.values.errors import InputError, PodsliceError

MOST_PENDING = 1000
MOST_KINDS = 64
"""Most kinds of pending pods that are surveyed for one list."""
_CROWDED = 4
"""Most nodes by each measure on which ways out are searched."""
_FRESH_SECONDS = 2.0
_MAPS_SECONDS = 0.5
Slicing = Callable[[], Slices]


class PendingKind(NamedTuple):
    """Pods that get equal answers: one of them, and the nodes on which to search ways out."""

    asked: AskedPod
    crowded: tuple[CrowdedNode, ...]


class PendingLook(NamedTuple):
    """Pending pods and their `total`; `stuck` has the kinds of pods that no node takes, by UID."""

    total: int
    items: tuple[PendingPod, ...]
    stuck: Mapping[str, PendingKind]


class FitLook(NamedTuple):
    """The nodes that a pod could go to; where there are none, the nodes on which to search ways out."""

    fit: PodFit
    asked: AskedPod
    crowded: tuple[CrowdedNode, ...]


class NodeLook(NamedTuple):
    """A node's state with the pods on their way to it, and why it takes no pods, empty where it does."""

    rules: NodeRules
    state: NodeState
    problem: str


class ClusterQueries:
    """Queries of one service. `boot` is unique to this process; `now` returns Unix time."""

    def __init__(
        self,
        placing: Placements,
        boot: str,
        *,
        slicing: Slicing = Slices,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._placing, self._slicing, self._clock, self._now = placing, slicing, clock, now
        self._maps = NodeMaps(placing, boot)
        self._drawn_at = -_MAPS_SECONDS
        self.history = FragmentationHistory()
        self._one = asyncio.Lock()
        self._surveys: OrderedDict[Hashable, tuple[float, Survey]] = OrderedDict()
        self.longest = 0.0
        """Seconds of the longest slice of any query so far."""

    async def run(self) -> None:
        """Sample the fragmentation of free CPUs, for ever."""
        while True:
            self.history.take(measure_room_now(self._placing.model), self._now())
            await asyncio.sleep(SAMPLE_SECONDS)

    # Queries

    async def nodes(self, since: str) -> ClusterNodes:
        """Return the maps that changed since a revision."""
        async with self._one:
            if self._clock() - self._drawn_at >= _MAPS_SECONDS:
                await self._run_sliced(self._maps.look)
                self._drawn_at = self._clock()
            return self._maps.since(since)

    async def fragmentation(self) -> ClusterFragmentation:
        """Return the fragmentation of free CPUs, now and before."""
        return self.history.document(measure_room_now(self._placing.model), self._now())

    async def fit(self, asked: AskedPod, uid: str = "") -> FitLook:
        """Return the nodes that a pod could go to; `uid` of one that exists. Raises `PodsliceError` for one that cannot
        be read."""
        async with self._one:
            found = await self._fresh_survey(asked)
            hold = self._placing.model.hold_of(uid)
            crowded = () if found.fitting or hold is not None else self._crowded_nodes(found)
            return FitLook(fit_document(self._placing, found, "" if hold is None else hold.node), asked, crowded)

    async def fit_pending(self, name: str) -> FitLook:
        """Return the nodes that a pending pod could go to; `name` is NAMESPACE/NAME. Raises `InputError` where no pod
        of that name is pending."""
        pod = next((one for one in self._pending() if f"{one.namespace}/{one.name}" == name), None)
        if pod is None:
            raise InputError(f"no pod {name[:300]!r} waits for a node", remedy="podslice cluster pending lists them")
        return await self.fit(_asked_pod(pod), pod.uid)

    async def pending(self, *, stuck: bool) -> PendingLook:
        """Return the pending pods with reasons; with `stuck` also the values for a search of ways out."""
        waiting = sorted(self._pending(), key=lambda pod: (-pod.priority, pod.created, pod.namespace, pod.name))
        shown = waiting[:MOST_PENDING]
        async with self._one:
            return await self._look(shown, len(waiting), stuck=stuck)

    async def node(self, name: str) -> NodeLook:
        """Return one node with its pods. Raises `InputError` for a node of unknown state."""
        replica = self._placing.replicas.get(name)
        node = self._placing.model.verdicts.nodes.get(name)
        if replica is None or replica.state is None or replica.rules is None or node is None:
            raise InputError(f"nothing is known of node {name[:300]!r}", remedy="does its agent report to the service?")
        problem = "" if node.confirmed else "its agent has not confirmed this state"
        return NodeLook(replica.rules, node.with_holds(replica.state), problem)

    def name_of(self, uid: str) -> str:
        """Return NAMESPACE/NAME of a pod, or its UID where the pod is unknown."""
        pod = self._placing.pods.get(uid)
        return uid if pod is None else f"{pod.namespace}/{pod.name}"

    # Pending pods

    def _pending(self) -> Iterable[ScheduledPod]:
        return [pod for pod in self._placing.pods.awake() if self._placing.is_waiting(pod)]

    async def _look(self, waiting: list[ScheduledPod], total: int, *, stuck: bool) -> PendingLook:
        kinds: dict[Hashable, Survey] = {}
        like: Counter[Hashable] = Counter()
        rows: list[tuple[PendingPod, Hashable]] = []
        slices = self._slicing()
        for pod in waiting:
            row, kind = await self._row(pod, kinds)
            like[kind] += 1
            rows.append((row, kind))
            await slices.turn()
        items = tuple(replace(row, like=like[kind] - 1 if kind is not None else 0) for row, kind in rows)
        refused = {kind: one for kind, one in kinds.items() if not one.fitting} if stuck else {}
        crowded: dict[Hashable, PendingKind] = {}
        for kind, one in refused.items():
            crowded[kind] = PendingKind(one.asked, self._crowded_nodes(one))
            await slices.turn()
        return PendingLook(total, items, {row.uid: crowded[kind] for row, kind in rows if kind in crowded})

    async def _row(self, pod: ScheduledPod, kinds: dict[Hashable, Survey]) -> tuple[PendingPod, Hashable]:
        """Return a pod's line in the list, and its kind, None for a pod that cannot be read."""
        hold = self._placing.model.hold_of(pod.uid)
        try:
            asked, kind = _asked_pod(pod), self._placing.kind_of(pod)
            if not self._placing.model.wants_exclusive(asked.pod):
                return _pending_pod(pod, "shared", "it wants nothing for itself"), kind
        except PodsliceError as error:
            return _pending_pod(pod, "unreadable", str(error)), None
        if hold is not None:
            return _pending_pod(pod, "nominated", f"room is kept for it on {hold.node}", hold.node), kind
        if kind not in kinds:
            if len(kinds) >= MOST_KINDS:
                return _pending_pod(pod, "waiting", "too many kinds of pods wait to ask about all"), kind
            kinds[kind] = await self._survey(asked)
        found = kinds[kind]
        return _pending_pod(pod, "waiting" if found.fitting else "refused", found.text), kind

    # Surveys

    async def _fresh_survey(self, asked: AskedPod) -> Survey:
        slices = self._slicing()
        found = await survey(self._placing, asked, slices)
        self.longest = max(self.longest, slices.longest)
        return found

    async def _survey(self, asked: AskedPod) -> Survey:
        """Return a survey, maybe one that is up to `_FRESH_SECONDS` old."""
        signature = self._placing.model.classes.signature(asked.pod)
        key = signature.number, asked.terms
        known = self._surveys.get(key)
        if known is not None and self._clock() - known[0] < _FRESH_SECONDS:
            return known[1]._replace(asked=asked)
        found = await self._fresh_survey(asked)
        self._surveys[key] = self._clock(), found
        self._surveys.move_to_end(key)
        if len(self._surveys) > MOST_KINDS:
            self._surveys.popitem(last=False)
        return found

    async def _run_sliced(self, work: Callable[[Slices], Awaitable[None]]) -> None:
        slices = self._slicing()
        await work(slices)
        self.longest = max(self.longest, slices.longest)

    def _crowded_nodes(self, found: Survey) -> tuple[CrowdedNode, ...]:
        """Return nodes that could take the pod if other pods moved or left: those with most free CPUs on one NUMA node,
        and those with most in all."""
        verdicts = self._placing.model.verdicts
        allowed = found.allowed
        nodes: dict[str, HeldNode] = {}
        for together in (True, False):
            for node in verdicts.refusing_nodes(found.signature, allowed, together=together)[:_CROWDED]:
                nodes[node.name] = node
        return tuple(one for one in map(self._crowded_node, nodes.values()) if one is not None)

    def _crowded_node(self, node: HeldNode) -> CrowdedNode | None:
        replica = self._placing.replicas.get(node.name)
        if replica is None or replica.state is None:
            return None
        state = node.with_holds(replica.state)
        return CrowdedNode(node.name, node.kind.rules, state, self._evictable(node.name))

    def _evictable(self, node: str) -> tuple[Evictable, ...]:
        """Return the pods of a node that could be evicted: no static ones, and none that the API server does not
        have."""
        here = (pod for pod in self._placing.on_node(node) if not pod.mirror)
        return tuple(Evictable(pod.uid, pod.priority, pod.started, pod.deleting) for pod in here)


def _asked_pod(pod: ScheduledPod) -> AskedPod:
    return AskedPod(f"{pod.namespace}/{pod.name}", pod.pod, pod.terms)


def _pending_pod(pod: ScheduledPod, state: PendingState, reason: str, node: str = "") -> PendingPod:
    return PendingPod(
        pod.namespace, pod.name, pod.uid, pod.priority, pod.created, state, node, reason, like=0, way=None
    )
