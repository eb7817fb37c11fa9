"""Selectors: match pods and nodes by labels, and nodes by names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Labels = Mapping[str, str]


def has_labels(labels: Labels, wanted: Iterable[tuple[str, str]]) -> bool:
    """Whether all of `wanted` are among the labels, as a nodeSelector or `matchLabels` asks."""
    return all(labels.get(key) == value for key, value in wanted)


class Requirement(msgspec.Struct, frozen=True):
    """One requirement of a selector; `Gt` and `Lt` compare values as numbers."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()

    def is_met_by(self, labels: Labels) -> bool:
        """Whether labels meet the requirement."""
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        if self.operator in ("Exists", "DoesNotExist"):
            return (value is None) == (self.operator == "DoesNotExist")
        try:
            number, limit = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return number > limit if self.operator == "Gt" else number < limit


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A label selector; an empty one matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether the labels meet all requirements."""
        return has_labels(labels, self.match_labels.items()) and all(
            one.is_met_by(labels) for one in self.match_expressions
        )

    def with_requirements(self, added: tuple[Requirement, ...]) -> LabelSelector:
        """Return a selector with more requirements."""
        return LabelSelector(self.match_labels, (*self.match_expressions, *added)) if added else self


class NodeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """A term of node affinity; an empty one matches no node. The only field is `metadata.name`."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Labels, name: str) -> bool:
        """Whether a node with these labels and this name matches."""
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {"metadata.name": name}
        return all(one.is_met_by(labels) for one in self.match_expressions) and all(
            one.is_met_by(fields) for one in self.match_fields
        )


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A selector of the nodes that match any of its terms."""

    node_selector_terms: tuple[NodeTerm, ...] = ()

    def matches(self, labels: Labels, name: str) -> bool:
        """Whether a node with these labels and this name matches."""
        return any(term.matches(labels, name) for term in self.node_selector_terms)
