"""The protocol of messages, and the number of decisions: agents that a service understands and predicts.

Messages have a protocol, which both ends name when a stream begins: each speaks the older one of the two. Decisions
have a number of their own: a release that changes no decision keeps it, so that its agents are predicted by a service
of another release, and the other way round. Digests prove every event in any case.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, TypeAlias

PROTOCOL, OLDEST_PROTOCOL = 2, 1
"""The newest and the oldest protocol of messages that this program speaks. 1: `Hello` has none, and no `Welcome` comes.
2: the service answers with `Welcome`, and states have the number of their decisions."""
DECISIONS = 1
"""The number of the decisions of this program's core; one more with a change after which equal setups, states and pods
may be decided otherwise, or after which a setup or a state has a field that the program before does not know."""

Relation: TypeAlias = Literal["same", "neighbour", "other"]
"""How a node's core decides: as this program's, as one of a neighbouring number, or in a way that is not known."""


def find_relation(version: str, decisions: int, versions: Container[str]) -> Relation:
    """Return how a core decides. `decisions`: its number, 0 for unknown; `versions` are those that decide as this
    program does."""
    if version in versions or decisions == DECISIONS:
        return "same"
    return "neighbour" if decisions > 0 and abs(decisions - DECISIONS) == 1 else "other"
