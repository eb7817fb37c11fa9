"""A fix: a change after which the pod is admitted, in words, with its price."""

from __future__ import annotations

import msgspec

from podslice.advise.explain.fixes.changes import Change
from podslice.values.quantity import Quantity


class Edit(msgspec.Struct, frozen=True):
    """A field to change: its path, its value and its new value (empty: not there)."""

    path: str
    before: str
    after: str


class Fix(msgspec.Struct, frozen=True):
    """A change that was tried and works. `code` names its class (docs/explain.md), `cost` ranks it: from 1 for giving
    up almost nothing to 10 and more for what interrupts every pod of the node. `losses` are the guarantees it gives up
    (`losses.LOSSES`)."""

    code: str
    text: str
    cost: float
    change: Change
    edits: tuple[Edit, ...] = ()
    losses: tuple[str, ...] = ()


COSTS = {
    "whole-cores": 1.1,
    "whole-number": 1.2,
    "shrink": 1.0,
    "shrink-together": 1.3,
    "shrink-both": 1.5,
    "raise-budget": 1.2,
    "promised": 1.1,
    "drop-annotation": 1.1,
    "other-class": 2.0,
    "move-containers": 2.5,
    "move-pods": 3.0,
    "policy": 3.5,
    "config": 4.0,
    "repack": 4.0,
    "add-resources": 2.5,
    "empty-node": 4.5,
    "evict-pods": 5.0,
    "hugepages": 5.1,
    "reservation": 5.2,
    "drop-resources": 6.0,
    "fraction": 6.2,
    "share": 6.5,
}
"""Price of each class; giving up the whole of an amount adds `LOSS`, emptying the node first adds `DRAIN` and
`DRAIN_PER_POD` for each of its pods."""
LOSS = 9.0
DRAIN = 6.0
DRAIN_PER_POD = 0.05


def price(code: str, *, extra: float = 0.0, drained_pods: int | None = None) -> float:
    """Return the cost of a fix of this class; `drained_pods` is the number of pods on a node that is emptied first."""
    drain = 0.0 if drained_pods is None else DRAIN + DRAIN_PER_POD * drained_pods
    return round(COSTS[code] + extra + drain, 3)


def text_of(quantity: Quantity | None) -> str:
    return "" if quantity is None else quantity.canonical()
