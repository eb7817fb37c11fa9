"""Pods by domain, counted while they come and go, and what the scheduler makes of them: an even spread over domains,
and pods that want to be near others or far from them.

A domain is all nodes with one value of a label. Each rule of a shape (`placement`) reads a column of counts by domain
that is brought up to date with every pod, so that no rule ever looks at all pods. The arithmetic of both plugins of
kube-scheduler is in docs/fleet.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import numpy as np

from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.shapes import FleetShape, NodeTaint
from podslice.fleet.scheduler.loads import Bools, Ints
from podslice.fleet.scheduler.placement import PlacementRules, PodTerm, SpreadConstraint
from podslice.scheduling.node_affinity import Labels
from podslice.scheduling.scoring import MAX_NODE_SCORE

Rows = Any
_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED_AFFINITY_WEIGHT = 1
"""What another pod's required affinity counts for where a pod is scored (upstream's hardPodAffinityWeight)."""
_PLUGIN_WEIGHT = 2
"""Of PodTopologySpread, InterPodAffinity and NodeAffinity."""


@dataclass(frozen=True)
class Domains:
    """The domain of each node by number, -1 for nodes without the label, and how many there are."""

    of: Ints
    count: int


class DomainCount:
    """Pods of some shapes in each domain, on nodes that count."""

    def __init__(self, domains: Domains, nodes: Bools | None) -> None:
        self.domains = domains
        self._nodes = nodes
        self.counts: Ints = np.zeros(domains.count + 1, dtype=np.int64)
        """By domain; the last one is for nodes without, and stays 0."""

    def book(self, node: int, sign: int) -> None:
        """A pod comes or goes."""
        domain = int(self.domains.of[node])
        if domain >= 0 and (self._nodes is None or self._nodes[node]):
            self.counts[domain] += sign

    def on(self, rows: Rows) -> Ints:
        """Pods in the domain of each node, 0 for nodes without one."""
        found: Ints = self.counts[self.domains.of[rows]]
        return found


@dataclass(frozen=True)
class _Spread:
    """A constraint of one shape. `has_all`: nodes with the labels of all constraints of its kind; `eligible`: those of
    them that count."""

    told: SpreadConstraint
    count: DomainCount
    own: int
    has_all: Bools
    eligible: Bools


class _Rules(NamedTuple):
    """What one shape asks of other pods, and they of it."""

    hard: tuple[_Spread, ...] = ()
    soft: tuple[_Spread, ...] = ()
    near: tuple[DomainCount, ...] = ()
    is_first: bool = False
    """It is what it wants to be near of."""
    far: tuple[DomainCount, ...] = ()
    scored: tuple[tuple[int, DomainCount], ...] = ()
    liked: Ints | None = None
    """Weights of the node terms that each node meets."""


class PodDomains:
    """The rules of all shapes of a workload. `constrained`: shapes whose pods may have to wait for other pods.
    `scores`: shapes whose nodes are scored by more than ledgers and taints."""

    def __init__(self, fleet: Fleet, shapes: Sequence[FleetShape]) -> None:
        self._fleet = fleet
        self._placements = [shape.placement for shape in shapes]
        self._shapes = shapes
        self._telling = [
            number for number, one in enumerate(self._placements) if one.near or one.far or one.preferred or one.spread
        ]
        self._eligible: dict[tuple[int, int], Ints] = {}
        self._domains: dict[str, Domains] = {}
        self._counts: dict[tuple[str, tuple[int, ...], bytes], DomainCount] = {}
        self._of_shape: list[list[DomainCount]] = [[] for _ in shapes]
        self.there: Bools = np.array([not node.absent for node in fleet.nodes], dtype=np.bool_)
        self._rules = [self._rules_of(number) for number in range(len(shapes))]
        self.constrained = frozenset(
            number for number, one in enumerate(self._rules) if one.hard or one.near or one.far
        )
        self.scores = frozenset(
            number for number, one in enumerate(self._rules) if one.soft or one.scored or one.liked is not None
        )

    def _domains_of(self, key: str) -> Domains:
        if key not in self._domains:
            numbers: dict[str, int] = {}
            found = [
                numbers.setdefault(node.labels[key], len(numbers)) if key in node.labels else -1
                for node in self._fleet.nodes
            ]
            self._domains[key] = Domains(np.array(found, dtype=np.int64), len(numbers))
        return self._domains[key]

    def _count(self, key: str, counted: Sequence[int], nodes: Bools | None = None) -> DomainCount:
        """The counts of some shapes by domain, one for all rules that ask for the same."""
        name = key, tuple(counted), b"" if nodes is None else nodes.tobytes()
        if name not in self._counts:
            found = self._counts[name] = DomainCount(self._domains_of(key), nodes)
            for shape in counted:
                self._of_shape[shape].append(found)
        return self._counts[name]

    # Rules

    def _rules_of(self, number: int) -> _Rules:
        own = self._placements[number]
        if not self._telling:
            return _Rules(liked=self._liked(own))
        hard = [one for one in own.spread if one.when_unsatisfiable == "DoNotSchedule"]
        soft = [one for one in own.spread if one.when_unsatisfiable == "ScheduleAnyway"]
        every = range(len(self._placements))
        together = (
            [other for other in every if all(term.matches(own, self._placements[other]) for term in own.near)]
            if own.near
            else []
        )
        return _Rules(
            self._spreads(number, hard),
            self._spreads(number, soft),
            tuple(self._count(term.topology_key, together) for term in own.near),
            number in together,
            self._far(number),
            self._scored(number),
            self._liked(own),
        )

    def _meant(self, own: PlacementRules, term: PodTerm) -> DomainCount | None:
        """Pods that a term speaks of."""
        counted = [number for number, other in enumerate(self._placements) if term.matches(own, other)]
        return self._count(term.topology_key, counted) if counted else None

    def _far(self, number: int) -> tuple[DomainCount, ...]:
        """Pods that it wants to be far from, and pods that want to be far from it."""
        own = self._placements[number]
        found = [one for term in own.far if (one := self._meant(own, term))]
        for other in self._telling:
            placement = self._placements[other]
            found += [self._count(term.topology_key, [other]) for term in placement.far if term.matches(placement, own)]
        return tuple(dict.fromkeys(found))

    def _scored(self, number: int) -> tuple[tuple[int, DomainCount], ...]:
        own = self._placements[number]
        found = [(weight, one) for weight, term in own.preferred if (one := self._meant(own, term))]
        for other in self._telling:
            placement = self._placements[other]
            theirs = [*placement.preferred, *[(_REQUIRED_AFFINITY_WEIGHT, term) for term in placement.near]]
            found += [
                (weight, self._count(term.topology_key, [other]))
                for weight, term in theirs
                if term.matches(placement, own)
            ]
        return tuple(found)

    def _liked(self, own: PlacementRules) -> Ints | None:
        if not own.preferred_nodes:
            return None
        return np.array(
            [
                sum(weight for weight, term in own.preferred_nodes if term.matches(node.labels, node.name))
                for node in self._fleet.nodes
            ],
            dtype=np.int64,
        )

    def _spreads(self, number: int, told: Sequence[SpreadConstraint]) -> tuple[_Spread, ...]:
        own = self._placements[number]
        has_all: Bools = np.ones(len(self._fleet.nodes), dtype=np.bool_)
        for one in told:
            has_all &= self._domains_of(one.topology_key).of >= 0
        made = []
        for one in told:
            counted = [other for other, placement in enumerate(self._placements) if one.counts(own, placement)]
            eligible = has_all & self._counting_nodes(number, one)
            count = self._count(one.topology_key, counted, eligible)
            made.append(_Spread(one, count, int(one.counts(own, own)), has_all, eligible))
        return tuple(made)

    def _counting_nodes(self, number: int, told: SpreadConstraint) -> Bools:
        """Nodes that the policies of a constraint leave in."""
        shape = self._shapes[number]
        found: Bools = np.ones(len(self._fleet.nodes), dtype=np.bool_)
        for place, node in enumerate(self._fleet.nodes):
            if told.node_affinity_policy == "Honor":
                found[place] &= selects(shape, node.labels, node.name)
            if told.node_taints_policy == "Honor":
                found[place] &= all(tolerates(shape, taint) for taint in node.taints)
        return found

    # What goes on

    def book(self, node: int, shape: int, sign: int) -> None:
        """A pod comes to a node or leaves it."""
        for count in self._of_shape[shape]:
            count.book(node, sign)

    def passes(self, shape: int, rows: Rows) -> Bools | None:
        """Which nodes PodTopologySpread and InterPodAffinity let pass; None for all of them."""
        if shape not in self.constrained:
            return None
        rules = self._rules[shape]
        found: Bools = np.ones(len(self.there[rows]), dtype=np.bool_)
        for place, one in enumerate(rules.hard):
            skew = one.count.on(rows) + one.own - self._fewest(one, (shape, place))
            found &= one.has_all[rows] & (skew <= one.told.max_skew)
        for count in rules.far:
            found &= count.on(rows) == 0
        if rules.near:
            found &= self._near(rules, rows)
        return found

    def _fewest(self, one: _Spread, name: tuple[int, int]) -> int:
        """The fewest pods in a domain that counts, 0 where there are too few domains."""
        domains = self._eligible.get(name)
        if domains is None:
            domains = self._eligible[name] = np.unique(one.count.domains.of[one.eligible & self.there])
        if len(domains) < (one.told.min_domains or 1):
            return 0
        return int(one.count.counts[domains].min())

    def _near(self, rules: _Rules, rows: Rows) -> Bools:
        """Nodes with all labels, near such pods; the first of a group may go anywhere."""
        found: Bools = np.ones(len(self.there[rows]), dtype=np.bool_)
        nobody = not any(count.counts.any() for count in rules.near)
        for count in rules.near:
            found &= count.domains.of[rows] >= 0
            if not (nobody and rules.is_first):
                found &= count.on(rows) > 0
        return found

    def scores_of(self, shape: int, nodes: Ints) -> Ints:
        """What the plugins add to the scores of nodes that all let pass."""
        rules = self._rules[shape]
        total: Ints = np.zeros(len(nodes), dtype=np.int64)
        if rules.liked is not None and len(nodes):
            liked = rules.liked[nodes]
            total += _PLUGIN_WEIGHT * (liked * MAX_NODE_SCORE // max(int(liked.max()), 1))
        if rules.soft:
            total += _PLUGIN_WEIGHT * _evenness(rules.soft, nodes)
        if rules.scored:
            total += _PLUGIN_WEIGHT * _nearness(rules.scored, nodes)
        return total

    def come(self, node: int, *, there: bool) -> None:
        """A node is there from now on, or is not."""
        self.there[node] = there
        self._eligible.clear()


def _evenness(soft: Sequence[_Spread], nodes: Ints) -> Ints:
    """PodTopologySpread's score: fewer pods in a domain are better, domains that are many count for more."""
    counted = soft[0].has_all[nodes]
    raw = np.zeros(len(nodes), dtype=np.float64)
    for one in soft:
        domains = one.count.domains.of[nodes]
        is_host = one.told.topology_key == _HOSTNAME
        size = int(counted.sum()) if is_host else len(np.unique(domains[counted]))
        raw += one.count.on(nodes) * log(size + 2) + (one.told.max_skew - 1)
    scores = np.floor(raw + 0.5).astype(np.int64)
    if not counted.any():
        return np.zeros(len(nodes), dtype=np.int64)
    most, least = int(scores[counted].max()), int(scores[counted].min())
    if not most:
        return np.where(counted, MAX_NODE_SCORE, 0)
    return np.where(counted, MAX_NODE_SCORE * (most + least - scores) // most, 0)


def _nearness(scored: Sequence[tuple[int, DomainCount]], nodes: Ints) -> Ints:
    """InterPodAffinity's score: the sum of weights of pods in the domain, from the least sum 0 to the most 100."""
    raw: Ints = np.zeros(len(nodes), dtype=np.int64)
    if not len(nodes):
        return raw
    for weight, count in scored:
        raw += weight * count.on(nodes)
    least, most = int(raw.min()), int(raw.max())
    if most <= least:
        return np.zeros(len(nodes), dtype=np.int64)
    return (MAX_NODE_SCORE * ((raw - least) / (most - least))).astype(np.int64)


def selects(shape: FleetShape, labels: Labels, name: str) -> bool:
    """Whether the pod's node selector and required node affinity let a node pass."""
    selector = shape.pod.spec.node_selector or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = shape.placement.node_terms
    return terms is None or any(term.matches(labels, name) for term in terms)


def tolerates(shape: FleetShape, taint: NodeTaint) -> bool:
    """Whether a pod may come to a node with a taint."""
    if taint.effect == "PreferNoSchedule":
        return True
    return any(one.tolerates(taint) for one in shape.tolerations)
