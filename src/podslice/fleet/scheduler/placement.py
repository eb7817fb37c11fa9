"""Where a pod wants to be, by labels: node affinity, other pods near it or far from it, and an even spread.

The terms of a pod as it is written (KEP-895, KEP-3633, KEP-3243; the documentation's pages on assigning pods to nodes
and on topology spread constraints). `matchLabelKeys` and `mismatchLabelKeys` become requirements of the selector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from podslice.scheduling.node_affinity import Labels, NodeTerm, Requirement
from podslice.values.errors import InputError

_NONE: Labels = {}
NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that every namespace has."""


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """A label selector; an empty one matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """True for labels that meet all of it."""
        plain = all(labels.get(key) == value for key, value in self.match_labels.items())
        return plain and all(one.met_by(labels) for one in self.match_expressions)

    def also(self, added: tuple[Requirement, ...]) -> Selector:
        """With more requirements."""
        return Selector(self.match_labels, (*self.match_expressions, *added)) if added else self


class PodTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Pods in one domain of `topology_key`: those of the pod's own namespace, or of other ones. Of namespaces only the
    name is known, and the label that tells it."""

    topology_key: str
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()

    def matches(self, own: PlacementRules, other: PlacementRules) -> bool:
        """True when `other` is one of the pods that a pod like `own` means."""
        if self.label_selector is None or not self._in_namespace(own, other):
            return False
        selector = self.label_selector.also(_by_keys(own.labels, self.match_label_keys, "In"))
        return selector.also(_by_keys(own.labels, self.mismatch_label_keys, "NotIn")).matches(other.labels)

    def _in_namespace(self, own: PlacementRules, other: PlacementRules) -> bool:
        if not self.namespaces and self.namespace_selector is None:
            return own.namespace == other.namespace
        if other.namespace in self.namespaces:
            return True
        selector = self.namespace_selector
        return selector is not None and selector.matches({NAME_LABEL: other.namespace})


class SpreadConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """How unevenly pods may be spread over the domains of `topology_key`."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: Selector | None = None
    min_domains: int | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: tuple[str, ...] = ()

    def counts(self, own: PlacementRules, other: PlacementRules) -> bool:
        """True when `other` counts for a pod like `own`."""
        if self.label_selector is None or own.namespace != other.namespace:
            return False
        return self.label_selector.also(_by_keys(own.labels, self.match_label_keys, "In")).matches(other.labels)


class Weighted(NamedTuple):
    """A preference: 1 to 100, less than nothing for pods that should be elsewhere."""

    weight: int
    term: PodTerm


class PlacementRules(NamedTuple):
    """All of a pod that says where it wants to be. `node_terms`: one must match, None for any node."""

    namespace: str = "default"
    labels: Labels = _NONE
    node_terms: tuple[NodeTerm, ...] | None = None
    preferred_nodes: tuple[tuple[int, NodeTerm], ...] = ()
    near: tuple[PodTerm, ...] = ()
    far: tuple[PodTerm, ...] = ()
    preferred: tuple[Weighted, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()

    @property
    def label_keys(self) -> frozenset[str]:
        """Labels of other pods that it asks for, and its own that it compares them with."""
        terms = [*self.near, *self.far, *[one.term for one in self.preferred]]
        rules: list[PodTerm | SpreadConstraint] = [*terms, *self.spread]
        keys = [key for rule in rules for key in rule.match_label_keys]
        keys += [key for term in terms for key in term.mismatch_label_keys]
        selectors = [rule.label_selector for rule in rules if rule.label_selector is not None]
        keys += [key for selector in selectors for key in selector.match_labels]
        return frozenset(keys + [one.key for selector in selectors for one in selector.match_expressions])

    def seen_by(self, keys: frozenset[str]) -> PlacementRules:
        """With no other labels than these, which is all that anybody asks for; without any, in no namespace."""
        labels = {key: value for key, value in self.labels.items() if key in keys}
        return self._replace(labels=labels, namespace=self.namespace if keys else "")


PLAIN = PlacementRules()


def _by_keys(labels: Labels, keys: tuple[str, ...], operator: Literal["In", "NotIn"]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, operator, (labels[key],)) for key in keys if key in labels)


# As it is written


class _Preference(msgspec.Struct, frozen=True):
    weight: int
    preference: NodeTerm


class _NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class _NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required: _NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
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


class _PlacementSpec(msgspec.Struct, frozen=True, rename="camel"):
    affinity: _Affinity = _Affinity()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()


def placement_of(pod: Mapping[str, Any]) -> PlacementRules:
    """The placement of a pod as it was written. Raises `InputError`."""
    metadata, written = pod.get("metadata") or {}, pod.get("spec") or {}
    told = {name: written[name] for name in _PlacementSpec.__struct_encode_fields__ if written.get(name) is not None}
    try:
        spec = msgspec.convert(_without_nulls(told), _PlacementSpec)
        labels = msgspec.convert(metadata.get("labels") or {}, dict[str, str])
    except msgspec.ValidationError as error:
        raise InputError(str(error), path="spec", remedy="see kubectl explain pod.spec.affinity") from None
    nodes, near, far = spec.affinity.node_affinity, spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    return PlacementRules(
        namespace=str(metadata.get("namespace") or "default"),
        labels=labels,
        node_terms=None if nodes.required is None else nodes.required.node_selector_terms,
        preferred_nodes=tuple((one.weight, one.preference) for one in nodes.preferred),
        near=near.required,
        far=far.required,
        preferred=tuple(Weighted(one.weight, one.pod_affinity_term) for one in near.preferred)
        + tuple(Weighted(-one.weight, one.pod_affinity_term) for one in far.preferred),
        spread=spec.topology_spread_constraints,
    )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
