"""Pods counted by topology domain, and what PodTopologySpread, InterPodAffinity and NodeAffinity make of the counts.

A domain is the set of nodes with one value of a label. Each rule of a shape (`placement`) reads a column of counts by
domain that is updated with every pod, so that no rule ever looks at all pods. The arithmetic of
the plugins is in docs/development/fleet-engine.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import numpy as np

from podslice.fleet.engine.nodes import Fleet
from podslice.fleet.engine.shapes import FleetShape
from podslice.fleet.scheduler.loads import Bools, Ints
from podslice.fleet.scheduler.placement import PlacementRules, PodTerm, SpreadConstraint
from podslice.scheduling.scoring import MAX_NODE_SCORE
from podslice.scheduling.selectors import Labels, has_labels
from podslice.scheduling.taints import Taint

Rows = Any
_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED_AFFINITY_WEIGHT = 1
"""Weight of another pod's required affinity in the score of a pod (upstream's hardPodAffinityWeight)."""
_PLUGIN_WEIGHT = 2
"""Weight of the scores of PodTopologySpread, InterPodAffinity and NodeAffinity in the default profile."""


@dataclass(frozen=True)
class Domains:
    """`of`: the domain of each node by number, -1 for nodes without the label; `count`: the number of domains."""

    of: Ints
    count: int


class DomainCount:
    """Number of pods of some shapes in each domain, on the nodes in mask `nodes` (None: on all nodes)."""

    def __init__(self, domains: Domains, nodes: Bools | None) -> None:
        self.domains = domains
        self._nodes = nodes
        self.counts: Ints = np.zeros(domains.count + 1, dtype=np.int64)
        """Pods by domain. The last entry is for nodes without the label and stays 0, so that index -1 reads it."""

    def book(self, node: int, sign: int) -> None:
        """Add a pod on a node (`sign` 1), or remove it (-1)."""
        domain = int(self.domains.of[node])
        if domain >= 0 and (self._nodes is None or self._nodes[node]):
            self.counts[domain] += sign

    def counts_on(self, rows: Rows) -> Ints:
        """Return the pods in the domain of each node, 0 for nodes without the label."""
        found: Ints = self.counts[self.domains.of[rows]]
        return found


@dataclass(frozen=True)
class _Spread:
    """A topology spread constraint of one shape. `own`: 1 if the pod counts itself; `has_all`: mask of nodes with the
    labels of all constraints with the same `whenUnsatisfiable`; `eligible`: those of them whose pods count."""

    constraint: SpreadConstraint
    count: DomainCount
    own: int
    has_all: Bools
    eligible: Bools


class _Rules(NamedTuple):
    """The rules of one shape for other pods, and theirs for it.

    - `hard`, `soft`: spread constraints with DoNotSchedule and ScheduleAnyway.
    - `affinity`: counts of the pods of required affinity.
    - `anti_affinity`: counts of the pods of required anti-affinity, in both directions.
    - `scored`: weights and counts of preferred affinity, in both directions.
    """

    hard: tuple[_Spread, ...] = ()
    soft: tuple[_Spread, ...] = ()
    affinity: tuple[DomainCount, ...] = ()
    selects_itself: bool = False
    """The shape matches its own required affinity."""
    anti_affinity: tuple[DomainCount, ...] = ()
    scored: tuple[tuple[int, DomainCount], ...] = ()
    node_scores: Ints | None = None
    """Sum of the weights of preferred node affinity terms that each node matches."""


class PodDomains:
    """The rules of all shapes of a workload. `constrained`: shapes whose pods may have to wait for other pods;
    `scores`: shapes whose nodes are scored by more than ledgers and taints; `present`: mask of nodes that exist now."""

    def __init__(self, fleet: Fleet, shapes: Sequence[FleetShape]) -> None:
        self._fleet = fleet
        self._placements = [shape.placement for shape in shapes]
        self._shapes = shapes
        self._with_rules = [
            number
            for number, one in enumerate(self._placements)
            if one.affinity or one.anti_affinity or one.preferred or one.spread
        ]
        self._eligible: dict[tuple[int, int], Ints] = {}
        self._domains: dict[str, Domains] = {}
        self._counts: dict[tuple[str, tuple[int, ...], bytes], DomainCount] = {}
        self._of_shape: list[list[DomainCount]] = [[] for _ in shapes]
        self.present: Bools = np.array([not node.absent for node in fleet.nodes], dtype=np.bool_)
        self._rules = [self._make_rules(number) for number in range(len(shapes))]
        self.constrained = frozenset(
            number for number, one in enumerate(self._rules) if one.hard or one.affinity or one.anti_affinity
        )
        self.scores = frozenset(
            number for number, one in enumerate(self._rules) if one.soft or one.scored or one.node_scores is not None
        )

    def _domains_of(self, key: str) -> Domains:
        """Return the domains of a label key."""
        if key not in self._domains:
            numbers: dict[str, int] = {}
            found = [
                numbers.setdefault(node.labels[key], len(numbers)) if key in node.labels else -1
                for node in self._fleet.nodes
            ]
            self._domains[key] = Domains(np.array(found, dtype=np.int64), len(numbers))
        return self._domains[key]

    def _count(self, key: str, counted: Sequence[int], nodes: Bools | None = None) -> DomainCount:
        """Return the counts of some shapes by domain, shared by all rules that ask for the same."""
        # Hundreds of shapes often have the same few rules; each count is updated with every pod, so they are shared.
        name = key, tuple(counted), b"" if nodes is None else nodes.tobytes()
        if name not in self._counts:
            found = self._counts[name] = DomainCount(self._domains_of(key), nodes)
            for shape in counted:
                self._of_shape[shape].append(found)
        return self._counts[name]

    # Rules

    def _make_rules(self, number: int) -> _Rules:
        """Return the rules of the shape with this number."""
        own = self._placements[number]
        # Without any rule in the workload all counts are skipped: most traces have none.
        if not self._with_rules:
            return _Rules(node_scores=self._score_nodes(own))
        hard = [one for one in own.spread if one.when_unsatisfiable == "DoNotSchedule"]
        soft = [one for one in own.spread if one.when_unsatisfiable == "ScheduleAnyway"]
        every = range(len(self._placements))
        together = (
            [other for other in every if all(term.matches(own, self._placements[other]) for term in own.affinity)]
            if own.affinity
            else []
        )
        return _Rules(
            self._make_spreads(number, hard),
            self._make_spreads(number, soft),
            tuple(self._count(term.topology_key, together) for term in own.affinity),
            number in together,
            self._count_repelling(number),
            self._count_preferred(number),
            self._score_nodes(own),
        )

    def _count_matching(self, own: PlacementRules, term: PodTerm) -> DomainCount | None:
        """Return the counts of the pods that a term matches; None where it matches no shape."""
        counted = [number for number, other in enumerate(self._placements) if term.matches(own, other)]
        return self._count(term.topology_key, counted) if counted else None

    def _count_repelling(self, number: int) -> tuple[DomainCount, ...]:
        """Return the counts of pods that this shape's anti-affinity matches, and of pods whose anti-affinity matches
        this shape."""
        own = self._placements[number]
        found = [one for term in own.anti_affinity if (one := self._count_matching(own, term))]
        for other in self._with_rules:
            placement = self._placements[other]
            # Required anti-affinity is symmetric upstream: the terms of running pods keep this one away too.
            found += [
                self._count(term.topology_key, [other])
                for term in placement.anti_affinity
                if term.matches(placement, own)
            ]
        return tuple(dict.fromkeys(found))

    def _count_preferred(self, number: int) -> tuple[tuple[int, DomainCount], ...]:
        """Return weights and counts for the InterPodAffinity score, of this shape's preferences and of other pods'
        terms that match it."""
        own = self._placements[number]
        found = [(weight, one) for weight, term in own.preferred if (one := self._count_matching(own, term))]
        for other in self._with_rules:
            placement = self._placements[other]
            # Upstream scores required affinity of running pods too, with a weight of its own.
            theirs = [*placement.preferred, *[(_REQUIRED_AFFINITY_WEIGHT, term) for term in placement.affinity]]
            found += [
                (weight, self._count(term.topology_key, [other]))
                for weight, term in theirs
                if term.matches(placement, own)
            ]
        return tuple(found)

    def _score_nodes(self, own: PlacementRules) -> Ints | None:
        """Return the sum of the weights of matching preferred node affinity terms by node; None where the shape has
        none."""
        if not own.preferred_nodes:
            return None
        return np.array(
            [
                sum(weight for weight, term in own.preferred_nodes if term.matches(node.labels, node.name))
                for node in self._fleet.nodes
            ],
            dtype=np.int64,
        )

    def _make_spreads(self, number: int, constraints: Sequence[SpreadConstraint]) -> tuple[_Spread, ...]:
        """Return these spread constraints with their counts."""
        own = self._placements[number]
        has_all: Bools = np.ones(len(self._fleet.nodes), dtype=np.bool_)
        for one in constraints:
            has_all &= self._domains_of(one.topology_key).of >= 0
        made = []
        for one in constraints:
            counted = [other for other, placement in enumerate(self._placements) if one.counts(own, placement)]
            eligible = has_all & self._nodes_in_policies(number, one)
            count = self._count(one.topology_key, counted, eligible)
            made.append(_Spread(one, count, int(one.counts(own, own)), has_all, eligible))
        return tuple(made)

    def _nodes_in_policies(self, number: int, constraint: SpreadConstraint) -> Bools:
        """Return the mask of nodes that the constraint's nodeAffinityPolicy and nodeTaintsPolicy include (KEP-3094)."""
        shape = self._shapes[number]
        found: Bools = np.ones(len(self._fleet.nodes), dtype=np.bool_)
        for place, node in enumerate(self._fleet.nodes):
            if constraint.node_affinity_policy == "Honor":
                found[place] &= matches_node_affinity(shape, node.labels, node.name)
            if constraint.node_taints_policy == "Honor":
                found[place] &= all(tolerates(shape, taint) for taint in node.taints)
        return found

    # What goes on

    def book(self, node: int, shape: int, sign: int) -> None:
        """Add a pod of a shape on a node (`sign` 1), or remove it (-1)."""
        for count in self._of_shape[shape]:
            count.book(node, sign)

    def filter_nodes(self, shape: int, rows: Rows) -> Bools | None:
        """Return the mask of nodes that the filters of PodTopologySpread and InterPodAffinity pass; None when all
        pass."""
        if shape not in self.constrained:
            return None
        rules = self._rules[shape]
        found: Bools = np.ones(len(self.present[rows]), dtype=np.bool_)
        for place, one in enumerate(rules.hard):
            # The pod itself counts on the node where it would be, if its constraint selects it.
            skew = one.count.counts_on(rows) + one.own - self._global_minimum(one, (shape, place))
            found &= one.has_all[rows] & (skew <= one.constraint.max_skew)
        for count in rules.anti_affinity:
            found &= count.counts_on(rows) == 0
        if rules.affinity:
            found &= self._meets_affinity(rules, rows)
        return found

    def _global_minimum(self, one: _Spread, name: tuple[int, int]) -> int:
        """Return the fewest pods in an eligible domain, 0 where there are fewer domains than minDomains (upstream's
        global minimum, KEP-3022)."""
        domains = self._eligible.get(name)
        if domains is None:
            domains = self._eligible[name] = np.unique(one.count.domains.of[one.eligible & self.present])
        if len(domains) < (one.constraint.min_domains or 1):
            return 0
        return int(one.count.counts[domains].min())

    def _meets_affinity(self, rules: _Rules, rows: Rows) -> Bools:
        """Return the mask of nodes that have all labels of the required affinity and such pods in their domains."""
        found: Bools = np.ones(len(self.present[rows]), dtype=np.bool_)
        # The first pod of a group that selects itself may go to any node with the labels, or the group could never
        # start.
        none_yet = not any(count.counts.any() for count in rules.affinity)
        for count in rules.affinity:
            found &= count.domains.of[rows] >= 0
            if not (none_yet and rules.selects_itself):
                found &= count.counts_on(rows) > 0
        return found

    def scores_of(self, shape: int, nodes: Ints) -> Ints:
        """Return what the plugins add to the scores of nodes that passed the filters."""
        rules = self._rules[shape]
        total: Ints = np.zeros(len(nodes), dtype=np.int64)
        if rules.node_scores is not None and len(nodes):
            node_scores = rules.node_scores[nodes]
            # Scaled to the best node that passed the filters, not to the best of the cluster, as upstream normalizes.
            total += _PLUGIN_WEIGHT * (node_scores * MAX_NODE_SCORE // max(int(node_scores.max()), 1))
        if rules.soft:
            total += _PLUGIN_WEIGHT * _spread_scores(rules.soft, nodes)
        if rules.scored:
            total += _PLUGIN_WEIGHT * _affinity_scores(rules.scored, nodes)
        return total

    def set_present(self, node: int, *, present: bool) -> None:
        """Mark a node as present or absent."""
        self.present[node] = present
        # Domains without any present node do not count for the global minimum.
        self._eligible.clear()


def _spread_scores(soft: Sequence[_Spread], nodes: Ints) -> Ints:
    """Return PodTopologySpread's scores: fewer pods in a domain are better, and constraints with many domains weigh
    more."""
    counted = soft[0].has_all[nodes]
    raw = np.zeros(len(nodes), dtype=np.float64)
    for one in soft:
        domains = one.count.domains.of[nodes]
        is_host = one.constraint.topology_key == _HOSTNAME
        # Upstream counts the filtered nodes for the hostname key, and distinct values for any other one.
        size = int(counted.sum()) if is_host else len(np.unique(domains[counted]))
        raw += one.count.counts_on(nodes) * log(size + 2) + (one.constraint.max_skew - 1)
    # Go's math.Round of a number that is not negative.
    scores = np.floor(raw + 0.5).astype(np.int64)
    if not counted.any():
        return np.zeros(len(nodes), dtype=np.int64)
    most, least = int(scores[counted].max()), int(scores[counted].min())
    if not most:
        return np.where(counted, MAX_NODE_SCORE, 0)
    return np.where(counted, MAX_NODE_SCORE * (most + least - scores) // most, 0)


def _affinity_scores(scored: Sequence[tuple[int, DomainCount]], nodes: Ints) -> Ints:
    """Return InterPodAffinity's scores: the sum of the weights of pods in each node's domains, scaled so that the least
    is 0 and the most 100."""
    raw: Ints = np.zeros(len(nodes), dtype=np.int64)
    if not len(nodes):
        return raw
    for weight, count in scored:
        raw += weight * count.counts_on(nodes)
    least, most = int(raw.min()), int(raw.max())
    # Equal sums say nothing about the nodes; upstream then gives all of them 0.
    if most <= least:
        return np.zeros(len(nodes), dtype=np.int64)
    return (MAX_NODE_SCORE * ((raw - least) / (most - least))).astype(np.int64)


def matches_node_affinity(shape: FleetShape, labels: Labels, name: str) -> bool:
    """Whether a node matches the pod's node selector and required node affinity."""
    if not has_labels(labels, (shape.pod.spec.node_selector or {}).items()):
        return False
    terms = shape.placement.node_terms
    return terms is None or any(term.matches(labels, name) for term in terms)


def tolerates(shape: FleetShape, taint: Taint) -> bool:
    """Whether the pod tolerates a taint; PreferNoSchedule never keeps a pod away."""
    return not taint.excludes or shape.placement.tolerations.tolerate(taint)
