"""A fix: a change after which the pod is admitted, in words and commands, with its price and who is affected."""

from __future__ import annotations

from typing import Literal

import msgspec

from podslice.advise.explain.fixes.changes import Change
from podslice.values.quantity import Quantity

Effect = Literal["deleted", "restarted", "moved"]


class Edit(msgspec.Struct, frozen=True):
    """A field to change: its path, its value and its new value (empty: not there)."""

    path: str
    before: str
    after: str


class AffectedPod(msgspec.Struct, frozen=True, rename="camel"):
    """Another pod that a fix deletes, restarts on this node, or moves while it runs; `exclusive_cpus` is how many CPUs
    it owns now."""

    namespace: str
    name: str
    uid: str
    effect: Effect
    exclusive_cpus: int


class Fix(msgspec.Struct, frozen=True):
    """A change that was tried and works. `code` names its class (docs/explain.md), `cost` ranks it: up to 4 for the
    pod's own request, from 4 for the node's configuration, from 5 for what interrupts other pods. `losses` are the
    guarantees it gives up (`losses.LOSSES`).

    `because` is why a change helps where that is not plain: a sentence without a full stop, empty for most. `commands`
    are lines for a shell, with what to edit as comments. `affected` are the other pods that it interrupts."""

    code: str
    text: str
    cost: float
    change: Change
    edits: tuple[Edit, ...] = ()
    losses: tuple[str, ...] = ()
    because: str = ""
    commands: tuple[str, ...] = ()
    affected: tuple[AffectedPod, ...] = ()


COSTS = {
    # The pod's own request; containers that move while they run
    "move-containers": 1.0,
    "whole-cores": 1.1,
    "reuse-init": 1.1,
    "drop-annotation": 1.1,
    "promised": 1.1,
    "whole-number": 1.2,
    "raise-budget": 1.2,
    "raise": 1.4,
    "shrink": 1.0,
    "shrink-together": 1.3,
    "shrink-both": 1.5,
    "other-class": 2.0,
    "add-resources": 2.5,
    "policy": 3.5,
    "drop-resources": 3.7,
    "fraction": 3.8,
    "share": 3.9,
    # The node's configuration
    "config": 4.0,
    "split-reservation": 4.1,
    "hugepages": 4.4,
    "reservation": 4.5,
    "release": 4.7,
    # Other pods, other nodes
    "empty-node": 4.9,
    "move-pods": 5.0,
    "repack": 5.2,
    "evict-pods": 5.5,
}
"""Price of each class. `shrink_cost` adds the share that is given up, `price` what it costs to drain the node first."""
LOSS = 2.0
MOST_LOST = 0.5
"""The share of an amount beyond which giving it up is the last resort."""
LAST_RESORT = 9.0
DRAIN = 0.3
DRAIN_PER_POD = 0.05


def price(code: str, *, extra: float = 0.0, drained_pods: int | None = None) -> float:
    """Return the cost of a fix of this class; `drained_pods` is the number of pods on a node that is emptied first."""
    drain = 0.0 if drained_pods is None else DRAIN + DRAIN_PER_POD * drained_pods
    return round(COSTS[code] + extra + drain, 3)


def shrink_cost(code: str, lost: float) -> float:
    """Return the cost of a fix of this class that gives up this share (0 to 1) of an amount."""
    return round(COSTS[code] + LOSS * lost + (LAST_RESORT if lost > MOST_LOST else 0.0), 3)


def text_of(quantity: Quantity | None) -> str:
    return "" if quantity is None else quantity.canonical()
