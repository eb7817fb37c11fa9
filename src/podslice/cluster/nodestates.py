"""NodeState objects as the API server has them: what is known of a node before its stream begins, and without one.

They are listed in pages and watched. What a node's own stream says counts for more (`Journals.seed`), and nothing is
confirmed by an object: it says what the node was, not what it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.cluster.apiclient import ClusterApi
from podslice.cluster.journals import Journals
from podslice.cluster.watching import ObjectTable, Trouble
from podslice.core.cluster.events import Stamped
from podslice.core.errors import InputError
from podslice.k8s.nodestate import NODE_STATES, read_node_state
from podslice.k8s.podlist import ApiError


class SeenState:
    """A NodeState as it was last seen. `told` until it is taken in."""

    def __init__(self, node: str, told: Stamped | None) -> None:
        self.name = node
        self.told = told


def node_states(api: ClusterApi, journals: Journals, *, trouble: Trouble, **options: Any) -> ObjectTable[SeenState]:
    """Keeps `journals` informed of the objects; run it."""

    def read(data: bytes | bytearray | msgspec.Raw) -> SeenState:
        try:
            found = read_node_state(data)
        except InputError as error:
            raise ApiError(str(error)) from None
        if found.told is None:
            trouble(NODE_STATES, f"{found.node[:253]}: {found.problem}")
        return SeenState(found.node, found.told)

    def news(old: SeenState | None, new: SeenState | None) -> None:
        if new is not None and new.told is not None:
            journals.seed(new.name, new.told)
            new.told = None

    return ObjectTable(
        api, NODE_STATES, "", read=read, key=lambda seen: seen.name, news=news, trouble=trouble, **options
    )
