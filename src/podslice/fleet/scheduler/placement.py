"""Placement rules of a pod: node affinity, affinity and anti-affinity between pods, topology spread, tolerations.

The terms of a pod as it is written (KEP-895, KEP-3633, KEP-3243; the documentation's pages on assigning pods to nodes
and on topology spread constraints). `matchLabelKeys` and `mismatchLabelKeys` become requirements of the selector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from podslice.scheduling.selectors import Labels, LabelSelector, NodeSelector, NodeTerm, Requirement
from podslice.scheduling.taints import Toleration, Tolerations
from podslice.values.errors import InputError

_NONE: Labels = {}
NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that every namespace has with its own name."""


class PodTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Pods in one domain of `topology_key`, of the pod's own namespace or of others. Of a namespace only its name is
    known, and the label that has it."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()

    def matches(self, own: PlacementRules, other: PlacementRules) -> bool:
        """Whether the term of a pod like `own` matches the pod `other`."""
        if self.label_selector is None or not self._in_namespace(own, other):
            return False
        selector = self.label_selector.with_requirements(_by_keys(own.labels, self.match_label_keys, "In"))
        return selector.with_requirements(_by_keys(own.labels, self.mismatch_label_keys, "NotIn")).matches(other.labels)

    def _in_namespace(self, own: PlacementRules, other: PlacementRules) -> bool:
        """Whether the term of a pod like `own` includes the namespace of `other`."""
        if not self.namespaces and self.namespace_selector is None:
            return own.namespace == other.namespace
        if other.namespace in self.namespaces:
            return True
        selector = self.namespace_selector
        return selector is not None and selector.matches({NAME_LABEL: other.namespace})


class SpreadConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """Limit of the skew of pods over the domains of `topology_key`."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: tuple[str, ...] = ()

    def counts(self, own: PlacementRules, other: PlacementRules) -> bool:
        """Whether `other` is counted for a pod like `own`."""
        if self.label_selector is None or own.namespace != other.namespace:
            return False
        return self.label_selector.with_requirements(_by_keys(own.labels, self.match_label_keys, "In")).matches(
            other.labels
        )


class Weighted(NamedTuple):
    """A preferred term: weight 1 to 100, negative for anti-affinity."""

    weight: int
    term: PodTerm


class PlacementRules(NamedTuple):
    """All constraints of a pod on where it runs. `node_terms`: one must match, None for any node; `affinity`,
    `anti_affinity`: required terms; `preferred`: both kinds of preferences."""

    namespace: str = "default"
    labels: Labels = _NONE
    node_terms: tuple[NodeTerm, ...] | None = None
    preferred_nodes: tuple[tuple[int, NodeTerm], ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred: tuple[Weighted, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    tolerations: Tolerations = Tolerations()

    @property
    def label_keys(self) -> frozenset[str]:
        """Keys of the labels of other pods that its terms select by, and of its own labels that they are compared
        with."""
        terms = [*self.affinity, *self.anti_affinity, *[one.term for one in self.preferred]]
        rules: list[PodTerm | SpreadConstraint] = [*terms, *self.spread]
        keys = [key for rule in rules for key in rule.match_label_keys]
        keys += [key for term in terms for key in term.mismatch_label_keys]
        selectors = [rule.label_selector for rule in rules if rule.label_selector is not None]
        keys += [key for selector in selectors for key in selector.match_labels]
        return frozenset(keys + [one.key for selector in selectors for one in selector.match_expressions])

    def keep_labels(self, keys: frozenset[str]) -> PlacementRules:
        """Return the rules with only these labels, which are all that any pod selects by; with no keys the namespace
        does not matter either."""
        labels = {key: value for key, value in self.labels.items() if key in keys}
        return self._replace(labels=labels, namespace=self.namespace if keys else "")


PLAIN = PlacementRules()


def _by_keys(labels: Labels, keys: tuple[str, ...], operator: Literal["In", "NotIn"]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, operator, (labels[key],)) for key in keys if key in labels)


# Fields of the manifest


class _Preference(msgspec.Struct, frozen=True):
    weight: int
    preference: NodeTerm


class _NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[_Preference, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _WeightedTerm(msgspec.Struct, frozen=True, rename="camel"):
    weight: int
    pod_affinity_term: PodTerm


class _PodAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required: tuple[PodTerm, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[_WeightedTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity = _NodeAffinity()
    pod_affinity: _PodAffinity = _PodAffinity()
    pod_anti_affinity: _PodAffinity = _PodAffinity()


class _Toleration(Toleration, frozen=True):
    operator: Literal["Exists", "Equal"] = "Equal"


class _PlacementSpec(msgspec.Struct, frozen=True, rename="camel"):
    affinity: _Affinity = _Affinity()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    tolerations: tuple[_Toleration, ...] = ()


def placement_of(pod: Mapping[str, Any]) -> PlacementRules:
    """Return the placement rules of a pod as written. Raises `InputError`."""
    metadata, written = pod.get("metadata") or {}, pod.get("spec") or {}
    known = {name: written[name] for name in _PlacementSpec.__struct_encode_fields__ if written.get(name) is not None}
    try:
        # A null field of a manifest means that it is absent, which msgspec would reject.
        spec = msgspec.convert(_without_nulls(known), _PlacementSpec)
        labels = msgspec.convert(metadata.get("labels") or {}, dict[str, str])
    except msgspec.ValidationError as error:
        raise InputError(str(error), path="spec", remedy="see kubectl explain pod.spec") from None
    nodes, pods, against = spec.affinity.node_affinity, spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    return PlacementRules(
        namespace=str(metadata.get("namespace") or "default"),
        labels=labels,
        node_terms=None if nodes.required is None else nodes.required.node_selector_terms,
        preferred_nodes=tuple((one.weight, one.preference) for one in nodes.preferred),
        affinity=pods.required,
        anti_affinity=against.required,
        preferred=tuple(Weighted(one.weight, one.pod_affinity_term) for one in pods.preferred)
        + tuple(Weighted(-one.weight, one.pod_affinity_term) for one in against.preferred),
        spread=spec.topology_spread_constraints,
        tolerations=Tolerations.of(spec.tolerations),
    )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
