"""What is said on a pod names no pods of other namespaces.

Whoever may read a pod's events need not know who else runs on its node. Advice and news can name those, and the size of
a pod that is refused chooses whom. The operator's own tools (the log, `podslice agent status`) name everybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from podslice.service.identity import Identity

_NAMED = re.compile(r"([a-z0-9][a-z0-9.-]*)/([a-z0-9][a-z0-9.-]*[a-z0-9]|[a-z0-9])")
"""NAMESPACE/NAME, without a full stop behind it."""
STRANGER = "a pod of another namespace"


class EventTarget(Protocol):
    """Takes an event about a pod, or about the node."""

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None: ...
    def emit_node(self, kind: str, reason: str, message: str) -> None: ...


class TenantEvents:
    """Hands events on; `pods` are those of the node, with the refused ones."""

    def __init__(self, events: EventTarget, pods: Callable[[], Iterable[Identity]]) -> None:
        self._events, self._pods = events, pods

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
        """An event about a pod, for everybody who may read it."""
        self._events.emit(identity, kind, reason, without_strangers(message, identity.namespace, self._pods()))

    def emit_node(self, kind: str, reason: str, message: str) -> None:
        """An event about the node, for its operator."""
        self._events.emit_node(kind, reason, message)


def without_strangers(text: str, namespace: str, pods: Iterable[Identity]) -> str:
    """`text` without the names of those pods that are of another namespace."""
    if "/" not in text:
        return text
    known = {(one.namespace, one.name) for one in pods if one.namespace != namespace}

    def shown(match: re.Match[str]) -> str:
        return STRANGER if (match[1], match[2]) in known else match[0]

    return _NAMED.sub(shown, text)
