"""Taints of nodes and of devices, and what tolerates them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec


class Taint(msgspec.Struct, frozen=True):
    """A taint of a node or of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def excludes(self) -> bool:
        """Whether it keeps away what does not tolerate it: `PreferNoSchedule` and a device's `None` do not."""
        return self.effect in ("NoSchedule", "NoExecute")


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that an unschedulable node counts as. The node controller adds it too, but later than the field."""


class Toleration(msgspec.Struct, frozen=True):
    """A toleration of a pod or of a claim's request."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Tolerations(NamedTuple):
    """Tolerations as sets, so that a taint is looked up in the same time however many there are.

    `anything`: effects of those that match every taint. `keys`: key and effect of those with operator Exists.
    `values`: key, value and effect of those with operator Equal. An empty effect matches all effects.
    """

    anything: frozenset[str] = frozenset()
    keys: frozenset[tuple[str, str]] = frozenset()
    values: frozenset[tuple[str, str, str]] = frozenset()

    @classmethod
    def of(cls, tolerations: Iterable[Toleration]) -> Tolerations:
        """Return the tolerations as sets. Those with an unknown operator tolerate nothing."""
        anything, keys, values = set[str](), set[tuple[str, str]](), set[tuple[str, str, str]]()
        for one in tolerations:
            if one.operator == "Exists" and not one.key:
                anything.add(one.effect)
            elif one.operator == "Exists":
                keys.add((one.key, one.effect))
            # `Equal` without a key is invalid in the API and matches nothing here.
            elif one.key and one.operator in ("", "Equal"):
                values.add((one.key, one.value, one.effect))
        return cls(frozenset(anything), frozenset(keys), frozenset(values))

    def tolerate(self, taint: Taint) -> bool:
        """Whether one of them tolerates the taint."""
        return any(
            effect in self.anything
            or (taint.key, effect) in self.keys
            or (taint.key, taint.value, effect) in self.values
            for effect in ("", taint.effect)
        )
