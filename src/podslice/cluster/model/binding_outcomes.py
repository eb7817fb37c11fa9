"""What becomes of a pod that wants a node: may it be bound, and what its node said of it."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from podslice.node.answers import PodHolding

OutcomeKind: TypeAlias = Literal["agreed", "honoured", "foreign", "disputed", "refused"]
"""What the journal said of a pod: the node came to what was expected, by itself or by the plan; nobody here had sent
the pod; it came to something else; it refused a pod that was sent."""


class BindVerdict(NamedTuple):
    """`error` empty: the Binding may be written. `plan` is what the pod will have, None where it wants nothing."""

    error: str = ""
    plan: PodHolding | None = None


class BindingOutcome(NamedTuple):
    """What became of a pod on a node. `expected` and `found`: what it was to have and what it has, if it differs."""

    fate: OutcomeKind
    expected: PodHolding | None = None
    found: PodHolding | None = None
